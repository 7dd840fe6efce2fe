package kernel

// ScratchBytes bounds what the CUDA kernels of a pass ask of workspace() and left_sums() in cuda/: x in 16 bits with a scale a row,
// the sums of products in parts and what adapters make of x (linear/packed/many.cu); both operands of a product of F32 in two halves
// (gemm/matmul_3xf16_sm90.cu); the parts of attention over shared keys (attention_decode.cuh); heads of a quantized cache in F16
// (attention_prefill_q8.cu); rows of x of each choice of an expert, and what gate and up make of them, in 16 bits
// (moe/expert_many.cu).
func (i Info) ScratchBytes(p Pass) int64 {
	if i.HostMemory {
		return 0
	}
	const (
		step      = 64 << 10 // by which it grows
		tile      = 128
		tileRows  = 16 // of queries
		converted = 32 << 20
		ranks     = 3 * 32    // of adapters, of the matrices of one x
		left      = 512 << 10 // of a stream whose operations leave x V of an adapter for the next (left_sums in cuda/)
	)
	rows, widest, dim := int64(p.Rows), int64(p.Widest), int64(p.HeadDim)
	units := 2 * int64(i.Multiprocessors)
	padded := (rows + 63) / 64 * 64
	need := rows*(widest*2+ranks*4) + padded*4 + min(units*tile*tile*4, 8*padded*widest*4)
	if p.KVType == F32 { // and so are the weights
		need = max(need, 4*widest*(rows+widest))
	}
	need = max(need, (units+int64(p.Heads))*tileRows*dim*6)
	if p.KVType.Quantized() {
		head := 4 * int64(p.Context) * dim
		need = max(need, head, min(converted, int64(p.KVHeads)*head))
	}
	need = max(need, rows*int64(p.Experts)*17/8) // with scales and sorted places, fewer than 64 bytes a choice of 512 columns and more
	need = (need + step - 1) / step * step
	if p.Adapted {
		need += left
	}
	return need
}
