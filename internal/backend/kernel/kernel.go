// Package kernel is the catalogue: the one interface of devices and kernels that every backend fills (pure Go, C, CUDA,
// and a fake in host memory for tests) and that package gpu calls.
//
// It mirrors csrc/vibrant.h, which holds each operation's contract: formula, shapes, types, what may be in place.
// Kernels take raw addresses and do no policy: memory, order and errors belong to package gpu, shapes to package tensor.
package kernel

import (
	"errors"
	"unsafe"
)

// Ptr is an address in a device's memory. For a CPU it is ordinary host memory.
type Ptr = unsafe.Pointer

// The failures that callers tell apart; backends wrap them with what happened. Package gpu exports them.
var (
	ErrInvalid       = errors.New("invalid argument")
	ErrUnsupported   = errors.New("not supported by this device")
	ErrNotCompiled   = errors.New("not compiled into this build")
	ErrNoDevice      = errors.New("no such device")
	ErrNoKernelImage = errors.New("no kernels for this GPU in this build")
	ErrOutOfMemory   = errors.New("out of device memory")
	ErrDeviceLost    = errors.New("device lost")
	ErrClosed        = errors.New("closed")
)

// Info describes a device.
type Info struct {
	ID                string // "cpu", "cuda:0"
	Name              string
	Backend           string // "go", "c", "cuda", "fake"
	Index             int
	TotalMemory       int64
	ComputeMajor      int // CUDA compute capability, 0 on a CPU
	ComputeMinor      int
	Multiprocessors   int // SMs, or CPU threads in use
	L2Bytes           int64
	SharedMemoryBytes int64
	Features          string
	HostMemory        bool // the device's memory is host memory: it can be read in place
}

// Options of opening a device.
type Options struct {
	Threads int // CPU: worker threads, at most MaxThreads, 0 for one a core
}

// MaxThreads is the most worker threads that a CPU device takes, as csrc/cpu_device.c has it.
const MaxThreads = 1024

// Backend is a kind of device that a build can use.
type Backend interface {
	Name() string
	// Devices lists what is there; ErrNotCompiled or ErrNoDevice say why there is none.
	Devices() ([]Info, error)
	Open(index int, o Options) (Device, error)
}

// Device is an opened device. All methods may be called from any goroutine.
type Device interface {
	Info() Info
	Memory() (free, total int64, err error)
	Alloc(bytes int64) (Ptr, error) // aligned to 256 bytes, contents undefined
	Free(Ptr) error
	AllocHost(bytes int64) (Ptr, error) // page-locked where that speeds copies
	FreeHost(Ptr) error
	NewStream() (Stream, error)
	NewEvent() (Event, error)
	PackedSize(w Weight) (int64, error) // 0: packing gains nothing here
	Close() error
}

// Stream is an order of work on a device, used by one goroutine at a time.
type Stream interface {
	Kernels
	CopyToDevice(dst, hostSrc Ptr, bytes int64) error
	CopyToHost(hostDst, src Ptr, bytes int64) error
	CopyOnDevice(dst, src Ptr, bytes int64) error
	Memset(dst Ptr, value byte, bytes int64) error
	Synchronize() error
	Record(Event) error
	Wait(Event) error
	BeginCapture() error // ErrUnsupported where there are no graphs
	EndCapture() (Graph, error)
	Launch(Graph) error
	Close() error
}

// KernelNamer is a Stream that can name the kernel which its newest operation chose; "" before the first.
type KernelNamer interface {
	LastKernel() string
}

// Event is a point in a stream.
type Event interface {
	Done() (bool, error)
	Synchronize() error
	ElapsedMS(start Event) (float32, error) // from start to this event
	Close() error
}

// Graph is recorded work.
type Graph interface {
	Update(newer Graph) error
	Close() error
}

// Weight is a matrix [Rows][Cols], one row an output, as a GGUF file stores it or packed by its device.
type Weight struct {
	Data   Ptr
	Type   DType
	Packed bool
	Rows   int
	Cols   int
}

// Precision says what a product of F32 matrices may do to be fast: see vb_precision.
type Precision int

// The precisions, in the order of vibrant.h.
const (
	PrecisionFloat32 Precision = iota // float32 accuracy by whatever is fastest
	PrecisionIEEE                     // multiplications and additions of float32 only
	PrecisionTF32                     // operands may be rounded to 11 significant bits
)

// Activation is the gate of a gated linear unit: see vb_activation.
type Activation int

// The activations, in the order of vibrant.h.
const (
	ActivationSiLU Activation = iota
	ActivationGELU
	ActivationGELUTanh
	ActivationReLUSquared
	ActivationClampedSiLU
)

// MatMulArgs are the arguments of MatMul: see vb_matmul_args.
type MatMulArgs struct {
	C, A, B                                  Ptr
	M, K, N, Batch                           int
	AStride, BStride, CStride                int
	ABatchStride, BBatchStride, CBatchStride int
	ATransposed, BTransposed                 bool
	Type                                     DType
	Precision                                Precision
}

