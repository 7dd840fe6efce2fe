package kernel

import "fmt"

// DType is an element type by ggml's type id; quantized types come in blocks (csrc/quant.h describes each layout).
type DType uint32

// dtypeInfo is a row of the table that is generated from vibrant.h.
type dtypeInfo struct {
	id         DType
	name       string
	block      int // elements a block
	blockBytes int
}

// info returns the type's row, a row of zeros for an unknown type.
func (t DType) info() dtypeInfo {
	if t < DType(len(dtypeRows)) {
		return dtypeRows[t]
	}
	return dtypeInfo{}
}

// dtypeRows is indexed by id.
var dtypeRows = func() (rows [64]dtypeInfo) {
	for _, d := range dtypes {
		rows[d.id] = d
	}
	return rows
}()

// DTypes lists the known types in the order of their ids.
func DTypes() (all []DType) {
	for _, d := range dtypes {
		all = append(all, d.id)
	}
	return all
}

// Known reports whether t is a type that the kernels compute on.
func (t DType) Known() bool { return t.info().block > 0 }

// BlockSize returns the elements of one block: 1 for plain types, 0 for an unknown one.
func (t DType) BlockSize() int { return t.info().block }

// BlockBytes returns the bytes of one block, 0 for an unknown type.
func (t DType) BlockBytes() int { return t.info().blockBytes }

// Quantized reports whether t stores blocks of several elements.
func (t DType) Quantized() bool { return t.info().block > 1 }

// Bytes returns the size of n elements; n must be a multiple of the block size.
func (t DType) Bytes(n int) int64 {
	i := t.info()
	if i.block == 0 {
		return 0
	}
	return int64(n) / int64(i.block) * int64(i.blockBytes)
}

func (t DType) String() string {
	if name := t.info().name; name != "" {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}
