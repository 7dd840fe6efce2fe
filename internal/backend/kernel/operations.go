// Code generated from csrc/vibrant.h by internal/backend/generate. DO NOT EDIT.

package kernel

// MaxDims is VB_MAX_DIMS.
const MaxDims = 8

// MaxInputs is VB_MAX_INPUTS.
const MaxInputs = 6

// MaxRanks is VB_MAX_RANKS.
const MaxRanks = 8

// MaxSteps is VB_MAX_STEPS.
const MaxSteps = 48

// Status is vb_status.
type Status int

const (
	// StatusOK is VB_OK.
	StatusOK Status = 0
	// StatusInvalidArgument is VB_INVALID_ARGUMENT: the caller's mistake: null pointer, negative size, overflow,
	// senseless type.
	StatusInvalidArgument Status = 1
	// StatusUnsupported is VB_UNSUPPORTED: sensible, but this device has no kernel for it.
	StatusUnsupported Status = 2
	// StatusNotCompiled is VB_NOT_COMPILED: no kernels for that kind of device: neither linked in nor found
	// (vb_cuda_library).
	StatusNotCompiled Status = 3
	// StatusNoDevice is VB_NO_DEVICE: no such device, or no driver.
	StatusNoDevice Status = 4
	// StatusNoKernelImage is VB_NO_KERNEL_IMAGE: the library was not built for this GPU's compute capability.
	StatusNoKernelImage Status = 5
	// StatusOutOfMemory is VB_OUT_OF_MEMORY: of the device, or of the host for host allocations.
	StatusOutOfMemory Status = 6
	// StatusDeviceLost is VB_DEVICE_LOST: an illegal access or hardware fault poisoned the device: close it, nothing
	// else works.
	StatusDeviceLost Status = 7
	// StatusInternal is VB_INTERNAL: a driver error with no better name: see vb_device_driver_error.
	StatusInternal Status = 8
	// StatusInvalidEnvironment is VB_INVALID_ENVIRONMENT: an environment variable, named by vb_status_string, has a
	// value without meaning.
	StatusInvalidEnvironment Status = 9
)

// Activation is vb_activation: The gates of gated linear units (Shazeer 2020), as vb_glu applies them to g =
// gate[i], u = up[i].
type Activation int

const (
	// ActivationSiLU is VB_SILU: g / (1 + exp(-g)) * u: what vb_swiglu computes.
	ActivationSiLU Activation = 0
	// ActivationGELU is VB_GELU: vb_gelu's g * u.
	ActivationGELU Activation = 1
	// ActivationGELUTanh is VB_GELU_TANH: vb_gelu_tanh's g * u (Gemma).
	ActivationGELUTanh Activation = 2
	// ActivationReLUSquared is VB_RELU_SQUARED: max(g, 0)^2 * u (So et al. 2021, "Primer"; BitNet b1.58).
	ActivationReLUSquared Activation = 3
	// ActivationClampedSiLU is VB_CLAMPED_SILU: g' / (1 + exp(-alpha g')) * (u' + 1), g' = min(g, limit), u' = u
	// clamped to -limit..limit (gpt-oss).
	ActivationClampedSiLU Activation = 4
)

// ElementOp is vb_element_op: The steps of an expression of elements. A value is a float32, or an int32 whose
// overflow wraps. Operands of one step are of one kind, and so is its result, unless the comment says more.
// Comparisons give the int32 1 or 0.
type ElementOp int

