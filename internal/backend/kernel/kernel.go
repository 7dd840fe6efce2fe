// Package kernel is the catalogue: the one interface of devices and kernels that every backend fills (pure Go, C, CUDA,
// and a fake in host memory for tests) and that package gpu calls.
//
// It mirrors csrc/vibrant.h, which holds each operation's contract: formula, shapes, types, what may be in place.
// Kernels take raw addresses and do no policy: memory, order and errors belong to package gpu, shapes to package tensor.
package kernel

//go:generate go run ../generate

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/vibrant-ml/vibrant/dtype"
)

// DType is an element type.
type DType = dtype.Type

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

// NoKernelImage is the error of a GPU that a build has no kernels for. The GPUs that it has kernels for are as
// vb_cuda_architectures_in_use names them: "80_90a", or words that say what to do.
func NoKernelImage(op, architectures string) error {
	if !strings.Contains(architectures, " ") {
		architectures = strings.ReplaceAll(architectures, "_", ", ") +
			" (with VIBRANT_CUDA=ptx the driver compiles kernels for this GPU, and make lib-cuda CUDA_ARCH=... makes a library for it)"
	}
	return fmt.Errorf("%s: %w: it holds those of compute capability %s", op, ErrNoKernelImage, architectures)
}

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

// Infos describes the devices of a backend, of which there are count. It opens each for a moment, since only then what it is can be told.
func Infos(b Backend, count int) (infos []Info, unusable error) {
	for i := range count {
		d, err := b.Open(i, Options{})
		if errors.Is(err, ErrNoKernelImage) { // the next GPU may be another
			unusable = err
			continue
		}
		if err != nil {
			return infos, err
		}
		infos = append(infos, d.Info())
		d.Close()
	}
	return infos, unusable
}

// Device is an opened device. All methods may be called from any goroutine.
type Device interface {
	Info() Info
	Memory() (free, total int64, err error)
	Alloc(bytes int64) (Ptr, error) // aligned to 256 bytes, contents undefined
	Free(Ptr) error
	AllocHost(bytes int64) (Ptr, error) // page-locked where that speeds copies
	FreeHost(Ptr) error
	NewStream(memory Allocator) (Stream, error) // nil: the stream's own memory comes from Alloc
	NewEvent() (Event, error)
	PackedSize(w Weight) (int64, error) // 0: packing gains nothing here
	ScratchBytes(p Pass) int64          // the most that a stream's scratch memory grows to by such passes
	// NewCommunicator joins streams of devices of this backend, one a rank; ErrUnsupported where two of them cannot reach each
	// other's memory. The streams outlive it.
	NewCommunicator(streams []Stream) (Communicator, error)
	Close() error
}

// Communicator combines what the streams of several devices compute, as csrc/vibrant.h says. One goroutine at a time uses it, and
// all its streams with it. Slices of addresses have one for each rank of this process, cols has the sizes of all ranks.
type Communicator interface {
	// AllReduce computes out[r] = in[0] + in[1] + ... + add[r] of n elements of F32; add nil is none. rounded permits the rounding of
	// summands that csrc/vibrant.h describes.
	AllReduce(out, in, add []Ptr, n int, rounded bool) error
	// AllGather makes each row of out[r] of the rows of in[0], in[1], ..., which have cols[0], cols[1], ... elements of F32.
	AllGather(out, in []Ptr, rows int, cols []int) error
	// Broadcast copies words of 4 bytes of one rank to all others.
	Broadcast(data []Ptr, words, root int) error
	// Send copies words of 4 bytes from in of a rank to out of another.
	Send(out, in Ptr, words, from, to int) error
	Close() error
}