// RoPEMode says which elements form a rotated pair.
type RoPEMode int

const (
	RoPEInterleaved RoPEMode = 0 // (2i, 2i+1)
	RoPENeoX        RoPEMode = 1 // (i, i+half)
)

// RoPEArgs are the arguments of RoPE: see vb_rope_args.
type RoPEArgs struct {
	Out, In, Cos, Sin, Positions                            Ptr
	PositionStride, Batch, Heads, Seq, Dim, Half, TableRows int
	Type                                                    DType
	Mode                                                    RoPEMode
}

// KVWriteArgs are the arguments of KVWrite: see vb_kv_write_args.
type KVWriteArgs struct {
	K, V, KIn, VIn, Positions, Sequences Ptr
	Batch, Seq, KVHeads, Dim, Capacity   int
	Type                                 DType
}

// AttentionArgs are the arguments of Attention: see vb_attention_args.
type AttentionArgs struct {
	Out, Q, K, V, Positions, Sequences    Ptr
	Batch, Seq, Heads, KVHeads, Dim       int
	QBatchStride, QHeadStride, QRowStride int
	KVCapacity, KVLen, Offset, Window     int
	Scale                                 float32
	Causal, Settled                       bool
	Type, KVType                          DType
}

// FeedForwardArgs are the arguments of FeedForward: see vb_feed_forward_args.
type FeedForwardArgs struct {
	Sum, X, Norm           Ptr
	Gate, Up, Down         Weight
	Normed, Gated, Product Ptr
	NextNorm               Ptr
	N                      int
	Eps                    float32
	Prepared               bool
	NextPrepared           bool // set by the operation
}

// NormQKVArgs are the arguments of NormQKV: see vb_norm_qkv_args.
type NormQKVArgs struct {
	Q, K, V, X, Norm                                           Ptr
	WQ, WK, WV                                                 Weight
	BQ, BK, BV, QNorm, KNorm                                   Ptr
	Cos, Sin, Positions, Sequences                             Ptr
	Normed, KNew, VNew                                         Ptr
	Batch, Seq, Heads, KVHeads, Dim, Half, TableRows, Capacity int
	Eps                                                        float32
	KVType                                                     DType
	Mode                                                       RoPEMode
	Prepared                                                   bool
}

// Kernels are the operations, enqueued in the order of their stream. One line an op, in the order of vibrant.h.
type Kernels interface {
	Add(out, a, b Ptr, t DType, n int) error
	Mul(out, a, b Ptr, t DType, n int) error
	MulScalar(out, a Ptr, scalar float32, t DType, n int) error
	SiLU(out, a Ptr, t DType, n int) error
	GELU(out, a Ptr, t DType, n int) error
	GELUTanh(out, a Ptr, t DType, n int) error
	SwiGLU(out, gate, up Ptr, t DType, n int) error
	GLU(out, gate, up Ptr, act Activation, alpha, limit float32, t DType, n int) error
	Sigmoid(out, a Ptr, t DType, n int) error
	SoftCap(out, a Ptr, limit float32, t DType, n int) error
	Copy(out, in Ptr, t DType, n int) error
	Convert(out Ptr, outType DType, in Ptr, inType DType, n int) error
	IncrementI32(x Ptr, n int) error

	Softmax(out, in Ptr, t DType, rows, cols int) error
	RMSNorm(out, in, weight Ptr, t DType, rows, cols int, eps float32) error
	LayerNorm(out, in, weight, bias Ptr, t DType, rows, cols int, eps float32) error
	AddRMSNorm(sum, out, a, b, weight Ptr, t DType, rows, cols int, eps float32) error
	MulRows(out, a, s Ptr, t DType, rows, cols int) error
	CopyColumns(out Ptr, outCols, outFirst int, in Ptr, inCols, inFirst int, t DType, rows, cols int) error
	Argmax(out, in Ptr, rows, cols int) error
	TopK(values, ids, in Ptr, rows, cols, k int) error

	MatMul(a *MatMulArgs) error
	MatMulSingleRow(c, a, b Ptr, t DType, k, n int) error
	WeightPack(out Ptr, w Weight) error
	Linear(y, x Ptr, w Weight, bias Ptr, n int) error
	Embedding(out Ptr, table Weight, ids Ptr, n int) error

	RoPE(a *RoPEArgs) error
	KVWrite(a *KVWriteArgs) error
	Attention(a *AttentionArgs) error

	NormLinear(y, x, norm Ptr, eps float32, w Weight, bias, normed Ptr, n int) error
	NormSwiGLU(out, x, norm Ptr, eps float32, gate, up Weight, normed, product Ptr, n int) error
	LinearAdd(sum, a, x Ptr, w Weight, bias, product Ptr, n int) error
	FeedForward(a *FeedForwardArgs) error
	NormQKV(a *NormQKVArgs) error
	AttentionLinearAdd(sum, a Ptr, attention *AttentionArgs, w Weight, bias, product, nextNorm, normed Ptr) (nextPrepared bool, err error)
}