const (
	// ElementConstant is VB_ELEMENT_CONSTANT: the float32 whose bits are a.
	ElementConstant ElementOp = 0
	// ElementInteger is VB_ELEMENT_INTEGER: the int32 a.
	ElementInteger ElementOp = 1
	// ElementIndex is VB_ELEMENT_INDEX: the element's number in row-major order, an int32; at most 2^31 - 1 elements.
	ElementIndex ElementOp = 2
	// ElementRandom is VB_ELEMENT_RANDOM: a random float32 of Philox 4x32-10 of the key (a, b): c bits, 1 to 24, as a
	// fraction from 0 up to 1, or a normal number where c is 0; docs/tensor.md says which word.
	ElementRandom ElementOp = 3
	// ElementToFloat is VB_ELEMENT_TO_FLOAT: int32 a as float32, to the nearest.
	ElementToFloat ElementOp = 4
	// ElementToInteger is VB_ELEMENT_TO_INTEGER: float32 a as int32: towards 0, held within the range, 0 for NaN.
	ElementToInteger ElementOp = 5
	// ElementWhere is VB_ELEMENT_WHERE: b where the int32 a is not 0, else c.
	ElementWhere ElementOp = 6
	// ElementAdd is VB_ELEMENT_ADD: a + b.
	ElementAdd ElementOp = 7
	// ElementSub is VB_ELEMENT_SUB: a - b.
	ElementSub ElementOp = 8
	// ElementMul is VB_ELEMENT_MUL: a * b.
	ElementMul ElementOp = 9
	// ElementDiv is VB_ELEMENT_DIV: a / b; of integers towards 0, and 0 where b is 0.
	ElementDiv ElementOp = 10
	// ElementMin is VB_ELEMENT_MIN: the smaller, NaN if either is NaN.
	ElementMin ElementOp = 11
	// ElementMax is VB_ELEMENT_MAX: the greater, NaN if either is NaN.
	ElementMax ElementOp = 12
	// ElementNeg is VB_ELEMENT_NEG: -a.
	ElementNeg ElementOp = 13
	// ElementAbs is VB_ELEMENT_ABS: |a|.
	ElementAbs ElementOp = 14
	// ElementEq is VB_ELEMENT_EQ: a == b.
	ElementEq ElementOp = 15
	// ElementNe is VB_ELEMENT_NE: a != b.
	ElementNe ElementOp = 16
	// ElementLt is VB_ELEMENT_LT: a < b.
	ElementLt ElementOp = 17
	// ElementLe is VB_ELEMENT_LE: a <= b.
	ElementLe ElementOp = 18
	// ElementAnd is VB_ELEMENT_AND: bits of integers.
	ElementAnd ElementOp = 19
	// ElementOr is VB_ELEMENT_OR.
	ElementOr ElementOp = 20
	// ElementXor is VB_ELEMENT_XOR.
	ElementXor ElementOp = 21
	// ElementShiftRight is VB_ELEMENT_SHIFT_RIGHT: a as 32 bits without sign, by b % 32 bits.
	ElementShiftRight ElementOp = 22
	// ElementRem is VB_ELEMENT_REM: a - a / b * b of integers, and 0 where b is 0.
	ElementRem ElementOp = 23
	// ElementPow is VB_ELEMENT_POW: a to the power of b; of integers by products that wrap, and for b below 0 the
	// whole number next to it towards 0: 1 or -1 where a is such, else 0.
	ElementPow ElementOp = 24
	// ElementExp is VB_ELEMENT_EXP: from here on float32 alone.
	ElementExp ElementOp = 25
	// ElementLog is VB_ELEMENT_LOG: natural.
	ElementLog ElementOp = 26
	// ElementSqrt is VB_ELEMENT_SQRT.
	ElementSqrt ElementOp = 27
	// ElementRsqrt is VB_ELEMENT_RSQRT: 1 / sqrt(a).
	ElementRsqrt ElementOp = 28
	// ElementSin is VB_ELEMENT_SIN.
	ElementSin ElementOp = 29
	// ElementCos is VB_ELEMENT_COS.
	ElementCos ElementOp = 30
	// ElementTanh is VB_ELEMENT_TANH.
	ElementTanh ElementOp = 31
	// ElementSigmoid is VB_ELEMENT_SIGMOID: 1 / (1 + exp(-a)).
	ElementSigmoid ElementOp = 32
	// ElementSiLU is VB_ELEMENT_SILU: as vb_silu, vb_gelu and vb_gelu_tanh.
	ElementSiLU ElementOp = 33
	// ElementGELU is VB_ELEMENT_GELU.
	ElementGELU ElementOp = 34
	// ElementGELUTanh is VB_ELEMENT_GELU_TANH.
	ElementGELUTanh ElementOp = 35
	// ElementFloor is VB_ELEMENT_FLOOR.
	ElementFloor ElementOp = 36
	// ElementCeil is VB_ELEMENT_CEIL.
	ElementCeil ElementOp = 37
	// ElementRound is VB_ELEMENT_ROUND: to the nearest, ties to even.
	ElementRound ElementOp = 38
)

// Reduction is vb_reduction: How a reduction combines elements x: floats, and integers where the comment says so.
// Sums and products of integers wrap.
type Reduction int

const (
	// ReductionSum is VB_REDUCTION_SUM: integers too.
	ReductionSum Reduction = 0
	// ReductionProd is VB_REDUCTION_PROD: integers too.
	ReductionProd Reduction = 1
	// ReductionMax is VB_REDUCTION_MAX: NaN where one is NaN; integers too.
	ReductionMax Reduction = 2
	// ReductionMin is VB_REDUCTION_MIN: NaN where one is NaN; integers too.
	ReductionMin Reduction = 3
	// ReductionArgmax is VB_REDUCTION_ARGMAX: the lowest number of a greatest one, NaN being the greatest; integers
	// too.
	ReductionArgmax Reduction = 4
	// ReductionArgmin is VB_REDUCTION_ARGMIN: the lowest number of a smallest one, NaN being the smallest; integers
	// too.
	ReductionArgmin Reduction = 5
	// ReductionAny is VB_REDUCTION_ANY: whether one is not 0; integers too.
	ReductionAny Reduction = 6
	// ReductionAll is VB_REDUCTION_ALL: whether none is 0; integers too.
	ReductionAll Reduction = 7
	// ReductionMean is VB_REDUCTION_MEAN.
	ReductionMean Reduction = 8
	// ReductionVar is VB_REDUCTION_VAR: the sum of (x - mean)^2, divided by their number less `parameter`.
	ReductionVar Reduction = 9
	// ReductionNorm is VB_REDUCTION_NORM: (the sum of |x|^p)^(1/p) for a parameter p of 1 or 2; greatest |x| for
	// infinity.
	ReductionNorm Reduction = 10
	// ReductionLogSumExp is VB_REDUCTION_LOGSUMEXP: log(sum(exp(x))), without overflow.
	ReductionLogSumExp Reduction = 11
)