// LayerReducer is a Communicator with the sums between the halves of a layer, as vibrant.h has them.
type LayerReducer interface {
	// AllReduceRows is AllReduce, rounded, that may prepare the rows of the sum for the norm that follows. Where rows.Parted
	// is set it may leave each rank with columns of its own, which later sums on this communicator take as rows.Add.
	AllReduceRows(out, in []Ptr, rows *SumOfRows) error
	// LinearAllReduce is Linear of each rank into product, and AllReduce, rounded.
	LinearAllReduce(out, product []Ptr, sum *SumOfProducts) error
}

// SumOfProducts is vb_sum_of_products.
type SumOfProducts struct {
	Add, X, Bias []Ptr
	W            []Weight
	N            int
}

// SumOfRows is vb_sum_of_rows. Norm and Normed may be empty: then nothing is prepared.
type SumOfRows struct {
	Add, Norm, Normed []Ptr
	N, Cols           int
	From              HalfLayer
	AddParted         bool // of Add each rank has the columns that a sum with Parted has left there
	Parted            bool // a rank may be left with its own columns alone; set: whether it was
	Prepared          bool // set
}

// PartFeeder is a Stream that computes FeedForward of prepared rows without adding X: a rank's part of a sum.
type PartFeeder interface {
	FeedForwardPart(args *FeedForwardArgs) error
}

// HalfLayer is vb_half_layer: what a sum over ranks is of.
type HalfLayer int32

const (
	AfterAttention HalfLayer = iota
	AfterFeedForward
)

// RankJoiner is a Device whose streams may be joined with those of other processes.
type RankJoiner interface {
	// RanksUsable says why they may not.
	RanksUsable() error
	// RanksID fills id, of RanksIDBytes, with what all ranks of one communicator are given. One of them asks for it.
	RanksID(id []byte) error
	// JoinRanks returns when all ranks have called it.
	JoinRanks(s Stream, rank, ranks int, id []byte) (RankCommunicator, error)
}

// RanksIDBytes is VB_UNIQUE_ID_BYTES.
const RanksIDBytes = 128

// RankCommunicator is a Communicator with other processes: its slices of addresses have one element.
type RankCommunicator interface {
	Communicator
	// Abort ends work that waits for a rank which does not come. It may be called from any goroutine; nothing but Close follows.
	Abort()
}

// Pass is the shape of passes through a language model.
type Pass struct {
	Rows    int // tokens at once
	Widest  int // columns of the widest matrix
	Heads   int
	KVHeads int
	HeadDim int
	Context int // tokens that a cache holds
	KVType  DType
	Experts int  // columns that the chosen experts of a token multiply, each its own; 0 without experts
	Adapted bool // adapters are active
}

// Allocator is where a stream's own memory comes from: scratch memory and counters of its kernels. A GPU's stream asks for it while
// it is created, and within calls that enqueue work.
type Allocator interface {
	Alloc(bytes int64) (Ptr, error)
	// Free gives memory back. Work that was enqueued before may still use it, and so may graphs that were captured since it was
	// allocated.
	Free(Ptr)
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

// NativeStream is a Stream that the driver knows too: its CUstream. A Stream that is none has no handle, as those of a CPU.
type NativeStream interface {
	Native() (Ptr, error)
}

// MemoryChecker is a Device that can tell whether its kernels may use memory that somebody else allocated: ErrInvalid where not.
type MemoryChecker interface {
	CheckMemory(p Ptr, bytes int64) error
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
	Prepare() error // does what the first launch would have to do before it can run
	Close() error
}

// View is an array in memory: element (i0, i1, ...) lies i0 * Strides[0] + i1 * Strides[1] + ... elements behind Data.
type View struct {
	Data    Ptr
	Type    DType
	Strides [MaxDims]int
}

// Step is a step of an expression of elements: Op of the values A, B and C, as vb_step says.
type Step struct {
	Op      ElementOp
	A, B, C int32
}

// Weight is a matrix [Rows][Cols], one row an output, as a GGUF file stores it or packed by its device.
type Weight struct {
	Data   Ptr
	Type   DType
	Packed bool
	Rows   int
	Cols   int
}
