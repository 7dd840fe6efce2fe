// Code generated from csrc/vibrant.h by internal/backend/generate. DO NOT EDIT.

package kernel

import "github.com/vibrant-ml/vibrant/dtype"

// The element types.
const (
	F32     = dtype.F32
	F16     = dtype.F16
	Q4_0    = dtype.Q4_0
	Q4_1    = dtype.Q4_1
	Q5_0    = dtype.Q5_0
	Q5_1    = dtype.Q5_1
	Q8_0    = dtype.Q8_0
	Q2_K    = dtype.Q2_K
	Q3_K    = dtype.Q3_K
	Q4_K    = dtype.Q4_K
	Q5_K    = dtype.Q5_K
	Q6_K    = dtype.Q6_K
	IQ2_XXS = dtype.IQ2_XXS
	IQ2_XS  = dtype.IQ2_XS
	IQ3_XXS = dtype.IQ3_XXS
	IQ1_S   = dtype.IQ1_S
	IQ4_NL  = dtype.IQ4_NL
	IQ3_S   = dtype.IQ3_S
	IQ2_S   = dtype.IQ2_S
	IQ4_XS  = dtype.IQ4_XS
	I8      = dtype.I8
	I32     = dtype.I32
	IQ1_M   = dtype.IQ1_M
	BF16    = dtype.BF16
	TQ1_0   = dtype.TQ1_0
	TQ2_0   = dtype.TQ2_0
	MXFP4   = dtype.MXFP4
	NVFP4   = dtype.NVFP4
	Q1_0    = dtype.Q1_0
	Q2_0    = dtype.Q2_0
	U8      = dtype.U8
	BOOL    = dtype.BOOL
)