// Indexing is vb_indexing: Elements at places that are in memory: out is in with coordinate `dim` replaced by ids;
// where scatter, out with coordinate `dim` replaced by ids becomes in, or has it added. Views of the same type
// size. Additions are of F32 and I32, in any order. An id outside 0..places-1 gives an element of zeros, and
// scatters nothing (on the CPU the call returns VB_INVALID_ARGUMENT instead). Of several elements of one place any
// may stay. Not in place.
type Indexing int

const (
	// IndexingGather is VB_INDEXING_GATHER.
	IndexingGather Indexing = 0
	// IndexingScatter is VB_INDEXING_SCATTER.
	IndexingScatter Indexing = 1
	// IndexingScatterAdd is VB_INDEXING_SCATTER_ADD.
	IndexingScatterAdd Indexing = 2
)

// Precision is vb_precision: The rounding that makes products of F32 matrices fast. The 16-bit types are multiplied
// exactly and summed in float32 anyway.
type Precision int

const (
	// PrecisionFloat32 is VB_PRECISION_FLOAT32: Float32 accuracy by whatever is fastest, the default: also tensor
	// cores on split operands, where the errors are no larger than those of multiplying and adding in float32.
	PrecisionFloat32 Precision = 0
	// PrecisionIEEE is VB_PRECISION_IEEE: Only multiplications and additions of float32 (IEEE 754), in any order of
	// the sum.
	PrecisionIEEE Precision = 1
	// PrecisionTF32 is VB_PRECISION_TF32: Operands may be rounded to the 11 significant bits of TF32. A permission, no
	// obligation: a device without tensor cores for it computes in float32.
	PrecisionTF32 Precision = 2
)

// Int2Layout is vb_int2_layout.
type Int2Layout int

const (
	// Int2Rows is VB_INT2_ROWS: Element k of a row in byte k / 4, at bit 2 (k % 4); rows of (k + 3) / 4 bytes.
	Int2Rows Int2Layout = 0
	// Int2Interleaved is VB_INT2_INTERLEAVED: Rows of whole pieces of 16 bytes, whose words of 32 bits hold 16
	// elements: element e of a word at bit 8 (e % 4) + 2 (e / 4). Of eight neighbouring pieces (n at a row's end),
	// word w of piece i holds the elements from 16 (i + 8 w) on (16 (i + n w)), counted from the first of these
	// pieces. What follows the last element is 0.
	Int2Interleaved Int2Layout = 1
	// Int2Microsoft is VB_INT2_MICROSOFT: Tiles of 16 rows and 32 elements of code weight + 2, as Microsoft's BitNet
	// stores them for its GPU kernel: for vb_int2_convert alone. Rows are a multiple of 16, elements of 32.
	Int2Microsoft Int2Layout = 2
)

// Gating is vb_gating.
type Gating int

const (
	// GatingSoftmax is VB_GATING_SOFTMAX: softmax over all experts (Qwen, DeepSeek-V2).
	GatingSoftmax Gating = 0
	// GatingSoftmaxChosen is VB_GATING_SOFTMAX_CHOSEN: softmax over the k chosen alone (gpt-oss, Granite).
	GatingSoftmaxChosen Gating = 1
	// GatingSigmoid is VB_GATING_SIGMOID: 1 / (1 + exp(-logit)) (DeepSeek-V3, GLM 4.5, Llama 4).
	GatingSigmoid Gating = 2
)

// RoPEMode is vb_rope_mode.
type RoPEMode int

const (
	// RoPEInterleaved is VB_ROPE_INTERLEAVED: pairs (2i, 2i+1), as GGUF `llama` files are permuted for (Su et al.
	// 2021).
	RoPEInterleaved RoPEMode = 0
	// RoPENeoX is VB_ROPE_NEOX: pairs (i, i + half): GPT-NeoX, Qwen.
	RoPENeoX RoPEMode = 1
)

// MapArgs is vb_map_args.
type MapArgs struct {
	Out     View            // [sizes]
	In      [MaxInputs]View // [sizes], the first `inputs` of them
	Sizes   [MaxDims]int
	Program [MaxSteps]Step
	Rank    int
	Inputs  int
	Steps   int
}

