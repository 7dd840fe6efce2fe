// Code generated from csrc/vibrant.h by internal/backend/generate. DO NOT EDIT.

//go:build linux && (amd64 || arm64) && !nodlopen

package dynamic

import (
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// What vb_version and vb_call_abi return of a library that these calls fit.
const (
	version = "0.1.0"
	abi     = 7147470196127032268
)

type cMapArgs struct {
	size    uintptr
	out     cView
	in      [kernel.MaxInputs]cView
	sizes   [kernel.MaxDims]int64
	program [kernel.MaxSteps]cStep
	rank    int64
	inputs  int64
	steps   int64
}

func asMapArgs(a *kernel.MapArgs) cMapArgs {
	return cMapArgs{
		size:    unsafe.Sizeof(cMapArgs{}),
		out:     asView(a.Out),
		in:      asViews(a.In),
		sizes:   asNumbers(a.Sizes),
		program: asSteps(a.Program),
		rank:    int64(a.Rank),
		inputs:  int64(a.Inputs),
		steps:   int64(a.Steps),
	}
}

type cReduceArgs struct {
	size      uintptr
	out       cView
	in        cView
	sizes     [kernel.MaxDims]int64
	rank      int64
	reduced   int64
	reduction int32
	parameter float32
}

func asReduceArgs(a *kernel.ReduceArgs) cReduceArgs {
	return cReduceArgs{
		size:      unsafe.Sizeof(cReduceArgs{}),
		out:       asView(a.Out),
		in:        asView(a.In),
		sizes:     asNumbers(a.Sizes),
		rank:      int64(a.Rank),
		reduced:   int64(a.Reduced),
		reduction: int32(a.Reduction),
		parameter: float32(a.Parameter),
	}
}

type cSortArgs struct {
	size       uintptr
	values     cView
	indices    cView
	in         cView
	sizes      [kernel.MaxDims]int64
	outSizes   [kernel.MaxDims]int64
	rank       int64
	dim        int64
	descending int32
}

func asSortArgs(a *kernel.SortArgs) cSortArgs {
	return cSortArgs{
		size:       unsafe.Sizeof(cSortArgs{}),
		values:     asView(a.Values),
		indices:    asView(a.Indices),
		in:         asView(a.In),
		sizes:      asNumbers(a.Sizes),
		outSizes:   asNumbers(a.OutSizes),
		rank:       int64(a.Rank),
		dim:        int64(a.Dim),
		descending: truth(a.Descending),
	}
}

type cIndexArgs struct {
	size     uintptr
	out      cView
	in       cView
	ids      cView
	outSizes [kernel.MaxDims]int64
	inSizes  [kernel.MaxDims]int64
	idsSizes [kernel.MaxDims]int64
	rank     int64
	dim      int64
	indexing int32
}

func asIndexArgs(a *kernel.IndexArgs) cIndexArgs {
	return cIndexArgs{
		size:     unsafe.Sizeof(cIndexArgs{}),
		out:      asView(a.Out),
		in:       asView(a.In),
		ids:      asView(a.IDs),
		outSizes: asNumbers(a.OutSizes),
		inSizes:  asNumbers(a.InSizes),
		idsSizes: asNumbers(a.IDsSizes),
		rank:     int64(a.Rank),
		dim:      int64(a.Dim),
		indexing: int32(a.Indexing),
	}
}

type cMatMulArgs struct {
	size         uintptr
	c            kernel.Ptr
	a            kernel.Ptr
	b            kernel.Ptr
	m            int64
	k            int64
	n            int64
	batch        int64
	aStride      int64
	bStride      int64
	cStride      int64
	aBatchStride int64
	bBatchStride int64
	cBatchStride int64
	aTransposed  int32
	bTransposed  int32
	t            int32
	precision    int32
}

func asMatMulArgs(a *kernel.MatMulArgs) cMatMulArgs {
	return cMatMulArgs{
		size:         unsafe.Sizeof(cMatMulArgs{}),
		c:            a.C,
		a:            a.A,
		b:            a.B,
		m:            int64(a.M),
		k:            int64(a.K),
		n:            int64(a.N),
		batch:        int64(a.Batch),
		aStride:      int64(a.AStride),
		bStride:      int64(a.BStride),
		cStride:      int64(a.CStride),
		aBatchStride: int64(a.ABatchStride),
		bBatchStride: int64(a.BBatchStride),
		cBatchStride: int64(a.CBatchStride),
		aTransposed:  truth(a.ATransposed),
		bTransposed:  truth(a.BTransposed),
		t:            int32(a.Type),
		precision:    int32(a.Precision),
	}
}

type cFusedUpdateArgs struct {
	size        uintptr
	out         kernel.Ptr
	add         kernel.Ptr
	x           kernel.Ptr
	v           kernel.Ptr
	codes       kernel.Ptr
	u           kernel.Ptr
	m           int64
	k           int64
	n           int64
	r           int64
	codesStride int64
	scale       float32
	t           int32
	weightType  int32
	vTransposed int32
	uTransposed int32
}

func asFusedUpdateArgs(a *kernel.FusedUpdateArgs) cFusedUpdateArgs {
	return cFusedUpdateArgs{
		size:        unsafe.Sizeof(cFusedUpdateArgs{}),
		out:         a.Out,
		add:         a.Add,
		x:           a.X,
		v:           a.V,
		codes:       a.Codes,
		u:           a.U,
		m:           int64(a.M),
		k:           int64(a.K),
		n:           int64(a.N),
		r:           int64(a.R),
		codesStride: int64(a.CodesStride),
		scale:       float32(a.Scale),
		t:           int32(a.Type),
		weightType:  int32(a.WeightType),
		vTransposed: truth(a.VTransposed),
		uTransposed: truth(a.UTransposed),
	}
}

type cNormQuantizeArgs struct {
	size       uintptr
	codes      kernel.Ptr
	scales     kernel.Ptr
	in         kernel.Ptr
	up         kernel.Ptr
	norm       kernel.Ptr
	rows       int64
	cols       int64
	activation int32
	eps        float32
	normed     int32
}

func asNormQuantizeArgs(a *kernel.NormQuantizeArgs) cNormQuantizeArgs {
	return cNormQuantizeArgs{
		size:       unsafe.Sizeof(cNormQuantizeArgs{}),
		codes:      a.Codes,
		scales:     a.Scales,
		in:         a.In,
		up:         a.Up,
		norm:       a.Norm,
		rows:       int64(a.Rows),
		cols:       int64(a.Cols),
		activation: int32(a.Activation),
		eps:        float32(a.Eps),
		normed:     truth(a.Normed),
	}
}

type cW2A8GEMVArgs struct {
	size             uintptr
	out              kernel.Ptr
	weights          kernel.Ptr
	activations      kernel.Ptr
	activationScales kernel.Ptr
	weightScales     kernel.Ptr
	segmentEnds      kernel.Ptr
	bias             kernel.Ptr
	add              kernel.Ptr
	m                int64
	n                int64
	k                int64
	segments         int64
	rowBytes         int64
	layout           int32
	outType          int32
	settled          int32
	threads          int64
	lanes            int64
	tile             int64
	persistent       int32
	withoutDP4A      int32
	narrow           int32
}

func asW2A8GEMVArgs(a *kernel.W2A8GEMVArgs) cW2A8GEMVArgs {
	return cW2A8GEMVArgs{
		size:             unsafe.Sizeof(cW2A8GEMVArgs{}),
		out:              a.Out,
		weights:          a.Weights,
		activations:      a.Activations,
		activationScales: a.ActivationScales,
		weightScales:     a.WeightScales,
		segmentEnds:      a.SegmentEnds,
		bias:             a.Bias,
		add:              a.Add,
		m:                int64(a.M),
		n:                int64(a.N),
		k:                int64(a.K),
		segments:         int64(a.Segments),
		rowBytes:         int64(a.RowBytes),
		layout:           int32(a.Layout),
		outType:          int32(a.OutType),
		settled:          truth(a.Settled),
		threads:          int64(a.Threads),
		lanes:            int64(a.Lanes),
		tile:             int64(a.Tile),
		persistent:       truth(a.Persistent),
		withoutDP4A:      truth(a.WithoutDP4A),
		narrow:           truth(a.Narrow),
	}
}

type cBitLinearArgs struct {
	size          uintptr
	out           kernel.Ptr
	out2          kernel.Ptr
	out3          kernel.Ptr
	codes         kernel.Ptr
	scales        kernel.Ptr
	in            kernel.Ptr
	up            kernel.Ptr
	norm          kernel.Ptr
	add           kernel.Ptr
	weights       kernel.Ptr
	weights2      kernel.Ptr
	weights3      kernel.Ptr
	weightScales  kernel.Ptr
	weightScales2 kernel.Ptr
	weightScales3 kernel.Ptr
	m             int64
	n             int64
	n2            int64
	n3            int64
	k             int64
	segments      int64
	segments2     int64
	segments3     int64
	rowBytes      int64
	layout        int32
	activation    int32
	eps           float32
	normed        int32
	settled       int32
}

func asBitLinearArgs(a *kernel.BitLinearArgs) cBitLinearArgs {
	return cBitLinearArgs{
		size:          unsafe.Sizeof(cBitLinearArgs{}),
		out:           a.Out,
		out2:          a.Out2,
		out3:          a.Out3,
		codes:         a.Codes,
		scales:        a.Scales,
		in:            a.In,
		up:            a.Up,
		norm:          a.Norm,
		add:           a.Add,
		weights:       a.Weights,
		weights2:      a.Weights2,
		weights3:      a.Weights3,
		weightScales:  a.WeightScales,
		weightScales2: a.WeightScales2,
		weightScales3: a.WeightScales3,
		m:             int64(a.M),
		n:             int64(a.N),
		n2:            int64(a.N2),
		n3:            int64(a.N3),
		k:             int64(a.K),
		segments:      int64(a.Segments),
		segments2:     int64(a.Segments2),
		segments3:     int64(a.Segments3),
		rowBytes:      int64(a.RowBytes),
		layout:        int32(a.Layout),
		activation:    int32(a.Activation),
		eps:           float32(a.Eps),
		normed:        truth(a.Normed),
		settled:       truth(a.Settled),
	}
}

type cTMACMatMulArgs struct {
	size        uintptr
	out         kernel.Ptr
	weights     kernel.Ptr
	activations kernel.Ptr
	lut         kernel.Ptr
	scales      kernel.Ptr
	norm        kernel.Ptr
	m           int64
	n           int64
	k           int64
	groups      int64
	eps         float32
	normed      int32
	settled     int32
}

func asTMACMatMulArgs(a *kernel.TMACMatMulArgs) cTMACMatMulArgs {
	return cTMACMatMulArgs{
		size:        unsafe.Sizeof(cTMACMatMulArgs{}),
		out:         a.Out,
		weights:     a.Weights,
		activations: a.Activations,
		lut:         a.LUT,
		scales:      a.Scales,
		norm:        a.Norm,
		m:           int64(a.M),
		n:           int64(a.N),
		k:           int64(a.K),
		groups:      int64(a.Groups),
		eps:         float32(a.Eps),
		normed:      truth(a.Normed),
		settled:     truth(a.Settled),
	}
}

type cRouteArgs struct {
	size        uintptr
	ids         kernel.Ptr
	weights     kernel.Ptr
	logits      kernel.Ptr
	bias        kernel.Ptr
	n           int64
	experts     int64
	k           int64
	groups      int64
	groupsUsed  int64
	scale       float32
	gating      int32
	normalized  int32
	groupByBest int32
}

func asRouteArgs(a *kernel.RouteArgs) cRouteArgs {
	return cRouteArgs{
		size:        unsafe.Sizeof(cRouteArgs{}),
		ids:         a.IDs,
		weights:     a.Weights,
		logits:      a.Logits,
		bias:        a.Bias,
		n:           int64(a.N),
		experts:     int64(a.Experts),
		k:           int64(a.K),
		groups:      int64(a.Groups),
		groupsUsed:  int64(a.GroupsUsed),
		scale:       float32(a.Scale),
		gating:      int32(a.Gating),
		normalized:  truth(a.Normalized),
		groupByBest: truth(a.GroupByBest),
	}
}

type cExpertLinearArgs struct {
	size       uintptr
	y          kernel.Ptr
	x          kernel.Ptr
	w          cWeight
	bias       kernel.Ptr
	ids        kernel.Ptr
	n          int64
	k          int64
	experts    int64
	xPerChoice int32
}

func asExpertLinearArgs(a *kernel.ExpertLinearArgs) cExpertLinearArgs {
	return cExpertLinearArgs{
		size:       unsafe.Sizeof(cExpertLinearArgs{}),
		y:          a.Y,
		x:          a.X,
		w:          asWeight(a.W),
		bias:       a.Bias,
		ids:        a.IDs,
		n:          int64(a.N),
		k:          int64(a.K),
		experts:    int64(a.Experts),
		xPerChoice: truth(a.XPerChoice),
	}
}

type cRoPEArgs struct {
	size           uintptr
	out            kernel.Ptr
	in             kernel.Ptr
	cos            kernel.Ptr
	sin            kernel.Ptr
	positions      kernel.Ptr
	positionStride int64
	batch          int64
	heads          int64
	seq            int64
	dim            int64
	half           int64
	tableRows      int64
	t              int32
	mode           int32
}

func asRoPEArgs(a *kernel.RoPEArgs) cRoPEArgs {
	return cRoPEArgs{
		size:           unsafe.Sizeof(cRoPEArgs{}),
		out:            a.Out,
		in:             a.In,
		cos:            a.Cos,
		sin:            a.Sin,
		positions:      a.Positions,
		positionStride: int64(a.PositionStride),
		batch:          int64(a.Batch),
		heads:          int64(a.Heads),
		seq:            int64(a.Seq),
		dim:            int64(a.Dim),
		half:           int64(a.Half),
		tableRows:      int64(a.TableRows),
		t:              int32(a.Type),
		mode:           int32(a.Mode),
	}
}

type cKVWriteArgs struct {
	size      uintptr
	k         kernel.Ptr
	v         kernel.Ptr
	kIn       kernel.Ptr
	vIn       kernel.Ptr
	positions kernel.Ptr
	sequences kernel.Ptr
	batch     int64
	seq       int64
	kvHeads   int64
	dim       int64
	capacity  int64
	t         int32
	valueDim  int64
	ring      int32
}

func asKVWriteArgs(a *kernel.KVWriteArgs) cKVWriteArgs {
	return cKVWriteArgs{
		size:      unsafe.Sizeof(cKVWriteArgs{}),
		k:         a.K,
		v:         a.V,
		kIn:       a.KIn,
		vIn:       a.VIn,
		positions: a.Positions,
		sequences: a.Sequences,
		batch:     int64(a.Batch),
		seq:       int64(a.Seq),
		kvHeads:   int64(a.KVHeads),
		dim:       int64(a.Dim),
		capacity:  int64(a.Capacity),
		t:         int32(a.Type),
		valueDim:  int64(a.ValueDim),
		ring:      truth(a.Ring),
	}
}

type cRoPEKVWriteArgs struct {
	size      uintptr
	q         kernel.Ptr
	k         kernel.Ptr
	v         kernel.Ptr
	kNew      kernel.Ptr
	qIn       kernel.Ptr
	vNew      kernel.Ptr
	qNorm     kernel.Ptr
	kNorm     kernel.Ptr
	cos       kernel.Ptr
	sin       kernel.Ptr
	positions kernel.Ptr
	sequences kernel.Ptr
	batch     int64
	seq       int64
	heads     int64
	kvHeads   int64
	dim       int64
	half      int64
	tableRows int64
	capacity  int64
	eps       float32
	kvType    int32
	mode      int32
	ring      int32
	settled   int32
}

func asRoPEKVWriteArgs(a *kernel.RoPEKVWriteArgs) cRoPEKVWriteArgs {
	return cRoPEKVWriteArgs{
		size:      unsafe.Sizeof(cRoPEKVWriteArgs{}),
		q:         a.Q,
		k:         a.K,
		v:         a.V,
		kNew:      a.KNew,
		qIn:       a.QIn,
		vNew:      a.VNew,
		qNorm:     a.QNorm,
		kNorm:     a.KNorm,
		cos:       a.Cos,
		sin:       a.Sin,
		positions: a.Positions,
		sequences: a.Sequences,
		batch:     int64(a.Batch),
		seq:       int64(a.Seq),
		heads:     int64(a.Heads),
		kvHeads:   int64(a.KVHeads),
		dim:       int64(a.Dim),
		half:      int64(a.Half),
		tableRows: int64(a.TableRows),
		capacity:  int64(a.Capacity),
		eps:       float32(a.Eps),
		kvType:    int32(a.KVType),
		mode:      int32(a.Mode),
		ring:      truth(a.Ring),
		settled:   truth(a.Settled),
	}
}

type cAttentionArgs struct {
	size         uintptr
	out          kernel.Ptr
	q            kernel.Ptr
	k            kernel.Ptr
	v            kernel.Ptr
	positions    kernel.Ptr
	sequences    kernel.Ptr
	batch        int64
	seq          int64
	heads        int64
	kvHeads      int64
	dim          int64
	qBatchStride int64
	qHeadStride  int64
	qRowStride   int64
	kvCapacity   int64
	kvLen        int64
	offset       int64
	window       int64
	scale        float32
	causal       int32
	t            int32
	kvType       int32
	settled      int32
	valueDim     int64
	chunk        int64
	sinks        kernel.Ptr
	softCap      float32
	ring         int32
}

func asAttentionArgs(a *kernel.AttentionArgs) cAttentionArgs {
	return cAttentionArgs{
		size:         unsafe.Sizeof(cAttentionArgs{}),
		out:          a.Out,
		q:            a.Q,
		k:            a.K,
		v:            a.V,
		positions:    a.Positions,
		sequences:    a.Sequences,
		batch:        int64(a.Batch),
		seq:          int64(a.Seq),
		heads:        int64(a.Heads),
		kvHeads:      int64(a.KVHeads),
		dim:          int64(a.Dim),
		qBatchStride: int64(a.QBatchStride),
		qHeadStride:  int64(a.QHeadStride),
		qRowStride:   int64(a.QRowStride),
		kvCapacity:   int64(a.KVCapacity),
		kvLen:        int64(a.KVLen),
		offset:       int64(a.Offset),
		window:       int64(a.Window),
		scale:        float32(a.Scale),
		causal:       truth(a.Causal),
		t:            int32(a.Type),
		kvType:       int32(a.KVType),
		settled:      truth(a.Settled),
		valueDim:     int64(a.ValueDim),
		chunk:        int64(a.Chunk),
		sinks:        a.Sinks,
		softCap:      float32(a.SoftCap),
		ring:         truth(a.Ring),
	}
}

type cCausalConvArgs struct {
	size      uintptr
	out       kernel.Ptr
	state     kernel.Ptr
	x         kernel.Ptr
	weight    kernel.Ptr
	sequences kernel.Ptr
	batch     int64
	seq       int64
	channels  int64
	taps      int64
	positions kernel.Ptr
	slots     int64
}

func asCausalConvArgs(a *kernel.CausalConvArgs) cCausalConvArgs {
	return cCausalConvArgs{
		size:      unsafe.Sizeof(cCausalConvArgs{}),
		out:       a.Out,
		state:     a.State,
		x:         a.X,
		weight:    a.Weight,
		sequences: a.Sequences,
		batch:     int64(a.Batch),
		seq:       int64(a.Seq),
		channels:  int64(a.Channels),
		taps:      int64(a.Taps),
		positions: a.Positions,
		slots:     int64(a.Slots),
	}
}

type cGatedDeltaArgs struct {
	size        uintptr
	out         kernel.Ptr
	state       kernel.Ptr
	qkv         kernel.Ptr
	alpha       kernel.Ptr
	beta        kernel.Ptr
	a           kernel.Ptr
	dt          kernel.Ptr
	sequences   kernel.Ptr
	batch       int64
	seq         int64
	keyHeads    int64
	valueHeads  int64
	keyDim      int64
	valueDim    int64
	eps         float32
	interleaved int32
	positions   kernel.Ptr
	slots       int64
}

func asGatedDeltaArgs(a *kernel.GatedDeltaArgs) cGatedDeltaArgs {
	return cGatedDeltaArgs{
		size:        unsafe.Sizeof(cGatedDeltaArgs{}),
		out:         a.Out,
		state:       a.State,
		qkv:         a.QKV,
		alpha:       a.Alpha,
		beta:        a.Beta,
		a:           a.A,
		dt:          a.Dt,
		sequences:   a.Sequences,
		batch:       int64(a.Batch),
		seq:         int64(a.Seq),
		keyHeads:    int64(a.KeyHeads),
		valueHeads:  int64(a.ValueHeads),
		keyDim:      int64(a.KeyDim),
		valueDim:    int64(a.ValueDim),
		eps:         float32(a.Eps),
		interleaved: truth(a.Interleaved),
		positions:   a.Positions,
		slots:       int64(a.Slots),
	}
}

type cFeedForwardArgs struct {
	size         uintptr
	sum          kernel.Ptr
	x            kernel.Ptr
	norm         kernel.Ptr
	gate         cWeight
	up           cWeight
	down         cWeight
	normed       kernel.Ptr
	gated        kernel.Ptr
	product      kernel.Ptr
	n            int64
	eps          float32
	nextNorm     kernel.Ptr
	nextPrepared kernel.Ptr
	prepared     int32
	gateV        kernel.Ptr
	upV          kernel.Ptr
	gateU        kernel.Ptr
	upU          kernel.Ptr
	downV        kernel.Ptr
	downU        kernel.Ptr
	codes        kernel.Ptr
	codesStride  int64
	ranks        int64
	nextQV       kernel.Ptr
	nextKV       kernel.Ptr
	nextVV       kernel.Ptr
}

func asFeedForwardArgs(a *kernel.FeedForwardArgs) cFeedForwardArgs {
	return cFeedForwardArgs{
		size:        unsafe.Sizeof(cFeedForwardArgs{}),
		sum:         a.Sum,
		x:           a.X,
		norm:        a.Norm,
		gate:        asWeight(a.Gate),
		up:          asWeight(a.Up),
		down:        asWeight(a.Down),
		normed:      a.Normed,
		gated:       a.Gated,
		product:     a.Product,
		n:           int64(a.N),
		eps:         float32(a.Eps),
		nextNorm:    a.NextNorm,
		prepared:    truth(a.Prepared),
		gateV:       a.GateV,
		upV:         a.UpV,
		gateU:       a.GateU,
		upU:         a.UpU,
		downV:       a.DownV,
		downU:       a.DownU,
		codes:       a.Codes,
		codesStride: int64(a.CodesStride),
		ranks:       int64(a.Ranks),
		nextQV:      a.NextQV,
		nextKV:      a.NextKV,
		nextVV:      a.NextVV,
	}
}

type cExpertFeedForwardArgs struct {
	size       uintptr
	sum        kernel.Ptr
	add        kernel.Ptr
	x          kernel.Ptr
	gate       cWeight
	up         cWeight
	down       cWeight
	gateBias   kernel.Ptr
	upBias     kernel.Ptr
	downBias   kernel.Ptr
	ids        kernel.Ptr
	weights    kernel.Ptr
	gated      kernel.Ptr
	product    kernel.Ptr
	chosen     kernel.Ptr
	n          int64
	k          int64
	experts    int64
	activation int32
	alpha      float32
	limit      float32
}

func asExpertFeedForwardArgs(a *kernel.ExpertFeedForwardArgs) cExpertFeedForwardArgs {
	return cExpertFeedForwardArgs{
		size:       unsafe.Sizeof(cExpertFeedForwardArgs{}),
		sum:        a.Sum,
		add:        a.Add,
		x:          a.X,
		gate:       asWeight(a.Gate),
		up:         asWeight(a.Up),
		down:       asWeight(a.Down),
		gateBias:   a.GateBias,
		upBias:     a.UpBias,
		downBias:   a.DownBias,
		ids:        a.IDs,
		weights:    a.Weights,
		gated:      a.Gated,
		product:    a.Product,
		chosen:     a.Chosen,
		n:          int64(a.N),
		k:          int64(a.K),
		experts:    int64(a.Experts),
		activation: int32(a.Activation),
		alpha:      float32(a.Alpha),
		limit:      float32(a.Limit),
	}
}

type cNormRouteArgs struct {
	size        uintptr
	ids         kernel.Ptr
	weights     kernel.Ptr
	normed      kernel.Ptr
	logits      kernel.Ptr
	x           kernel.Ptr
	norm        kernel.Ptr
	router      cWeight
	routerBias  kernel.Ptr
	bias        kernel.Ptr
	n           int64
	k           int64
	groups      int64
	groupsUsed  int64
	eps         float32
	scale       float32
	gating      int32
	normalized  int32
	groupByBest int32
}

func asNormRouteArgs(a *kernel.NormRouteArgs) cNormRouteArgs {
	return cNormRouteArgs{
		size:        unsafe.Sizeof(cNormRouteArgs{}),
		ids:         a.IDs,
		weights:     a.Weights,
		normed:      a.Normed,
		logits:      a.Logits,
		x:           a.X,
		norm:        a.Norm,
		router:      asWeight(a.Router),
		routerBias:  a.RouterBias,
		bias:        a.Bias,
		n:           int64(a.N),
		k:           int64(a.K),
		groups:      int64(a.Groups),
		groupsUsed:  int64(a.GroupsUsed),
		eps:         float32(a.Eps),
		scale:       float32(a.Scale),
		gating:      int32(a.Gating),
		normalized:  truth(a.Normalized),
		groupByBest: truth(a.GroupByBest),
	}
}

type cNormQKVArgs struct {
	size        uintptr
	q           kernel.Ptr
	k           kernel.Ptr
	v           kernel.Ptr
	x           kernel.Ptr
	norm        kernel.Ptr
	wq          cWeight
	wk          cWeight
	wv          cWeight
	bq          kernel.Ptr
	bk          kernel.Ptr
	bv          kernel.Ptr
	qNorm       kernel.Ptr
	kNorm       kernel.Ptr
	cos         kernel.Ptr
	sin         kernel.Ptr
	positions   kernel.Ptr
	sequences   kernel.Ptr
	normed      kernel.Ptr
	kNew        kernel.Ptr
	vNew        kernel.Ptr
	batch       int64
	seq         int64
	heads       int64
	kvHeads     int64
	dim         int64
	half        int64
	tableRows   int64
	capacity    int64
	eps         float32
	kvType      int32
	mode        int32
	prepared    int32
	ring        int32
	qV          kernel.Ptr
	kV          kernel.Ptr
	vV          kernel.Ptr
	qU          kernel.Ptr
	kU          kernel.Ptr
	vU          kernel.Ptr
	codes       kernel.Ptr
	codesStride int64
	ranks       int64
}

func asNormQKVArgs(a *kernel.NormQKVArgs) cNormQKVArgs {
	return cNormQKVArgs{
		size:        unsafe.Sizeof(cNormQKVArgs{}),
		q:           a.Q,
		k:           a.K,
		v:           a.V,
		x:           a.X,
		norm:        a.Norm,
		wq:          asWeight(a.WQ),
		wk:          asWeight(a.WK),
		wv:          asWeight(a.WV),
		bq:          a.BQ,
		bk:          a.BK,
		bv:          a.BV,
		qNorm:       a.QNorm,
		kNorm:       a.KNorm,
		cos:         a.Cos,
		sin:         a.Sin,
		positions:   a.Positions,
		sequences:   a.Sequences,
		normed:      a.Normed,
		kNew:        a.KNew,
		vNew:        a.VNew,
		batch:       int64(a.Batch),
		seq:         int64(a.Seq),
		heads:       int64(a.Heads),
		kvHeads:     int64(a.KVHeads),
		dim:         int64(a.Dim),
		half:        int64(a.Half),
		tableRows:   int64(a.TableRows),
		capacity:    int64(a.Capacity),
		eps:         float32(a.Eps),
		kvType:      int32(a.KVType),
		mode:        int32(a.Mode),
		prepared:    truth(a.Prepared),
		ring:        truth(a.Ring),
		qV:          a.QV,
		kV:          a.KV,
		vV:          a.VV,
		qU:          a.QU,
		kU:          a.KU,
		vU:          a.VU,
		codes:       a.Codes,
		codesStride: int64(a.CodesStride),
		ranks:       int64(a.Ranks),
	}
}

type cUpdateArgs struct {
	size        uintptr
	v           kernel.Ptr
	u           kernel.Ptr
	codes       kernel.Ptr
	n           int64
	rows        int64
	cols        int64
	ranks       int64
	codesStride int64
	nextGateV   kernel.Ptr
	nextUpV     kernel.Ptr
}

func asUpdateArgs(a *kernel.UpdateArgs) cUpdateArgs {
	return cUpdateArgs{
		size:        unsafe.Sizeof(cUpdateArgs{}),
		v:           a.V,
		u:           a.U,
		codes:       a.Codes,
		n:           int64(a.N),
		rows:        int64(a.Rows),
		cols:        int64(a.Cols),
		ranks:       int64(a.Ranks),
		codesStride: int64(a.CodesStride),
		nextGateV:   a.NextGateV,
		nextUpV:     a.NextUpV,
	}
}

type addFrame struct {
	operation int64
	out       kernel.Ptr
	a         kernel.Ptr
	b         kernel.Ptr
	t         int32
	n         int64
	stream    kernel.Ptr
}

func (s *stream) Add(out, a, b kernel.Ptr, t kernel.DType, n int) error {
	f := enter(s, &s.own.addFrame)
	defer leave(s, &s.own.addFrame, f)
	*f = addFrame{operation: 0, out: out, a: a, b: b, t: int32(t), n: int64(n), stream: s.p}
	return s.call("add", kernel.Ptr(f))
}

type mulFrame struct {
	operation int64
	out       kernel.Ptr
	a         kernel.Ptr
	b         kernel.Ptr
	t         int32
	n         int64
	stream    kernel.Ptr
}

func (s *stream) Mul(out, a, b kernel.Ptr, t kernel.DType, n int) error {
	f := enter(s, &s.own.mulFrame)
	defer leave(s, &s.own.mulFrame, f)
	*f = mulFrame{operation: 1, out: out, a: a, b: b, t: int32(t), n: int64(n), stream: s.p}
	return s.call("mul", kernel.Ptr(f))
}

type mulScalarFrame struct {
	operation int64
	out       kernel.Ptr
	a         kernel.Ptr
	scalar    float32
	t         int32
	n         int64
	stream    kernel.Ptr
}

func (s *stream) MulScalar(out, a kernel.Ptr, scalar float32, t kernel.DType, n int) error {
	f := enter(s, &s.own.mulScalarFrame)
	defer leave(s, &s.own.mulScalarFrame, f)
	*f = mulScalarFrame{operation: 2, out: out, a: a, scalar: float32(scalar), t: int32(t), n: int64(n), stream: s.p}
	return s.call("mul_scalar", kernel.Ptr(f))
}

type siLUFrame struct {
	operation int64
	out       kernel.Ptr
	a         kernel.Ptr
	t         int32
	n         int64
	stream    kernel.Ptr
}

func (s *stream) SiLU(out, a kernel.Ptr, t kernel.DType, n int) error {
	f := enter(s, &s.own.siLUFrame)
	defer leave(s, &s.own.siLUFrame, f)
	*f = siLUFrame{operation: 3, out: out, a: a, t: int32(t), n: int64(n), stream: s.p}
	return s.call("silu", kernel.Ptr(f))
}

type gELUFrame struct {
	operation int64
	out       kernel.Ptr
	a         kernel.Ptr
	t         int32
	n         int64
	stream    kernel.Ptr
}

func (s *stream) GELU(out, a kernel.Ptr, t kernel.DType, n int) error {
	f := enter(s, &s.own.gELUFrame)
	defer leave(s, &s.own.gELUFrame, f)
	*f = gELUFrame{operation: 4, out: out, a: a, t: int32(t), n: int64(n), stream: s.p}
	return s.call("gelu", kernel.Ptr(f))
}

type gELUTanhFrame struct {
	operation int64
	out       kernel.Ptr
	a         kernel.Ptr
	t         int32
	n         int64
	stream    kernel.Ptr
}

func (s *stream) GELUTanh(out, a kernel.Ptr, t kernel.DType, n int) error {
	f := enter(s, &s.own.gELUTanhFrame)
	defer leave(s, &s.own.gELUTanhFrame, f)
	*f = gELUTanhFrame{operation: 5, out: out, a: a, t: int32(t), n: int64(n), stream: s.p}
	return s.call("gelu_tanh", kernel.Ptr(f))
}

type swiGLUFrame struct {
	operation int64
	out       kernel.Ptr
	gate      kernel.Ptr
	up        kernel.Ptr
	t         int32
	n         int64
	stream    kernel.Ptr
}

func (s *stream) SwiGLU(out, gate, up kernel.Ptr, t kernel.DType, n int) error {
	f := enter(s, &s.own.swiGLUFrame)
	defer leave(s, &s.own.swiGLUFrame, f)
	*f = swiGLUFrame{operation: 6, out: out, gate: gate, up: up, t: int32(t), n: int64(n), stream: s.p}
	return s.call("swiglu", kernel.Ptr(f))
}

type gLUFrame struct {
	operation  int64
	out        kernel.Ptr
	gate       kernel.Ptr
	up         kernel.Ptr
	activation int32
	alpha      float32
	limit      float32
	t          int32
	n          int64
	stream     kernel.Ptr
}

func (s *stream) GLU(out, gate, up kernel.Ptr, activation kernel.Activation, alpha, limit float32, t kernel.DType, n int) error {
	f := enter(s, &s.own.gLUFrame)
	defer leave(s, &s.own.gLUFrame, f)
	*f = gLUFrame{operation: 7, out: out, gate: gate, up: up, activation: int32(activation), alpha: float32(alpha), limit: float32(limit), t: int32(t), n: int64(n), stream: s.p}
	return s.call("glu", kernel.Ptr(f))
}

type sigmoidFrame struct {
	operation int64
	out       kernel.Ptr
	a         kernel.Ptr
	t         int32
	n         int64
	stream    kernel.Ptr
}

func (s *stream) Sigmoid(out, a kernel.Ptr, t kernel.DType, n int) error {
	f := enter(s, &s.own.sigmoidFrame)
	defer leave(s, &s.own.sigmoidFrame, f)
	*f = sigmoidFrame{operation: 8, out: out, a: a, t: int32(t), n: int64(n), stream: s.p}
	return s.call("sigmoid", kernel.Ptr(f))
}

type softCapFrame struct {
	operation int64
	out       kernel.Ptr
	a         kernel.Ptr
	cap       float32
	t         int32
	n         int64
	stream    kernel.Ptr
}

func (s *stream) SoftCap(out, a kernel.Ptr, cap float32, t kernel.DType, n int) error {
	f := enter(s, &s.own.softCapFrame)
	defer leave(s, &s.own.softCapFrame, f)
	*f = softCapFrame{operation: 9, out: out, a: a, cap: float32(cap), t: int32(t), n: int64(n), stream: s.p}
	return s.call("soft_cap", kernel.Ptr(f))
}

type copyFrame struct {
	operation int64
	out       kernel.Ptr
	in        kernel.Ptr
	t         int32
	n         int64
	stream    kernel.Ptr
}

func (s *stream) Copy(out, in kernel.Ptr, t kernel.DType, n int) error {
	f := enter(s, &s.own.copyFrame)
	defer leave(s, &s.own.copyFrame, f)
	*f = copyFrame{operation: 10, out: out, in: in, t: int32(t), n: int64(n), stream: s.p}
	return s.call("copy", kernel.Ptr(f))
}

type convertFrame struct {
	operation int64
	out       kernel.Ptr
	outType   int32
	in        kernel.Ptr
	inType    int32
	n         int64
	stream    kernel.Ptr
}

func (s *stream) Convert(out kernel.Ptr, outType kernel.DType, in kernel.Ptr, inType kernel.DType, n int) error {
	f := enter(s, &s.own.convertFrame)
	defer leave(s, &s.own.convertFrame, f)
	*f = convertFrame{operation: 11, out: out, outType: int32(outType), in: in, inType: int32(inType), n: int64(n), stream: s.p}
	return s.call("convert", kernel.Ptr(f))
}

type incrementI32Frame struct {
	operation int64
	x         kernel.Ptr
	n         int64
	stream    kernel.Ptr
}

func (s *stream) IncrementI32(x kernel.Ptr, n int) error {
	f := enter(s, &s.own.incrementI32Frame)
	defer leave(s, &s.own.incrementI32Frame, f)
	*f = incrementI32Frame{operation: 12, x: x, n: int64(n), stream: s.p}
	return s.call("increment_i32", kernel.Ptr(f))
}

type softmaxFrame struct {
	operation int64
	out       kernel.Ptr
	in        kernel.Ptr
	t         int32
	rows      int64
	cols      int64
	stream    kernel.Ptr
}

func (s *stream) Softmax(out, in kernel.Ptr, t kernel.DType, rows, cols int) error {
	f := enter(s, &s.own.softmaxFrame)
	defer leave(s, &s.own.softmaxFrame, f)
	*f = softmaxFrame{operation: 13, out: out, in: in, t: int32(t), rows: int64(rows), cols: int64(cols), stream: s.p}
	return s.call("softmax", kernel.Ptr(f))
}

type rMSNormFrame struct {
	operation int64
	out       kernel.Ptr
	in        kernel.Ptr
	weight    kernel.Ptr
	t         int32
	rows      int64
	cols      int64
	eps       float32
	stream    kernel.Ptr
}

func (s *stream) RMSNorm(out, in, weight kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	f := enter(s, &s.own.rMSNormFrame)
	defer leave(s, &s.own.rMSNormFrame, f)
	*f = rMSNormFrame{operation: 14, out: out, in: in, weight: weight, t: int32(t), rows: int64(rows), cols: int64(cols), eps: float32(eps), stream: s.p}
	return s.call("rms_norm", kernel.Ptr(f))
}

type layerNormFrame struct {
	operation int64
	out       kernel.Ptr
	in        kernel.Ptr
	weight    kernel.Ptr
	bias      kernel.Ptr
	t         int32
	rows      int64
	cols      int64
	eps       float32
	stream    kernel.Ptr
}

func (s *stream) LayerNorm(out, in, weight, bias kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	f := enter(s, &s.own.layerNormFrame)
	defer leave(s, &s.own.layerNormFrame, f)
	*f = layerNormFrame{operation: 15, out: out, in: in, weight: weight, bias: bias, t: int32(t), rows: int64(rows), cols: int64(cols), eps: float32(eps), stream: s.p}
	return s.call("layer_norm", kernel.Ptr(f))
}

type addRMSNormFrame struct {
	operation int64
	sum       kernel.Ptr
	out       kernel.Ptr
	a         kernel.Ptr
	b         kernel.Ptr
	weight    kernel.Ptr
	t         int32
	rows      int64
	cols      int64
	eps       float32
	stream    kernel.Ptr
}

func (s *stream) AddRMSNorm(sum, out, a, b, weight kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	f := enter(s, &s.own.addRMSNormFrame)
	defer leave(s, &s.own.addRMSNormFrame, f)
	*f = addRMSNormFrame{operation: 16, sum: sum, out: out, a: a, b: b, weight: weight, t: int32(t), rows: int64(rows), cols: int64(cols), eps: float32(eps), stream: s.p}
	return s.call("add_rms_norm", kernel.Ptr(f))
}

type mulRowsFrame struct {
	operation int64
	out       kernel.Ptr
	a         kernel.Ptr
	factors   kernel.Ptr
	t         int32
	rows      int64
	cols      int64
	stream    kernel.Ptr
}

func (s *stream) MulRows(out, a, factors kernel.Ptr, t kernel.DType, rows, cols int) error {
	f := enter(s, &s.own.mulRowsFrame)
	defer leave(s, &s.own.mulRowsFrame, f)
	*f = mulRowsFrame{operation: 17, out: out, a: a, factors: factors, t: int32(t), rows: int64(rows), cols: int64(cols), stream: s.p}
	return s.call("mul_rows", kernel.Ptr(f))
}

type copyColumnsFrame struct {
	operation int64
	out       kernel.Ptr
	outCols   int64
	outFirst  int64
	in        kernel.Ptr
	inCols    int64
	inFirst   int64
	t         int32
	rows      int64
	cols      int64
	stream    kernel.Ptr
}

func (s *stream) CopyColumns(out kernel.Ptr, outCols, outFirst int, in kernel.Ptr, inCols, inFirst int, t kernel.DType, rows, cols int) error {
	f := enter(s, &s.own.copyColumnsFrame)
	defer leave(s, &s.own.copyColumnsFrame, f)
	*f = copyColumnsFrame{operation: 18, out: out, outCols: int64(outCols), outFirst: int64(outFirst), in: in, inCols: int64(inCols), inFirst: int64(inFirst), t: int32(t), rows: int64(rows), cols: int64(cols), stream: s.p}
	return s.call("copy_columns", kernel.Ptr(f))
}

type argmaxFrame struct {
	operation int64
	out       kernel.Ptr
	in        kernel.Ptr
	rows      int64
	cols      int64
	stream    kernel.Ptr
}

func (s *stream) Argmax(out, in kernel.Ptr, rows, cols int) error {
	f := enter(s, &s.own.argmaxFrame)
	defer leave(s, &s.own.argmaxFrame, f)
	*f = argmaxFrame{operation: 19, out: out, in: in, rows: int64(rows), cols: int64(cols), stream: s.p}
	return s.call("argmax", kernel.Ptr(f))
}

type topKFrame struct {
	operation int64
	values    kernel.Ptr
	ids       kernel.Ptr
	in        kernel.Ptr
	rows      int64
	cols      int64
	k         int64
	stream    kernel.Ptr
}

func (s *stream) TopK(values, ids, in kernel.Ptr, rows, cols, k int) error {
	f := enter(s, &s.own.topKFrame)
	defer leave(s, &s.own.topKFrame, f)
	*f = topKFrame{operation: 20, values: values, ids: ids, in: in, rows: int64(rows), cols: int64(cols), k: int64(k), stream: s.p}
	return s.call("top_k", kernel.Ptr(f))
}

type mapFrame struct {
	operation int64
	args      cMapArgs
	stream    kernel.Ptr
}

func (s *stream) Map(args *kernel.MapArgs) error {
	f := enter(s, &s.own.mapFrame)
	defer leave(s, &s.own.mapFrame, f)
	*f = mapFrame{operation: 21, args: asMapArgs(args), stream: s.p}
	return s.call("map", kernel.Ptr(f))
}

type reduceFrame struct {
	operation int64
	args      cReduceArgs
	stream    kernel.Ptr
}

func (s *stream) Reduce(args *kernel.ReduceArgs) error {
	f := enter(s, &s.own.reduceFrame)
	defer leave(s, &s.own.reduceFrame, f)
	*f = reduceFrame{operation: 22, args: asReduceArgs(args), stream: s.p}
	return s.call("reduce", kernel.Ptr(f))
}

type cumSumFrame struct {
	operation int64
	out       kernel.Ptr
	in        kernel.Ptr
	t         int32
	rows      int64
	n         int64
	cols      int64
	stream    kernel.Ptr
}

func (s *stream) CumSum(out, in kernel.Ptr, t kernel.DType, rows, n, cols int) error {
	f := enter(s, &s.own.cumSumFrame)
	defer leave(s, &s.own.cumSumFrame, f)
	*f = cumSumFrame{operation: 23, out: out, in: in, t: int32(t), rows: int64(rows), n: int64(n), cols: int64(cols), stream: s.p}
	return s.call("cumsum", kernel.Ptr(f))
}

type sortFrame struct {
	operation int64
	args      cSortArgs
	stream    kernel.Ptr
}

func (s *stream) Sort(args *kernel.SortArgs) error {
	f := enter(s, &s.own.sortFrame)
	defer leave(s, &s.own.sortFrame, f)
	*f = sortFrame{operation: 24, args: asSortArgs(args), stream: s.p}
	return s.call("sort", kernel.Ptr(f))
}

type indexFrame struct {
	operation int64
	args      cIndexArgs
	stream    kernel.Ptr
}

func (s *stream) Index(args *kernel.IndexArgs) error {
	f := enter(s, &s.own.indexFrame)
	defer leave(s, &s.own.indexFrame, f)
	*f = indexFrame{operation: 25, args: asIndexArgs(args), stream: s.p}
	return s.call("index", kernel.Ptr(f))
}

type matMulFrame struct {
	operation int64
	args      cMatMulArgs
	stream    kernel.Ptr
}

func (s *stream) MatMul(args *kernel.MatMulArgs) error {
	f := enter(s, &s.own.matMulFrame)
	defer leave(s, &s.own.matMulFrame, f)
	*f = matMulFrame{operation: 26, args: asMatMulArgs(args), stream: s.p}
	return s.call("matmul", kernel.Ptr(f))
}

type matMulSingleRowFrame struct {
	operation int64
	c         kernel.Ptr
	a         kernel.Ptr
	b         kernel.Ptr
	t         int32
	k         int64
	n         int64
	stream    kernel.Ptr
}

func (s *stream) MatMulSingleRow(c, a, b kernel.Ptr, t kernel.DType, k, n int) error {
	f := enter(s, &s.own.matMulSingleRowFrame)
	defer leave(s, &s.own.matMulSingleRowFrame, f)
	*f = matMulSingleRowFrame{operation: 27, c: c, a: a, b: b, t: int32(t), k: int64(k), n: int64(n), stream: s.p}
	return s.call("matmul_single_row", kernel.Ptr(f))
}

type weightPackFrame struct {
	operation int64
	out       kernel.Ptr
	w         cWeight
	stream    kernel.Ptr
}

func (s *stream) WeightPack(out kernel.Ptr, w kernel.Weight) error {
	f := enter(s, &s.own.weightPackFrame)
	defer leave(s, &s.own.weightPackFrame, f)
	*f = weightPackFrame{operation: 28, out: out, w: asWeight(w), stream: s.p}
	return s.call("weight_pack", kernel.Ptr(f))
}

type linearFrame struct {
	operation int64
	y         kernel.Ptr
	x         kernel.Ptr
	w         cWeight
	bias      kernel.Ptr
	n         int64
	stream    kernel.Ptr
}

func (s *stream) Linear(y, x kernel.Ptr, w kernel.Weight, bias kernel.Ptr, n int) error {
	f := enter(s, &s.own.linearFrame)
	defer leave(s, &s.own.linearFrame, f)
	*f = linearFrame{operation: 29, y: y, x: x, w: asWeight(w), bias: bias, n: int64(n), stream: s.p}
	return s.call("linear", kernel.Ptr(f))
}

type embeddingFrame struct {
	operation int64
	out       kernel.Ptr
	table     cWeight
	ids       kernel.Ptr
	n         int64
	stream    kernel.Ptr
}

func (s *stream) Embedding(out kernel.Ptr, table kernel.Weight, ids kernel.Ptr, n int) error {
	f := enter(s, &s.own.embeddingFrame)
	defer leave(s, &s.own.embeddingFrame, f)
	*f = embeddingFrame{operation: 30, out: out, table: asWeight(table), ids: ids, n: int64(n), stream: s.p}
	return s.call("embedding", kernel.Ptr(f))
}

type fusedUpdateFrame struct {
	operation int64
	args      cFusedUpdateArgs
	stream    kernel.Ptr
}

func (s *stream) FusedUpdate(args *kernel.FusedUpdateArgs) error {
	f := enter(s, &s.own.fusedUpdateFrame)
	defer leave(s, &s.own.fusedUpdateFrame, f)
	*f = fusedUpdateFrame{operation: 31, args: asFusedUpdateArgs(args), stream: s.p}
	return s.call("fused_update", kernel.Ptr(f))
}

type normQuantizeFrame struct {
	operation int64
	args      cNormQuantizeArgs
	stream    kernel.Ptr
}

func (s *stream) NormQuantize(args *kernel.NormQuantizeArgs) error {
	f := enter(s, &s.own.normQuantizeFrame)
	defer leave(s, &s.own.normQuantizeFrame, f)
	*f = normQuantizeFrame{operation: 32, args: asNormQuantizeArgs(args), stream: s.p}
	return s.call("norm_quantize", kernel.Ptr(f))
}

type dequantizeRowsFrame struct {
	operation int64
	out       kernel.Ptr
	codes     kernel.Ptr
	scales    kernel.Ptr
	rows      int64
	cols      int64
	stream    kernel.Ptr
}

func (s *stream) DequantizeRows(out, codes, scales kernel.Ptr, rows, cols int) error {
	f := enter(s, &s.own.dequantizeRowsFrame)
	defer leave(s, &s.own.dequantizeRowsFrame, f)
	*f = dequantizeRowsFrame{operation: 33, out: out, codes: codes, scales: scales, rows: int64(rows), cols: int64(cols), stream: s.p}
	return s.call("dequantize_rows", kernel.Ptr(f))
}

type w2A8GEMVFrame struct {
	operation int64
	args      cW2A8GEMVArgs
	stream    kernel.Ptr
}

func (s *stream) W2A8GEMV(args *kernel.W2A8GEMVArgs) error {
	f := enter(s, &s.own.w2A8GEMVFrame)
	defer leave(s, &s.own.w2A8GEMVFrame, f)
	*f = w2A8GEMVFrame{operation: 34, args: asW2A8GEMVArgs(args), stream: s.p}
	return s.call("w2a8_gemv", kernel.Ptr(f))
}

type bitLinearFrame struct {
	operation int64
	args      cBitLinearArgs
	stream    kernel.Ptr
}

func (s *stream) BitLinear(args *kernel.BitLinearArgs) error {
	f := enter(s, &s.own.bitLinearFrame)
	defer leave(s, &s.own.bitLinearFrame, f)
	*f = bitLinearFrame{operation: 35, args: asBitLinearArgs(args), stream: s.p}
	return s.call("bit_linear", kernel.Ptr(f))
}

type tMACLUTFrame struct {
	operation   int64
	lut         kernel.Ptr
	activations kernel.Ptr
	k           int64
	n           int64
	stream      kernel.Ptr
}

func (s *stream) TMACLUT(lut, activations kernel.Ptr, k, n int) error {
	f := enter(s, &s.own.tMACLUTFrame)
	defer leave(s, &s.own.tMACLUTFrame, f)
	*f = tMACLUTFrame{operation: 36, lut: lut, activations: activations, k: int64(k), n: int64(n), stream: s.p}
	return s.call("tmac_lut", kernel.Ptr(f))
}

type tMACMatMulFrame struct {
	operation int64
	args      cTMACMatMulArgs
	stream    kernel.Ptr
}

func (s *stream) TMACMatMul(args *kernel.TMACMatMulArgs) error {
	f := enter(s, &s.own.tMACMatMulFrame)
	defer leave(s, &s.own.tMACMatMulFrame, f)
	*f = tMACMatMulFrame{operation: 37, args: asTMACMatMulArgs(args), stream: s.p}
	return s.call("tmac_matmul", kernel.Ptr(f))
}

type routeFrame struct {
	operation int64
	args      cRouteArgs
	stream    kernel.Ptr
}

func (s *stream) Route(args *kernel.RouteArgs) error {
	f := enter(s, &s.own.routeFrame)
	defer leave(s, &s.own.routeFrame, f)
	*f = routeFrame{operation: 38, args: asRouteArgs(args), stream: s.p}
	return s.call("route", kernel.Ptr(f))
}

type expertLinearFrame struct {
	operation int64
	args      cExpertLinearArgs
	stream    kernel.Ptr
}

func (s *stream) ExpertLinear(args *kernel.ExpertLinearArgs) error {
	f := enter(s, &s.own.expertLinearFrame)
	defer leave(s, &s.own.expertLinearFrame, f)
	*f = expertLinearFrame{operation: 39, args: asExpertLinearArgs(args), stream: s.p}
	return s.call("expert_linear", kernel.Ptr(f))
}

type expertSumFrame struct {
	operation int64
	out       kernel.Ptr
	add       kernel.Ptr
	y         kernel.Ptr
	weights   kernel.Ptr
	n         int64
	k         int64
	cols      int64
	stream    kernel.Ptr
}

func (s *stream) ExpertSum(out, add, y, weights kernel.Ptr, n, k, cols int) error {
	f := enter(s, &s.own.expertSumFrame)
	defer leave(s, &s.own.expertSumFrame, f)
	*f = expertSumFrame{operation: 40, out: out, add: add, y: y, weights: weights, n: int64(n), k: int64(k), cols: int64(cols), stream: s.p}
	return s.call("expert_sum", kernel.Ptr(f))
}

type roPEFrame struct {
	operation int64
	args      cRoPEArgs
	stream    kernel.Ptr
}

func (s *stream) RoPE(args *kernel.RoPEArgs) error {
	f := enter(s, &s.own.roPEFrame)
	defer leave(s, &s.own.roPEFrame, f)
	*f = roPEFrame{operation: 41, args: asRoPEArgs(args), stream: s.p}
	return s.call("rope", kernel.Ptr(f))
}

type kVWriteFrame struct {
	operation int64
	args      cKVWriteArgs
	stream    kernel.Ptr
}

func (s *stream) KVWrite(args *kernel.KVWriteArgs) error {
	f := enter(s, &s.own.kVWriteFrame)
	defer leave(s, &s.own.kVWriteFrame, f)
	*f = kVWriteFrame{operation: 42, args: asKVWriteArgs(args), stream: s.p}
	return s.call("kv_write", kernel.Ptr(f))
}

type roPEKVWriteFrame struct {
	operation int64
	args      cRoPEKVWriteArgs
	stream    kernel.Ptr
}

func (s *stream) RoPEKVWrite(args *kernel.RoPEKVWriteArgs) error {
	f := enter(s, &s.own.roPEKVWriteFrame)
	defer leave(s, &s.own.roPEKVWriteFrame, f)
	*f = roPEKVWriteFrame{operation: 43, args: asRoPEKVWriteArgs(args), stream: s.p}
	return s.call("rope_kv_write", kernel.Ptr(f))
}

type attentionFrame struct {
	operation int64
	args      cAttentionArgs
	stream    kernel.Ptr
}

func (s *stream) Attention(args *kernel.AttentionArgs) error {
	f := enter(s, &s.own.attentionFrame)
	defer leave(s, &s.own.attentionFrame, f)
	*f = attentionFrame{operation: 44, args: asAttentionArgs(args), stream: s.p}
	return s.call("attention", kernel.Ptr(f))
}

type causalConvFrame struct {
	operation int64
	args      cCausalConvArgs
	stream    kernel.Ptr
}

func (s *stream) CausalConv(args *kernel.CausalConvArgs) error {
	f := enter(s, &s.own.causalConvFrame)
	defer leave(s, &s.own.causalConvFrame, f)
	*f = causalConvFrame{operation: 45, args: asCausalConvArgs(args), stream: s.p}
	return s.call("causal_conv", kernel.Ptr(f))
}

type gatedDeltaFrame struct {
	operation int64
	args      cGatedDeltaArgs
	stream    kernel.Ptr
}

func (s *stream) GatedDelta(args *kernel.GatedDeltaArgs) error {
	f := enter(s, &s.own.gatedDeltaFrame)
	defer leave(s, &s.own.gatedDeltaFrame, f)
	*f = gatedDeltaFrame{operation: 46, args: asGatedDeltaArgs(args), stream: s.p}
	return s.call("gated_delta", kernel.Ptr(f))
}

type normLinearFrame struct {
	operation int64
	y         kernel.Ptr
	x         kernel.Ptr
	norm      kernel.Ptr
	eps       float32
	w         cWeight
	bias      kernel.Ptr
	normed    kernel.Ptr
	n         int64
	stream    kernel.Ptr
}

func (s *stream) NormLinear(y, x, norm kernel.Ptr, eps float32, w kernel.Weight, bias, normed kernel.Ptr, n int) error {
	f := enter(s, &s.own.normLinearFrame)
	defer leave(s, &s.own.normLinearFrame, f)
	*f = normLinearFrame{operation: 47, y: y, x: x, norm: norm, eps: float32(eps), w: asWeight(w), bias: bias, normed: normed, n: int64(n), stream: s.p}
	return s.call("norm_linear", kernel.Ptr(f))
}

type normSwiGLUFrame struct {
	operation int64
	out       kernel.Ptr
	x         kernel.Ptr
	norm      kernel.Ptr
	eps       float32
	gate      cWeight
	up        cWeight
	normed    kernel.Ptr
	product   kernel.Ptr
	n         int64
	stream    kernel.Ptr
}

func (s *stream) NormSwiGLU(out, x, norm kernel.Ptr, eps float32, gate, up kernel.Weight, normed, product kernel.Ptr, n int) error {
	f := enter(s, &s.own.normSwiGLUFrame)
	defer leave(s, &s.own.normSwiGLUFrame, f)
	*f = normSwiGLUFrame{operation: 48, out: out, x: x, norm: norm, eps: float32(eps), gate: asWeight(gate), up: asWeight(up), normed: normed, product: product, n: int64(n), stream: s.p}
	return s.call("norm_swiglu", kernel.Ptr(f))
}

type linearAddFrame struct {
	operation int64
	sum       kernel.Ptr
	a         kernel.Ptr
	x         kernel.Ptr
	w         cWeight
	bias      kernel.Ptr
	product   kernel.Ptr
	n         int64
	stream    kernel.Ptr
}

func (s *stream) LinearAdd(sum, a, x kernel.Ptr, w kernel.Weight, bias, product kernel.Ptr, n int) error {
	f := enter(s, &s.own.linearAddFrame)
	defer leave(s, &s.own.linearAddFrame, f)
	*f = linearAddFrame{operation: 49, sum: sum, a: a, x: x, w: asWeight(w), bias: bias, product: product, n: int64(n), stream: s.p}
	return s.call("linear_add", kernel.Ptr(f))
}

type feedForwardFrame struct {
	operation    int64
	args         cFeedForwardArgs
	nextPrepared int32
	stream       kernel.Ptr
}

func (s *stream) FeedForward(args *kernel.FeedForwardArgs) error {
	f := enter(s, &s.own.feedForwardFrame)
	defer leave(s, &s.own.feedForwardFrame, f)
	*f = feedForwardFrame{operation: 50, args: asFeedForwardArgs(args), stream: s.p}
	err := s.call("feed_forward", kernel.Ptr(f))
	args.NextPrepared = f.nextPrepared != 0
	return err
}

type expertFeedForwardFrame struct {
	operation int64
	args      cExpertFeedForwardArgs
	stream    kernel.Ptr
}

func (s *stream) ExpertFeedForward(args *kernel.ExpertFeedForwardArgs) error {
	f := enter(s, &s.own.expertFeedForwardFrame)
	defer leave(s, &s.own.expertFeedForwardFrame, f)
	*f = expertFeedForwardFrame{operation: 51, args: asExpertFeedForwardArgs(args), stream: s.p}
	return s.call("expert_feed_forward", kernel.Ptr(f))
}

type normRouteFrame struct {
	operation int64
	args      cNormRouteArgs
	stream    kernel.Ptr
}

func (s *stream) NormRoute(args *kernel.NormRouteArgs) error {
	f := enter(s, &s.own.normRouteFrame)
	defer leave(s, &s.own.normRouteFrame, f)
	*f = normRouteFrame{operation: 52, args: asNormRouteArgs(args), stream: s.p}
	return s.call("norm_route", kernel.Ptr(f))
}

type normQKVFrame struct {
	operation int64
	args      cNormQKVArgs
	stream    kernel.Ptr
}

func (s *stream) NormQKV(args *kernel.NormQKVArgs) error {
	f := enter(s, &s.own.normQKVFrame)
	defer leave(s, &s.own.normQKVFrame, f)
	*f = normQKVFrame{operation: 53, args: asNormQKVArgs(args), stream: s.p}
	return s.call("norm_qkv", kernel.Ptr(f))
}

type attentionLinearAddFrame struct {
	operation    int64
	sum          kernel.Ptr
	a            kernel.Ptr
	attention    cAttentionArgs
	w            cWeight
	bias         kernel.Ptr
	update       cUpdateArgs
	product      kernel.Ptr
	nextNorm     kernel.Ptr
	normed       kernel.Ptr
	nextPrepared int32
	stream       kernel.Ptr
}

func (s *stream) AttentionLinearAdd(sum, a kernel.Ptr, attention *kernel.AttentionArgs, w kernel.Weight, bias kernel.Ptr, update *kernel.UpdateArgs, product, nextNorm, normed kernel.Ptr) (nextPrepared bool, err error) {
	f := enter(s, &s.own.attentionLinearAddFrame)
	defer leave(s, &s.own.attentionLinearAddFrame, f)
	*f = attentionLinearAddFrame{operation: 54, sum: sum, a: a, attention: asAttentionArgs(attention), w: asWeight(w), bias: bias, update: asUpdateArgs(update), product: product, nextNorm: nextNorm, normed: normed, stream: s.p}
	err = s.call("attention_linear_add", kernel.Ptr(f))
	return f.nextPrepared != 0, err
}

// frames are a stream's own, one of each operation.
type frames struct {
	addFrame
	mulFrame
	mulScalarFrame
	siLUFrame
	gELUFrame
	gELUTanhFrame
	swiGLUFrame
	gLUFrame
	sigmoidFrame
	softCapFrame
	copyFrame
	convertFrame
	incrementI32Frame
	softmaxFrame
	rMSNormFrame
	layerNormFrame
	addRMSNormFrame
	mulRowsFrame
	copyColumnsFrame
	argmaxFrame
	topKFrame
	mapFrame
	reduceFrame
	cumSumFrame
	sortFrame
	indexFrame
	matMulFrame
	matMulSingleRowFrame
	weightPackFrame
	linearFrame
	embeddingFrame
	fusedUpdateFrame
	normQuantizeFrame
	dequantizeRowsFrame
	w2A8GEMVFrame
	bitLinearFrame
	tMACLUTFrame
	tMACMatMulFrame
	routeFrame
	expertLinearFrame
	expertSumFrame
	roPEFrame
	kVWriteFrame
	roPEKVWriteFrame
	attentionFrame
	causalConvFrame
	gatedDeltaFrame
	normLinearFrame
	normSwiGLUFrame
	linearAddFrame
	feedForwardFrame
	expertFeedForwardFrame
	normRouteFrame
	normQKVFrame
	attentionLinearAddFrame
}
