package gguf

import "strconv"

// Type is the element type of a tensor: ggml's id, as it is stored in the file.
type Type uint32

// The tensor types of ggml, by its own names and ids (enum ggml_type of ggml.h).
const (
	F32     Type = 0
	F16     Type = 1
	Q4_0    Type = 2
	Q4_1    Type = 3
	Q5_0    Type = 6
	Q5_1    Type = 7
	Q8_0    Type = 8
	Q8_1    Type = 9
	Q2_K    Type = 10
	Q3_K    Type = 11
	Q4_K    Type = 12
	Q5_K    Type = 13
	Q6_K    Type = 14
	Q8_K    Type = 15
	IQ2_XXS Type = 16
	IQ2_XS  Type = 17
	IQ3_XXS Type = 18
	IQ1_S   Type = 19
	IQ4_NL  Type = 20
	IQ3_S   Type = 21
	IQ2_S   Type = 22
	IQ4_XS  Type = 23
	I8      Type = 24
	I16     Type = 25
	I32     Type = 26
	I64     Type = 27
	F64     Type = 28
	IQ1_M   Type = 29
	BF16    Type = 30
	TQ1_0   Type = 34
	TQ2_0   Type = 35
	I2_S    Type = 36 // of BitNet's own files alone: four elements a byte, then 32 bytes with a scale
	MXFP4   Type = 39
	NVFP4   Type = 40
	Q1_0    Type = 41
	Q2_0    Type = 42
)

// types is indexed by id. A type without sizes is one that ggml has removed: it has a name for error messages only.
var types = [...]struct {
	name      string
	blockSize int // elements
	typeSize  int // bytes of a block
}{
	F32:     {"F32", 1, 4},
	F16:     {"F16", 1, 2},
	Q4_0:    {"Q4_0", 32, 18},
	Q4_1:    {"Q4_1", 32, 20},
	4:       {"Q4_2", 0, 0},
	5:       {"Q4_3", 0, 0},
	Q5_0:    {"Q5_0", 32, 22},
	Q5_1:    {"Q5_1", 32, 24},
	Q8_0:    {"Q8_0", 32, 34},
	Q8_1:    {"Q8_1", 32, 36},
	Q2_K:    {"Q2_K", 256, 84},
	Q3_K:    {"Q3_K", 256, 110},
	Q4_K:    {"Q4_K", 256, 144},
	Q5_K:    {"Q5_K", 256, 176},
	Q6_K:    {"Q6_K", 256, 210},
	Q8_K:    {"Q8_K", 256, 292},
	IQ2_XXS: {"IQ2_XXS", 256, 66},
	IQ2_XS:  {"IQ2_XS", 256, 74},
	IQ3_XXS: {"IQ3_XXS", 256, 98},
	IQ1_S:   {"IQ1_S", 256, 50},
	IQ4_NL:  {"IQ4_NL", 32, 18},
	IQ3_S:   {"IQ3_S", 256, 110},
	IQ2_S:   {"IQ2_S", 256, 82},
	IQ4_XS:  {"IQ4_XS", 256, 136},
	I8:      {"I8", 1, 1},
	I16:     {"I16", 1, 2},
	I32:     {"I32", 1, 4},
	I64:     {"I64", 1, 8},
	F64:     {"F64", 1, 8},
	IQ1_M:   {"IQ1_M", 256, 56},
	BF16:    {"BF16", 1, 2},
	31:      {"Q4_0_4_4", 0, 0},
	32:      {"Q4_0_4_8", 0, 0},
	33:      {"Q4_0_8_8", 0, 0},
	TQ1_0:   {"TQ1_0", 256, 54},
	TQ2_0:   {"TQ2_0", 256, 66},
	I2_S:    {"I2_S", 4, 1}, // ggml had IQ4_NL_4_4 by this id, and has removed it
	37:      {"IQ4_NL_4_8", 0, 0},
	38:      {"IQ4_NL_8_8", 0, 0},
	MXFP4:   {"MXFP4", 32, 17},
	NVFP4:   {"NVFP4", 64, 36},
	Q1_0:    {"Q1_0", 128, 18},
	Q2_0:    {"Q2_0", 64, 18},
}

// Known reports whether t is a type that a GGUF file may hold: one whose sizes are known. It says nothing about whether
// Vibrant can compute with it.
func (t Type) Known() bool { return t.BlockSize() > 0 }

// String returns ggml's name of the type in upper case, such as "Q4_K", also for types that ggml has removed, else
// "type 1234".
func (t Type) String() string {
	if int64(t) < int64(len(types)) {
		return types[t].name
	}
	return "type " + strconv.FormatUint(uint64(t), 10)
}

// BlockSize returns how many elements share one block, 1 for types that are not quantized and 0 for an unknown type.
func (t Type) BlockSize() int {
	if int64(t) < int64(len(types)) {
		return types[t].blockSize
	}
	return 0
}

// TypeSize returns the bytes of one block, 0 for an unknown type.
func (t Type) TypeSize() int {
	if int64(t) < int64(len(types)) {
		return types[t].typeSize
	}
	return 0
}