// ReduceArgs is vb_reduce_args.
type ReduceArgs struct {
	Out       View // [sizes]
	In        View // [sizes]
	Sizes     [MaxDims]int
	Rank      int
	Reduced   int
	Reduction Reduction
	Parameter float32
}

// SortArgs is vb_sort_args.
type SortArgs struct {
	Values     View // [out_sizes], or NULL for none; of the type of in
	Indices    View // [out_sizes], or NULL for none; I32
	In         View // [sizes]
	Sizes      [MaxDims]int
	OutSizes   [MaxDims]int // sizes, but k along dim
	Rank       int
	Dim        int
	Descending bool
}

// IndexArgs is vb_index_args.
type IndexArgs struct {
	Out      View // [out_sizes]
	In       View // [in_sizes]
	IDs      View // [ids_sizes]
	OutSizes [MaxDims]int
	InSizes  [MaxDims]int
	IDsSizes [MaxDims]int // those of out where gathered, of in where scattered
	Rank     int
	Dim      int
	Indexing Indexing
}

// MatMulArgs is vb_matmul_args.
type MatMulArgs struct {
	C            Ptr // [batch : c_batch_stride][m : c_stride][n]
	A            Ptr // [batch : a_batch_stride][m : a_stride][k], or [batch : a_batch_stride][k : a_stride][m] where a_transposed
	B            Ptr // [batch : b_batch_stride][k : b_stride][n], or [batch : b_batch_stride][n : b_stride][k] where b_transposed
	M            int
	K            int
	N            int
	Batch        int
	AStride      int
	BStride      int
	CStride      int
	ABatchStride int
	BBatchStride int
	CBatchStride int
	ATransposed  bool
	BTransposed  bool
	Type         DType // of all three: F32, F16, BF16; accumulated in float32
	Precision    Precision
}

// FusedUpdateArgs is vb_fused_update_args.
type FusedUpdateArgs struct {
	Out         Ptr // [m][n]
	Add         Ptr // [m][n], or NULL for zeros
	X           Ptr // [m][k]
	V           Ptr // [k][r] of weight_type, or [r][k] of weight_type where v_transposed
	Codes       Ptr // [m : codes_stride][r], or NULL for ones
	U           Ptr // [n][r] of weight_type, or [r][n] of weight_type where u_transposed
	M           int
	K           int
	N           int
	R           int
	CodesStride int
	Scale       float32
	Type        DType // of out, add, x and codes: F32, F16, BF16
	WeightType  DType // of v and u: the same, or F16 beside F32
	VTransposed bool
	UTransposed bool
}

// NormQuantizeArgs is vb_norm_quantize_args.
type NormQuantizeArgs struct {
	Codes      Ptr // [rows][cols] of VB_I8
	Scales     Ptr // [rows]
	In         Ptr // [rows][cols]
	Up         Ptr // [rows][cols], or NULL for none
	Norm       Ptr // [cols], or NULL for ones
	Rows       int
	Cols       int
	Activation Activation // with up: VB_SILU, VB_RELU_SQUARED
	Eps        float32
	Normed     bool
}

// W2A8GEMVArgs is vb_w2a8_gemv_args.
type W2A8GEMVArgs struct {
	Out              Ptr // [m][n] of out_type
	Weights          Ptr // [n][row_bytes] of VB_I8
	Activations      Ptr // [m][k] of VB_I8
	ActivationScales Ptr // [m], or NULL for ones
	WeightScales     Ptr // [segments], or NULL for ones
	SegmentEnds      Ptr // [segments], or NULL for equal segments
	Bias             Ptr // [n], or NULL for none
	Add              Ptr // [m][n], or NULL for none; may be out
	M                int
	N                int
	K                int
	Segments         int
	RowBytes         int // vb_int2_row_bytes of the layout and k
	Layout           Int2Layout
	OutType          DType // I32, F32, F16, BF16
	Settled          bool  // the op before does not write weights, which may be read while it still runs
	Threads          int   // of a block: 64, 128, 256; 512 with 4 lanes
	Lanes            int   // that share the elements of a row: 4 (int8 tensor cores), 8, 16, 32 (m <= 4)
	Tile             int   // rows that a thread has at a time: 1, 2; with 4 lanes pairs of rows
	Persistent       bool  // as many blocks as the GPU holds, for several tiles each, not one a tile; with 4 lanes, m = 1 and threads and tile 0 by products of single bits (9.0)
	WithoutDP4A      bool  // multiply byte by byte
	Narrow           bool  // read weights by 4 bytes instead of 16
}

