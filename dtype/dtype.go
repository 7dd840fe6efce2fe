// Package dtype holds the element types of tensors and of weights in GGUF files, by ggml's numbers.
//
// Plain types are floats and integers. Quantized ones store blocks of 32 to 256 elements with common scales; csrc/quant.h
// describes the layout of each. Package tensor has the same types under its own names.
package dtype

import "fmt"

// Type is an element type by ggml's type id. Any number is a Type; Known tells those that kernels compute on.
type Type uint32

// row is a row of the table that is generated from vibrant.h.
type row struct {
	id         Type
	name       string
	block      int // elements a block
	blockBytes int
}

// info returns the type's row, a row of zeros for an unknown type.
func (t Type) info() row {
	if t < Type(len(rows)) {
		return rows[t]
	}
	return row{}
}

// rows is indexed by id.
var rows = func() (all [64]row) {
	for _, d := range table {
		all[d.id] = d
	}
	return all
}()

// All lists the known types in the order of their ids.
func All() (all []Type) {
	for _, d := range table {
		all = append(all, d.id)
	}
	return all
}

// Known reports whether t is a type that the kernels compute on.
func (t Type) Known() bool { return t.info().block > 0 }

// BlockSize returns the elements of one block: 1 for plain types, 0 for an unknown one.
func (t Type) BlockSize() int { return t.info().block }

// BlockBytes returns the bytes of one block, 0 for an unknown type.
func (t Type) BlockBytes() int { return t.info().blockBytes }

// Quantized reports whether t stores blocks of several elements.
func (t Type) Quantized() bool { return t.info().block > 1 }

// Bytes returns the size of n elements, 0 for an unknown type; n must be a multiple of the block size.
func (t Type) Bytes(n int) int64 {
	i := t.info()
	if i.block == 0 {
		return 0
	}
	return int64(n) / int64(i.block) * int64(i.blockBytes)
}

// others are types that files may have and kernels do not, by ggml's names; I2_S is of BitNet's own files.
var others = map[Type]string{9: "Q8_1", 15: "Q8_K", 25: "I16", 27: "I64", 28: "F64", 36: "I2_S"}

// String returns ggml's name of the type, such as Q4_K, also of F64 and others without kernels, or "type 99" for an unknown one.
func (t Type) String() string {
	if name := t.info().name; name != "" {
		return name
	}
	if name := others[t]; name != "" {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}
