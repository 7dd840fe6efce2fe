package kernel

// PTX are the parameters of a kernel that is written as PTX: see vb_ptx_kernel.
type PTX struct {
	Kind                           int
	M, N, K, Rows, Dim, Seq, Heads int
	Tile, Target                   int
	Epsilon                        float32
	RMS, Plain, Causal             bool
	Weight                         DType
	KVHeads, Capacity              int
	Theta                          float32
	NeoX                           bool
	Activation                     int
	Entry                          string
}

// PTXLaunch is how a kernel is launched: see vb_ptx_launch_size.
type PTXLaunch struct{ GridX, GridY, Threads int }