// BitLinearArgs is vb_bit_linear_args.
type BitLinearArgs struct {
	Out           Ptr // [m][n]
	Out2          Ptr // [m][n2], or NULL for none
	Out3          Ptr // [m][n3], or NULL for none
	Codes         Ptr // [m][k] of VB_I8
	Scales        Ptr // [m]
	In            Ptr // [m][k]
	Up            Ptr // [m][k], or NULL for none
	Norm          Ptr // [k], or NULL for ones
	Add           Ptr // [m][n], or NULL for none; may be out
	Weights       Ptr // [n][row_bytes] of VB_I8
	Weights2      Ptr // [n2][row_bytes] of VB_I8, or NULL for none
	Weights3      Ptr // [n3][row_bytes] of VB_I8, or NULL for none
	WeightScales  Ptr // [segments]
	WeightScales2 Ptr // [segments2], or NULL for none
	WeightScales3 Ptr // [segments3], or NULL for none
	M             int
	N             int
	N2            int
	N3            int
	K             int
	Segments      int
	Segments2     int
	Segments3     int
	RowBytes      int // vb_int2_row_bytes of the layout and k
	Layout        Int2Layout
	Activation    Activation // with up: VB_SILU, VB_RELU_SQUARED
	Eps           float32
	Normed        bool
	Settled       bool // the op before writes neither weights nor norm, which may be read while it still runs
}

// TMACMatMulArgs is vb_tmac_matmul_args.
type TMACMatMulArgs struct {
	Out         Ptr // [m][n]
	Weights     Ptr // [m][(k + 3) / 4] of VB_I8
	Activations Ptr // [k][n], or NULL for lut
	LUT         Ptr // [n][(k + 3) / 4][256], or NULL for activations
	Scales      Ptr // [m][groups], or NULL for ones
	Norm        Ptr // [k], or NULL for ones
	M           int
	N           int
	K           int
	Groups      int
	Eps         float32
	Normed      bool
	Settled     bool // the op before writes neither weights nor norm, which may be read while it still runs
}

// RouteArgs is vb_route_args.
type RouteArgs struct {
	IDs         Ptr // [n][k]
	Weights     Ptr // [n][k]
	Logits      Ptr // [n][experts]
	Bias        Ptr // [experts], or NULL for none
	N           int
	Experts     int
	K           int
	Groups      int // 0: none
	GroupsUsed  int // 0: none
	Scale       float32
	Gating      Gating
	Normalized  bool
	GroupByBest bool
}

// ExpertLinearArgs is vb_expert_linear_args.
type ExpertLinearArgs struct {
	Y          Ptr // [n][k][w.rows]
	X          Ptr // [n][w.cols], or [n][k][w.cols] where x_per_choice
	W          Weight
	Bias       Ptr // [experts][w.rows], or NULL for none
	IDs        Ptr // [n][k]
	N          int
	K          int
	Experts    int
	XPerChoice bool
}

// RoPEArgs is vb_rope_args.
type RoPEArgs struct {
	Out            Ptr // [batch][heads][seq][dim]
	In             Ptr // [batch][heads][seq][dim]
	Cos            Ptr // [table_rows][half]
	Sin            Ptr // [table_rows][half]
	Positions      Ptr // [batch : position_stride][seq], or NULL for 0, 1, ...
	PositionStride int
	Batch          int
	Heads          int
	Seq            int
	Dim            int
	Half           int
	TableRows      int
	Type           DType // of in and out: F32, F16, BF16
	Mode           RoPEMode
}

// KVWriteArgs is vb_kv_write_args.
type KVWriteArgs struct {
	K         Ptr // [batch][kv_heads][capacity][dim], or at least [kv_heads][capacity][dim] where sequences
	V         Ptr // [batch][kv_heads][capacity][value_dim ?: dim], or at least [kv_heads][capacity][value_dim ?: dim] where sequences, or NULL
	KIn       Ptr // [batch][seq][kv_heads][dim]
	VIn       Ptr // [batch][seq][kv_heads][value_dim ?: dim], or NULL
	Positions Ptr // [batch][seq]
	Sequences Ptr // [batch], or NULL for 0, 1, ...
	Batch     int
	Seq       int
	KVHeads   int
	Dim       int
	Capacity  int
	Type      DType // of the cache: F32, F16, BF16, Q8_0
	ValueDim  int   // of rows of v and v_in; 0 stands for dim
	Ring      bool
}

// RoPEKVWriteArgs is vb_rope_kv_write_args.
type RoPEKVWriteArgs struct {
	Q         Ptr // [batch][seq][heads][dim]
	K         Ptr // [batch][kv_heads][capacity][dim] of kv_type, or at least [kv_heads][capacity][dim] where sequences
	V         Ptr // [batch][kv_heads][capacity][dim] of kv_type, or at least [kv_heads][capacity][dim] where sequences
	KNew      Ptr // [batch][seq][kv_heads][dim]
	QIn       Ptr // [batch][seq][heads][dim]
	VNew      Ptr // [batch][seq][kv_heads][dim]
	QNorm     Ptr // [dim], or NULL for none
	KNorm     Ptr // [dim], or NULL for none
	Cos       Ptr // [table_rows][half], as in vb_rope_args
	Sin       Ptr // [table_rows][half], as in vb_rope_args
	Positions Ptr // [batch][seq]
	Sequences Ptr // [batch], or NULL for 0, 1, ...
	Batch     int
	Seq       int
	Heads     int
	KVHeads   int
	Dim       int
	Half      int
	TableRows int
	Capacity  int
	Eps       float32
	KVType    DType // of the cache: F32, F16, BF16, Q8_0
	Mode      RoPEMode
	Ring      bool // of the cache, as in vb_kv_write_args
	Settled   bool // the op before writes neither positions, sequences nor tables, which may be read while it still runs
}

