// Code generated from csrc/vibrant.h by internal/backend/generate. DO NOT EDIT.

package dtype

// The types that every backend computes on.
const (
	F32     Type = 0
	F16     Type = 1
	Q4_0    Type = 2
	Q4_1    Type = 3
	Q5_0    Type = 6
	Q5_1    Type = 7
	Q8_0    Type = 8
	Q2_K    Type = 10
	Q3_K    Type = 11
	Q4_K    Type = 12
	Q5_K    Type = 13
	Q6_K    Type = 14
	IQ2_XXS Type = 16
	IQ2_XS  Type = 17
	IQ3_XXS Type = 18
	IQ1_S   Type = 19
	IQ4_NL  Type = 20
	IQ3_S   Type = 21
	IQ2_S   Type = 22
	IQ4_XS  Type = 23
	I8      Type = 24
	I32     Type = 26
	IQ1_M   Type = 29
	BF16    Type = 30
	TQ1_0   Type = 34
	TQ2_0   Type = 35
	MXFP4   Type = 39
	NVFP4   Type = 40
	Q1_0    Type = 41
	Q2_0    Type = 42
	U8      Type = 62
	BOOL    Type = 63
)

var table = []row{
	{F32, "F32", 1, 4},
	{F16, "F16", 1, 2},
	{Q4_0, "Q4_0", 32, 18},
	{Q4_1, "Q4_1", 32, 20},
	{Q5_0, "Q5_0", 32, 22},
	{Q5_1, "Q5_1", 32, 24},
	{Q8_0, "Q8_0", 32, 34},
	{Q2_K, "Q2_K", 256, 84},
	{Q3_K, "Q3_K", 256, 110},
	{Q4_K, "Q4_K", 256, 144},
	{Q5_K, "Q5_K", 256, 176},
	{Q6_K, "Q6_K", 256, 210},
	{IQ2_XXS, "IQ2_XXS", 256, 66},
	{IQ2_XS, "IQ2_XS", 256, 74},
	{IQ3_XXS, "IQ3_XXS", 256, 98},
	{IQ1_S, "IQ1_S", 256, 50},
	{IQ4_NL, "IQ4_NL", 32, 18},
	{IQ3_S, "IQ3_S", 256, 110},
	{IQ2_S, "IQ2_S", 256, 82},
	{IQ4_XS, "IQ4_XS", 256, 136},
	{I8, "I8", 1, 1},
	{I32, "I32", 1, 4},
	{IQ1_M, "IQ1_M", 256, 56},
	{BF16, "BF16", 1, 2},
	{TQ1_0, "TQ1_0", 256, 54},
	{TQ2_0, "TQ2_0", 256, 66},
	{MXFP4, "MXFP4", 32, 17},
	{NVFP4, "NVFP4", 64, 36},
	{Q1_0, "Q1_0", 128, 18},
	{Q2_0, "Q2_0", 64, 18},
	{U8, "U8", 1, 1},
	{BOOL, "BOOL", 1, 1},
}
