// Code generated from csrc/vibrant.h by internal/backend/generate. DO NOT EDIT.

package tensor

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// The element types.
const (
	F32     = kernel.F32
	F16     = kernel.F16
	Q4_0    = kernel.Q4_0
	Q4_1    = kernel.Q4_1
	Q5_0    = kernel.Q5_0
	Q5_1    = kernel.Q5_1
	Q8_0    = kernel.Q8_0
	Q2_K    = kernel.Q2_K
	Q3_K    = kernel.Q3_K
	Q4_K    = kernel.Q4_K
	Q5_K    = kernel.Q5_K
	Q6_K    = kernel.Q6_K
	IQ2_XXS = kernel.IQ2_XXS
	IQ2_XS  = kernel.IQ2_XS
	IQ3_XXS = kernel.IQ3_XXS
	IQ1_S   = kernel.IQ1_S
	IQ4_NL  = kernel.IQ4_NL
	IQ3_S   = kernel.IQ3_S
	IQ2_S   = kernel.IQ2_S
	IQ4_XS  = kernel.IQ4_XS
	I32     = kernel.I32
	IQ1_M   = kernel.IQ1_M
	BF16    = kernel.BF16
	TQ1_0   = kernel.TQ1_0
	TQ2_0   = kernel.TQ2_0
	MXFP4   = kernel.MXFP4
	NVFP4   = kernel.NVFP4
	Q1_0    = kernel.Q1_0
	Q2_0    = kernel.Q2_0
)