// AttentionArgs is vb_attention_args.
type AttentionArgs struct {
	Out          Ptr // [batch][seq][heads][value_dim ?: dim]
	Q            Ptr // [batch : q_batch_stride][heads : q_head_stride][seq : q_row_stride][dim]
	K            Ptr // [batch][kv_heads][kv_capacity][dim] of kv_type, or at least [kv_heads][kv_capacity][dim] where sequences
	V            Ptr // [batch][kv_heads][kv_capacity][value_dim] of kv_type, or at least [kv_heads][kv_capacity][value_dim] where sequences, or NULL
	Positions    Ptr // [batch][seq], or NULL for offset, offset + 1, ...
	Sequences    Ptr // [batch], or NULL for 0, 1, ...
	Batch        int
	Seq          int
	Heads        int
	KVHeads      int
	Dim          int
	QBatchStride int
	QHeadStride  int
	QRowStride   int
	KVCapacity   int
	KVLen        int
	Offset       int
	Window       int
	Scale        float32
	Causal       bool
	Type         DType   // of q and out: F32 (F16, BF16 with kv_type the same)
	KVType       DType   // F32, F16, BF16, Q8_0 (dim a multiple of 32; fastest where capacity is one of 8)
	Settled      bool    // the op before writes neither positions nor sequences, and no keys and values but those at the positions of these tokens: others may be read while it still runs
	ValueDim     int     // of v's rows; 0 stands for dim
	Chunk        int     // 0 for none
	Sinks        Ptr     // [heads], or NULL for none
	SoftCap      float32 // 0 for none
	Ring         bool
}

// CausalConvArgs is vb_causal_conv_args.
type CausalConvArgs struct {
	Out       Ptr // [batch][seq][channels]
	State     Ptr // [batch][slots ?: 1][taps - 1][channels], or at least [slots ?: 1][taps - 1][channels] where sequences
	X         Ptr // [batch][seq][channels]
	Weight    Ptr // [channels][taps]
	Sequences Ptr // [batch], or NULL for 0, 1, ...; no sequence twice
	Batch     int
	Seq       int
	Channels  int
	Taps      int
	Positions Ptr // [batch][seq], or NULL for none
	Slots     int // of a sequence; 0 stands for 1, other numbers take positions
}

// GatedDeltaArgs is vb_gated_delta_args.
type GatedDeltaArgs struct {
	Out         Ptr // [batch][seq][value_heads][value_dim]
	State       Ptr // [batch][slots ?: 1][value_heads][key_dim][value_dim], or at least [slots ?: 1][value_heads][key_dim][value_dim] where sequences
	QKV         Ptr // [batch][seq][2 * key_heads * key_dim + value_heads * value_dim]
	Alpha       Ptr // [batch][seq][value_heads]
	Beta        Ptr // [batch][seq][value_heads]
	A           Ptr // [value_heads]
	Dt          Ptr // [value_heads]
	Sequences   Ptr // [batch], or NULL for 0, 1, ...; no sequence twice
	Batch       int
	Seq         int
	KeyHeads    int
	ValueHeads  int
	KeyDim      int
	ValueDim    int
	Eps         float32
	Interleaved bool
	Positions   Ptr // [batch][seq], or NULL for none
	Slots       int // of a sequence; 0 stands for 1, other numbers take positions
}

// FeedForwardArgs is vb_feed_forward_args.
type FeedForwardArgs struct {
	Sum          Ptr // [n][gate.cols]
	X            Ptr // [n][gate.cols], or NULL where prepared: sum is then without it, and next_norm promises what it does without a in vb_attention_linear_add
	Norm         Ptr // [gate.cols], or NULL for ones
	Gate         Weight
	Up           Weight
	Down         Weight
	Normed       Ptr // [n][gate.cols]
	Gated        Ptr // [n][gate.rows]
	Product      Ptr // [n][gate.rows]
	N            int
	Eps          float32
	NextNorm     Ptr  // [gate.cols], that of vb_norm_qkv, or NULL for none
	NextPrepared bool // set by the operation; NULL for nobody who asks
	Prepared     bool // by vb_attention_linear_add
	GateV        Ptr  // [ranks][gate.cols] of VB_F16, or NULL for none
	UpV          Ptr  // [ranks][gate.cols] of VB_F16, or NULL for none
	GateU        Ptr  // [gate.rows][ranks] of VB_F16, or NULL for none
	UpU          Ptr  // [gate.rows][ranks] of VB_F16, or NULL for none
	DownV        Ptr  // [ranks][gate.rows] of VB_F16, or NULL for none
	DownU        Ptr  // [gate.cols][ranks] of VB_F16, or NULL for none
	Codes        Ptr  // [n : codes_stride][ranks], or NULL for ones
	CodesStride  int
	Ranks        int
	NextQV       Ptr // [ranks][gate.cols] of VB_F16, or NULL for none
	NextKV       Ptr // [ranks][gate.cols] of VB_F16, or NULL for none
	NextVV       Ptr // [ranks][gate.cols] of VB_F16, or NULL for none
}

