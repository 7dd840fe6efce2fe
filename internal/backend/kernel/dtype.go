package kernel

import "fmt"

// DType is an element type by ggml's type id; quantized types come in blocks (ggml-common.h describes each layout).
type DType uint32

// The types that every backend computes on.
const (
	F32    DType = 0
	F16    DType = 1
	Q4_0   DType = 2
	Q4_1   DType = 3
	Q5_0   DType = 6
	Q5_1   DType = 7
	Q8_0   DType = 8
	Q2_K   DType = 10
	Q3_K   DType = 11
	Q4_K   DType = 12
	Q5_K   DType = 13
	Q6_K   DType = 14
	IQ4_NL DType = 20
	IQ4_XS DType = 23
	I32    DType = 26
	BF16   DType = 30
	TQ1_0  DType = 34
	TQ2_0  DType = 35
	MXFP4  DType = 39
)

type dtypeInfo struct {
	name       string
	block      int // elements a block
	blockBytes int
}

var dtypes = map[DType]dtypeInfo{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2}, I32: {"I32", 1, 4},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24}, Q8_0: {"Q8_0", 32, 34},
	Q2_K: {"Q2_K", 256, 84}, Q3_K: {"Q3_K", 256, 110}, Q4_K: {"Q4_K", 256, 144}, Q5_K: {"Q5_K", 256, 176}, Q6_K: {"Q6_K", 256, 210},
	IQ4_NL: {"IQ4_NL", 32, 18}, IQ4_XS: {"IQ4_XS", 256, 136}, TQ1_0: {"TQ1_0", 256, 54}, TQ2_0: {"TQ2_0", 256, 66}, MXFP4: {"MXFP4", 32, 17},
}

// DTypes lists the known types in the order of their ids.
func DTypes() []DType {
	return []DType{F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, I32, BF16, TQ1_0, TQ2_0, MXFP4}
}

// Known reports whether t is a type that the kernels compute on.
func (t DType) Known() bool { _, ok := dtypes[t]; return ok }

// BlockSize returns the elements of one block: 1 for plain types, 0 for an unknown one.
func (t DType) BlockSize() int { return dtypes[t].block }

// BlockBytes returns the bytes of one block, 0 for an unknown type.
func (t DType) BlockBytes() int { return dtypes[t].blockBytes }

// Quantized reports whether t stores blocks of several elements.
func (t DType) Quantized() bool { return dtypes[t].block > 1 }

// Bytes returns the size of n elements; n must be a multiple of the block size.
func (t DType) Bytes(n int) int64 {
	i := dtypes[t]
	if i.block == 0 {
		return 0
	}
	return int64(n) / int64(i.block) * int64(i.blockBytes)
}

func (t DType) String() string {
	if i, ok := dtypes[t]; ok {
		return i.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}