// ExpertFeedForwardArgs is vb_expert_feed_forward_args.
type ExpertFeedForwardArgs struct {
	Sum        Ptr    // [n][gate.cols]
	Add        Ptr    // [n][gate.cols], or NULL for none
	X          Ptr    // [n][gate.cols]
	Gate       Weight // of the first expert
	Up         Weight // of the first expert
	Down       Weight // of the first expert
	GateBias   Ptr    // [experts][gate.rows], or NULL for none
	UpBias     Ptr    // [experts][gate.rows], or NULL for none
	DownBias   Ptr    // [experts][gate.cols], or NULL for none
	IDs        Ptr    // [n][k]
	Weights    Ptr    // [n][k], or NULL for ones
	Gated      Ptr    // [n][k][gate.rows]
	Product    Ptr    // [n][k][gate.rows]
	Chosen     Ptr    // [n][k][gate.cols]
	N          int
	K          int
	Experts    int
	Activation Activation
	Alpha      float32 // as vb_glu
	Limit      float32 // as vb_glu
}

// NormRouteArgs is vb_norm_route_args.
type NormRouteArgs struct {
	IDs         Ptr    // [n][k]
	Weights     Ptr    // [n][k]
	Normed      Ptr    // [n][router.cols]
	Logits      Ptr    // [n][router.rows]
	X           Ptr    // [n][router.cols]
	Norm        Ptr    // [router.cols], or NULL for ones
	Router      Weight // a row for each expert
	RouterBias  Ptr    // [router.rows], or NULL for none
	Bias        Ptr    // [router.rows], or NULL for none
	N           int
	K           int
	Groups      int // 0: none
	GroupsUsed  int // 0: none
	Eps         float32
	Scale       float32
	Gating      Gating
	Normalized  bool
	GroupByBest bool
}

// NormQKVArgs is vb_norm_qkv_args.
type NormQKVArgs struct {
	Q           Ptr // [batch][seq][heads][dim]
	K           Ptr // [batch][kv_heads][capacity][dim] of kv_type, or at least [kv_heads][capacity][dim] where sequences
	V           Ptr // [batch][kv_heads][capacity][dim] of kv_type, or at least [kv_heads][capacity][dim] where sequences
	X           Ptr // [batch][seq][wq.cols]
	Norm        Ptr // [wq.cols], or NULL for ones
	WQ          Weight
	WK          Weight
	WV          Weight
	BQ          Ptr // [wq.rows], or NULL for none
	BK          Ptr // [wk.rows], or NULL for none
	BV          Ptr // [wv.rows], or NULL for none
	QNorm       Ptr // [dim], or NULL for none
	KNorm       Ptr // [dim], or NULL for none
	Cos         Ptr // [table_rows][half], as in vb_rope_args
	Sin         Ptr // [table_rows][half], as in vb_rope_args
	Positions   Ptr // [batch][seq]
	Sequences   Ptr // [batch], or NULL for 0, 1, ...
	Normed      Ptr // [batch][seq][wq.cols]
	KNew        Ptr // [batch][seq][kv_heads][dim]
	VNew        Ptr // [batch][seq][kv_heads][dim]
	Batch       int
	Seq         int
	Heads       int
	KVHeads     int
	Dim         int
	Half        int
	TableRows   int
	Capacity    int
	Eps         float32
	KVType      DType // of the cache: F32, F16, BF16, Q8_0
	Mode        RoPEMode
	Prepared    bool // by vb_feed_forward
	Ring        bool // of the cache, as in vb_kv_write_args
	QV          Ptr  // [ranks][wq.cols] of VB_F16, or NULL for none
	KV          Ptr  // [ranks][wq.cols] of VB_F16, or NULL for none
	VV          Ptr  // [ranks][wq.cols] of VB_F16, or NULL for none
	QU          Ptr  // [wq.rows][ranks] of VB_F16, or NULL for none
	KU          Ptr  // [wk.rows][ranks] of VB_F16, or NULL for none
	VU          Ptr  // [wk.rows][ranks] of VB_F16, or NULL for none
	Codes       Ptr  // [batch * seq : codes_stride][ranks], or NULL for ones
	CodesStride int
	Ranks       int
}

// UpdateArgs is vb_update_args.
type UpdateArgs struct {
	V           Ptr // [ranks][cols] of VB_F16, or NULL for none
	U           Ptr // [rows][ranks] of VB_F16, or NULL for none
	Codes       Ptr // [n : codes_stride][ranks], or NULL for ones
	N           int
	Rows        int
	Cols        int
	Ranks       int
	CodesStride int
	NextGateV   Ptr // [ranks][rows] of VB_F16, or NULL for none
	NextUpV     Ptr // [ranks][rows] of VB_F16, or NULL for none
}

// Kernels are the operations, enqueued in the order of their stream: see vibrant.h for what each computes.
type Kernels interface {
	// Element-wise.

	Add(out, a, b Ptr, t DType, n int) error
	Mul(out, a, b Ptr, t DType, n int) error
	MulScalar(out, a Ptr, scalar float32, t DType, n int) error
	SiLU(out, a Ptr, t DType, n int) error
	GELU(out, a Ptr, t DType, n int) error
	GELUTanh(out, a Ptr, t DType, n int) error
	SwiGLU(out, gate, up Ptr, t DType, n int) error
	GLU(out, gate, up Ptr, activation Activation, alpha, limit float32, t DType, n int) error
	Sigmoid(out, a Ptr, t DType, n int) error
	SoftCap(out, a Ptr, cap float32, t DType, n int) error
	Copy(out, in Ptr, t DType, n int) error
	Convert(out Ptr, outType DType, in Ptr, inType DType, n int) error
	IncrementI32(x Ptr, n int) error

	// Rows.

	Softmax(out, in Ptr, t DType, rows, cols int) error
	RMSNorm(out, in, weight Ptr, t DType, rows, cols int, eps float32) error
	LayerNorm(out, in, weight, bias Ptr, t DType, rows, cols int, eps float32) error
	AddRMSNorm(sum, out, a, b, weight Ptr, t DType, rows, cols int, eps float32) error
	MulRows(out, a, factors Ptr, t DType, rows, cols int) error
	CopyColumns(out Ptr, outCols, outFirst int, in Ptr, inCols, inFirst int, t DType, rows, cols int) error
	Argmax(out, in Ptr, rows, cols int) error
	TopK(values, ids, in Ptr, rows, cols, k int) error

	// Arrays with strides.

	Map(args *MapArgs) error
	Reduce(args *ReduceArgs) error
	CumSum(out, in Ptr, t DType, rows, n, cols int) error
	Sort(args *SortArgs) error
	Index(args *IndexArgs) error

	// Matrices.

	MatMul(args *MatMulArgs) error
	MatMulSingleRow(c, a, b Ptr, t DType, k, n int) error
	WeightPack(out Ptr, w Weight) error
	Linear(y, x Ptr, w Weight, bias Ptr, n int) error
	Embedding(out Ptr, table Weight, ids Ptr, n int) error

	// Adapters.

	FusedUpdate(args *FusedUpdateArgs) error

	// Ternary weights.

	NormQuantize(args *NormQuantizeArgs) error
	DequantizeRows(out, codes, scales Ptr, rows, cols int) error
	W2A8GEMV(args *W2A8GEMVArgs) error
	BitLinear(args *BitLinearArgs) error
	TMACLUT(lut, activations Ptr, k, n int) error
	TMACMatMul(args *TMACMatMulArgs) error

	// Mixtures of experts.

	Route(args *RouteArgs) error
	ExpertLinear(args *ExpertLinearArgs) error
	ExpertSum(out, add, y, weights Ptr, n, k, cols int) error

	// Transformers.

	RoPE(args *RoPEArgs) error
	KVWrite(args *KVWriteArgs) error
	RoPEKVWrite(args *RoPEKVWriteArgs) error
	Attention(args *AttentionArgs) error

	// Recurrences.

	CausalConv(args *CausalConvArgs) error
	GatedDelta(args *GatedDeltaArgs) error

	// Fused.

	NormLinear(y, x, norm Ptr, eps float32, w Weight, bias, normed Ptr, n int) error
	NormSwiGLU(out, x, norm Ptr, eps float32, gate, up Weight, normed, product Ptr, n int) error
	LinearAdd(sum, a, x Ptr, w Weight, bias, product Ptr, n int) error
	FeedForward(args *FeedForwardArgs) error
	ExpertFeedForward(args *ExpertFeedForwardArgs) error
	NormRoute(args *NormRouteArgs) error
	NormQKV(args *NormQKVArgs) error
	AttentionLinearAdd(sum, a Ptr, attention *AttentionArgs, w Weight, bias Ptr, update *UpdateArgs, product, nextNorm, normed Ptr) (nextPrepared bool, err error)
}
