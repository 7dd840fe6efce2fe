package tensor

import (
	"errors"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/fused"
)

// The fused operations, which internal/fused describes and lends to models.

func init() {
	fused.Lend(fused.Operations[*Tensor, AttentionOptions, Activation, Written, Router, Ternary]{
		NormLinear: normLinearInto, NormSwiGLU: normSwiGLUInto, LinearAdd: linearAddInto, BitLinear: bitLinear,
		FeedForward: feedForward, AttentionLinearAdd: attentionLinearAddInto, NormQKV: normQKV, RoPEKVWrite: ropeKVWrite,
		ExpertFeedForward: expertFeedForward, NormRoute: normRoute, AllReduceNorm: allReduceNorm, LinearAllReduce: linearAllReduce,
	})
}

// place returns where a tensor lies.
func (t *Tensor) place() fused.Place {
	if t == nil {
		return fused.Place{}
	}
	return fused.Place{Buffer: t.buffer, Offset: t.offset}
}

// left says that normed holds the form of rows for norm and the V of updates, after the work that the stream has now.
func left(s *gpu.Stream, rows, normed, norm *Tensor, v ...*Tensor) fused.Left {
	l := fused.Left{Stream: s, Work: s.Enqueued(), Rows: rows.place(), Normed: normed.place(), Norm: norm.place(), Elements: rows.n}
	for i := range v {
		l.V[i] = v[i].place()
	}
	return l
}

// handOver returns the Handoff of rows whose form for norm the operation just enqueued has left in normed, none where it has not.
func handOver(handed bool, s *gpu.Stream, rows, normed, norm *Tensor, v ...*Tensor) fused.Handoff {
	if !handed {
		return fused.Handoff{}
	}
	return fused.HandOver(left(s, rows, normed, norm, v...))
}

// whole panics where an operation would read rows that are nowhere as they are.
func whole(op string, h fused.Handoff, prepared bool) {
	if h.Parted() && !prepared {
		misuse(op, "rows of which each rank has its own columns, and that are not handed over")
	}
}

// scratch checks memory that an operation may use for n rows.
func scratch(op, name string, t *Tensor, rows, cols int) {
	if t.dtype != F32 || t.n != rows*cols {
		misuse(op, "%s %v %s: want F32 (%d,%d)", name, t.dtype, shapeString(t.shape), rows, cols)
	}
}

// checkSum checks the rows of a sum with a product, and scratch for the product.
func checkSum(op string, dst, a, product *Tensor, rows, cols int) {
	scratch(op, "result", dst, rows, cols)
	if a != nil {
		scratch(op, "addend", a, rows, cols)
	}
	scratch(op, "product", product, rows, cols)
}

// checkUpdates checks what an adapter adds to products of n rows with weights, and returns its ranks and the distance of rows of codes.
func checkUpdates(op string, n int, codes *Tensor, of ...adapted) (ranks, stride int) {
	for _, a := range of {
		v, u, w := a.update.V, a.update.U, a.weight
		if v == nil && u == nil {
			continue
		}
		if v == nil || u == nil || v.dtype != F16 || u.dtype != F16 || len(v.shape) != 2 || len(u.shape) != 2 || v.shape[0] != u.shape[1] ||
			v.shape[1] != w.shape[1] || u.shape[0] != w.shape[0] || ranks > 0 && v.shape[0] != ranks {
			misuse(op, "v %s and u %s beside weight %s: want F16 (ranks,%d) and (%d,ranks), of as many ranks for all weights", v.shapeOrNone(),
				u.shapeOrNone(), shapeString(w.shape), w.shape[1], w.shape[0])
		}
		ranks = v.shape[0]
	}
	if codes == nil || ranks == 0 {
		return ranks, 0
	}
	if codes.dtype != F32 || codes.n != ranks && codes.n != n*ranks {
		misuse(op, "codes %v %s: want F32 (%d,%d) or (1,%d)", codes.dtype, shapeString(codes.shape), n, ranks, ranks)
	}
	if codes.n > ranks {
		stride = ranks
	}
	return ranks, stride
}

// checkNext checks the V of updates of products that read rows of cols elements next, beside updates of so many ranks, 0 for none;
// it returns the ranks of all.
func checkNext(op string, ranks, cols int, next ...*Tensor) int {
	for _, v := range next {
		if v == nil {
			continue
		}
		if v.dtype != F16 || len(v.shape) != 2 || v.shape[1] != cols || ranks > 0 && v.shape[0] != ranks {
			misuse(op, "v %s of the products that follow: want F16 (ranks,%d), of as many ranks for all weights", v.shapeOrNone(), cols)
		}
		ranks = v.shape[0]
	}
	return ranks
}

// adapted is a weight and what an adapter adds to its product.
type adapted struct {
	update fused.LowRank[*Tensor]
	weight *Tensor
}

func normLinearInto(dst, x, norm *Tensor, eps float32, w, bias, normed *Tensor) {
	const op = "norm linear"
	checkLinear(x, w, bias)
	checkNorm(op, x, norm)
	n := x.rows()
	scratch(op, "result", dst, n, w.shape[0])
	scratch(op, "normed", normed, n, w.shape[1])
	s := dst.Stream()
	norm, w, bias = norm.on(op, s), w.on(op, s), bias.on(op, s)
	exec(op, s, 1, func(k kernel.Stream, p pointers) error {
		return k.NormLinear(p[0], p[2], p[3], eps, w.weight(p[4]), p[5], p[1], n)
	}, dst, normed, x, norm, w, bias)
}

func normSwiGLUInto(dst, x, norm *Tensor, eps float32, gate, up, normed, product *Tensor) {
	const op = "norm swiglu"
	checkLinear(x, gate, nil)
	checkLinear(x, up, nil)
	checkNorm(op, x, norm)
	if gate.shape[0] != up.shape[0] {
		misuse(op, "gate %s and up %s differ", shapeString(gate.shape), shapeString(up.shape))
	}
	n := x.rows()
	scratch(op, "result", dst, n, gate.shape[0])
	scratch(op, "normed", normed, n, gate.shape[1])
	scratch(op, "product", product, n, gate.shape[0])
	s := dst.Stream()
	norm, gate, up = norm.on(op, s), gate.on(op, s), up.on(op, s)
	exec(op, s, 1, func(k kernel.Stream, p pointers) error {
		return k.NormSwiGLU(p[0], p[3], p[4], eps, gate.weight(p[5]), up.weight(p[6]), p[1], p[2], n)
	}, dst, normed, product, x, norm, gate, up)
}

func linearAddInto(dst, a, x, w, bias, product *Tensor) {
	const op = "linear add"
	checkLinear(x, w, bias)
	n := x.rows()
	checkSum(op, dst, a, product, n, w.shape[0])
	s := dst.Stream()
	w, bias = w.on(op, s), bias.on(op, s)
	exec(op, s, 1, func(k kernel.Stream, p pointers) error {
		return k.LinearAdd(p[0], p[2], p[3], w.weight(p[4]), p[5], p[1], n)
	}, dst, product, a, x, w, bias)
}

func bitLinear(dst []*Tensor, add, x *Tensor, matrices []*Ternary, a fused.Rounding[*Tensor, Activation]) {
	const op = "bit linear"
	if x.dtype != F32 || len(x.shape) == 0 || len(matrices) == 0 || len(matrices) > 3 || len(dst) != len(matrices) {
		misuse(op, "%v %s, %d matrices and %d results: want F32 (..., cols) and one to three", x.dtype, shapeString(x.shape), len(matrices), len(dst))
	}
	n, cols := x.rows(), x.cols()
	if a.Codes.dtype != I8 || a.Codes.n != x.n {
		misuse(op, "codes %v %s: want I8 (%d,%d)", a.Codes.dtype, shapeString(a.Codes.shape), n, cols)
	}
	scratch(op, "scales", a.Scales, n, 1)
	if a.Up != nil {
		scratch(op, "up", a.Up, n, cols)
	}
	checkNorm(op, x, a.Norm)
	s := dst[0].Stream()
	settled := true
	var outs, codes, scales [3]*Tensor
	for i, w := range matrices {
		if w.Cols != cols || w.Cols%4 != 0 || w.Layout != matrices[0].Layout || w.Scales == nil || w.Ends != nil {
			misuse(op, "%s x ternary (%d,%d)^T: want rows of %d, a multiple of 4, in one layout, with scales of equal segments", shapeString(x.shape),
				w.Rows, w.Cols, cols)
		}
		scratch(op, "result", dst[i], n, w.Rows)
		outs[i], codes[i], scales[i] = dst[i], w.Codes.on(op, s), w.Scales.on(op, s)
		settled = settled && w.Codes.aligned()
	}
	if add != nil {
		scratch(op, "addend", add, n, matrices[0].Rows)
	}
	a.Norm = a.Norm.on(op, s)
	args := kernel.BitLinearArgs{M: n, K: cols, RowBytes: Int2RowBytes(matrices[0].Layout, cols),
		Layout:     kernel.Int2Layout(matrices[0].Layout),
		Activation: a.Activation.kind, Eps: a.Eps, Normed: a.RMSNorm, Settled: settled}
	for i, w := range matrices {
		*[]*int{&args.N, &args.N2, &args.N3}[i] = w.Rows
		*[]*int{&args.Segments, &args.Segments2, &args.Segments3}[i] = scales[i].n
	}
	exec(op, s, 5, func(s kernel.Stream, p pointers) error {
		args.Out, args.Out2, args.Out3, args.Codes, args.Scales = p[0], p[1], p[2], p[3], p[4]
		args.In, args.Up, args.Norm, args.Add = p[5], p[6], p[7], p[8]
		args.Weights, args.Weights2, args.Weights3 = p[9], p[10], p[11]
		args.WeightScales, args.WeightScales2, args.WeightScales3 = p[12], p[13], p[14]
		return s.BitLinear(&args)
	}, outs[0], outs[1], outs[2], a.Codes, a.Scales, x, a.Up, a.Norm, add, codes[0], codes[1], codes[2], scales[0], scales[1], scales[2])
}

func feedForward(dst, x *Tensor, a fused.FFN[*Tensor]) fused.Handoff {
	const op = "feed forward"
	checkLinear(x, a.Gate, nil)
	checkLinear(x, a.Up, nil)
	checkNorm(op, x, a.Norm)
	checkNorm(op, x, a.NextNorm)
	n, inner, cols := x.rows(), a.Gate.shape[0], x.cols()
	scratch(op, "result", dst, n, cols)
	scratch(op, "normed", a.Normed, n, cols)
	scratch(op, "gated", a.Gated, n, inner)
	scratch(op, "product", a.Product, n, inner)
	checkLinear(a.Gated.Reshape(n, inner), a.Down, nil)
	if a.Up.shape[0] != inner || a.Down.shape[0] != cols {
		misuse(op, "gate %s, up %s and down %s do not fit", shapeString(a.Gate.shape), shapeString(a.Up.shape), shapeString(a.Down.shape))
	}
	ranks, stride := checkUpdates(op, n, a.Codes, adapted{a.GateUpdate, a.Gate}, adapted{a.UpUpdate, a.Up}, adapted{a.DownUpdate, a.Down})
	s := dst.Stream()
	for _, w := range []**Tensor{&a.Norm, &a.Gate, &a.Up, &a.Down, &a.NextNorm} {
		*w = (*w).on(op, s)
	}
	args := kernel.FeedForwardArgs{N: n, Eps: a.Eps, Ranks: checkNext(op, ranks, cols, a.Next[:]...), CodesStride: stride}
	given, handed := a.Handoff.Fits(left(s, x, a.Normed, a.Norm, a.GateUpdate.V, a.UpUpdate.V)), false
	exec(op, s, 1, func(s kernel.Stream, p pointers) error {
		inPlace := p[1] == a.Normed.ptr()
		args.Prepared, args.NextPrepared = given && inPlace, false
		whole(op, a.Handoff, args.Prepared)
		defer func() { handed = args.NextPrepared && inPlace }()
		args.Sum, args.Normed, args.Gated, args.Product, args.X, args.Norm = p[0], p[1], p[2], p[3], p[4], p[5]
		args.Gate, args.Up, args.Down = a.Gate.weight(p[6]), a.Up.weight(p[7]), a.Down.weight(p[8])
		args.NextNorm = p[9]
		args.GateV, args.GateU, args.UpV, args.UpU, args.DownV, args.DownU, args.Codes = p[10], p[11], p[12], p[13], p[14], p[15], p[16]
		args.NextQV, args.NextKV, args.NextVV = p[17], p[18], p[19]
		if !a.Alone {
			return s.FeedForward(&args)
		}
		if part, ok := s.(kernel.PartFeeder); ok && args.Prepared {
			if err := part.FeedForwardPart(&args); !errors.Is(err, gpu.ErrUnsupported) {
				args.NextPrepared = err == nil && p[9] != nil
				return err
			}
		}
		whole(op, a.Handoff, false)
		if err := s.NormSwiGLU(args.Gated, args.X, args.Norm, a.Eps, args.Gate, args.Up, args.Normed, args.Product, n); err != nil {
			return err
		}
		return s.Linear(args.Sum, args.Gated, args.Down, nil, n)
	}, dst, a.Normed, a.Gated, a.Product, x, a.Norm, a.Gate, a.Up, a.Down, a.NextNorm, a.GateUpdate.V, a.GateUpdate.U, a.UpUpdate.V, a.UpUpdate.U,
		a.DownUpdate.V, a.DownUpdate.U, a.Codes, a.Next[0], a.Next[1], a.Next[2])
	return handOver(handed, s, dst, a.Normed, a.NextNorm, a.Next[:]...)
}

func expertFeedForward(dst, add, x *Tensor, a fused.Experts[*Tensor, Activation]) {
	const op = "expert feed forward"
	n, k, _ := expertLinear(x, a.Gate, a.GateBias, a.IDs)
	expertLinear(x, a.Up, a.UpBias, a.IDs)
	experts, inner, cols := a.Gate.shape[0], a.Gate.shape[1], a.Gate.shape[2]
	scratch(op, "result", dst, n, cols)
	if add != nil {
		scratch(op, "addend", add, n, cols)
	}
	scratch(op, "gated", a.Gated, n*k, inner)
	scratch(op, "product", a.Product, n*k, inner)
	scratch(op, "chosen", a.Chosen, n*k, cols)
	if a.Up.shape[0] != experts || a.Up.shape[1] != inner || len(a.Down.shape) != 3 || a.Down.shape[0] != experts || a.Down.shape[1] != cols ||
		a.Down.shape[2] != inner || a.Down.dtype == I32 {
		misuse(op, "gate %s, up %s and down %s do not fit", shapeString(a.Gate.shape), shapeString(a.Up.shape), shapeString(a.Down.shape))
	}
	if a.DownBias != nil && (a.DownBias.dtype != F32 || a.DownBias.n != experts*cols) {
		misuse(op, "down's bias %v %s: want F32 (%d,%d)", a.DownBias.dtype, shapeString(a.DownBias.shape), experts, cols)
	}
	if a.Weights != nil && (a.Weights.dtype != F32 || a.Weights.n != n*k) {
		misuse(op, "weights %v %s: want F32 (%d,%d)", a.Weights.dtype, shapeString(a.Weights.shape), n, k)
	}
	s := dst.Stream()
	for _, w := range []**Tensor{&a.Gate, &a.Up, &a.Down, &a.GateBias, &a.UpBias, &a.DownBias} {
		*w = (*w).on(op, s)
	}
	f := a.Activation
	args := kernel.ExpertFeedForwardArgs{N: n, K: k, Experts: experts, Activation: f.kind, Alpha: f.alpha, Limit: f.limit}
	exec(op, s, 1, func(s kernel.Stream, p pointers) error {
		args.Sum, args.Gated, args.Product, args.Chosen, args.Add, args.X, args.IDs, args.Weights = p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]
		args.Gate, args.Up, args.Down = a.Gate.expertWeight(p[8]), a.Up.expertWeight(p[9]), a.Down.expertWeight(p[10])
		args.GateBias, args.UpBias, args.DownBias = p[11], p[12], p[13]
		return s.ExpertFeedForward(&args)
	}, dst, a.Gated, a.Product, a.Chosen, add, x, a.IDs, a.Weights, a.Gate, a.Up, a.Down, a.GateBias, a.UpBias, a.DownBias)
}

func normRoute(ids, weights, normed, x *Tensor, a fused.Router[*Tensor, Router]) {
	const op = "norm route"
	checkLinear(x, a.Router, a.RouterBias)
	checkNorm(op, x, a.Norm)
	n, cols, experts, k := x.rows(), x.cols(), a.Router.shape[0], ids.cols()
	scratch(op, "normed", normed, n, cols)
	scratch(op, "logits", a.Logits, n, experts)
	r := a.Choice
	checkRoute(op, ids, weights, a.Logits, &r)
	s := ids.Stream()
	for _, w := range []**Tensor{&a.Norm, &a.Router, &a.RouterBias, &r.Bias} {
		*w = (*w).on(op, s)
	}
	args := kernel.NormRouteArgs{N: n, K: k, Groups: r.Groups, GroupsUsed: r.GroupsUsed, Eps: a.Eps, Scale: r.Scale, Gating: kernel.Gating(r.Gating),
		Normalized: r.Normalized, GroupByBest: r.GroupByBest}
	exec(op, s, 4, func(s kernel.Stream, p pointers) error {
		args.IDs, args.Weights, args.Normed, args.Logits, args.X, args.Norm = p[0], p[1], p[2], p[3], p[4], p[5]
		args.Router, args.RouterBias, args.Bias = a.Router.weight(p[6]), p[7], p[8]
		return s.NormRoute(&args)
	}, ids, weights, normed, a.Logits, x, a.Norm, a.Router, a.RouterBias, r.Bias)
}

func attentionLinearAddInto(dst, a, q, k, v *Tensor, o AttentionOptions, w, bias *Tensor, update fused.LowRank[*Tensor],
	codes, attended, product, nextNorm, normed *Tensor, next [2]*Tensor) fused.Handoff {
	const op = "attention linear add"
	args := attentionArgs(attended, q, k, v, &o)
	n, cols := args.Batch*args.Seq, args.Heads*args.ValueDim
	if o.HeadMajor || q.dtype != F32 {
		misuse(op, "queries %v %s: want F32 (batch,seq,heads,dim)", q.dtype, shapeString(q.shape))
	}
	checkLinear(attended.Reshape(n, cols), w, bias)
	checkSum(op, dst, a, product, n, w.shape[0])
	if nextNorm != nil {
		checkNorm(op, dst, nextNorm)
		scratch(op, "normed", normed, n, w.shape[0])
	}
	ranks, stride := checkUpdates(op, n, codes, adapted{update, w})
	u := kernel.UpdateArgs{N: n, Rows: w.shape[0], Cols: cols, Ranks: checkNext(op, ranks, w.shape[0], next[:]...), CodesStride: stride}
	s := dst.Stream()
	w, bias, nextNorm, o.Sinks = w.on(op, s), bias.on(op, s), nextNorm.on(op, s), o.Sinks.on(op, s)
	handed := false
	exec(op, s, 1, func(s kernel.Stream, p pointers) error {
		args.Out, args.Q, args.K, args.V, args.Positions, args.Sequences = p[1], p[4], p[5], p[6], p[7], p[8]
		args.Sinks, u.V, u.U, u.Codes, u.NextGateV, u.NextUpV = p[13], p[14], p[15], p[16], p[17], p[18]
		prepared, err := s.AttentionLinearAdd(p[0], p[3], &args, w.weight(p[9]), p[10], &u, p[2], p[11], p[12])
		handed = prepared && p[12] == normed.ptr()
		return err
	}, dst, attended, product, a, q, k, v, o.Positions, o.Sequences, w, bias, nextNorm, normed, o.Sinks, update.V, update.U, codes, next[0], next[1])
	return handOver(handed, s, dst, normed, nextNorm, next[:]...)
}

func normQKV(q, k, v, x *Tensor, a fused.QKV[*Tensor]) Written {
	const op = "norm qkv"
	checkCache(op, k, v)
	batch, seq, heads, dim, ok := tokenMajor(q)
	kvHeads, n := k.shape[1], x.rows()
	if !ok || q.dtype != F32 || dim != k.shape[3] || batch*seq != n || !isCache(k.dtype, dim) {
		misuse(op, "%s into %v %s and cache %v %s", shapeString(x.shape), q.dtype, shapeString(q.shape), k.dtype, shapeString(k.shape))
	}
	checkNorm(op, x, a.Norm)
	for _, w := range []struct {
		weight, bias *Tensor
		heads        int
	}{{a.Q, a.QBias, heads}, {a.K, a.KBias, kvHeads}, {a.V, a.VBias, kvHeads}} {
		checkLinear(x, w.weight, w.bias)
		if w.weight.shape[0] != w.heads*dim {
			misuse(op, "weight %s: want (%d,%d)", shapeString(w.weight.shape), w.heads*dim, x.cols())
		}
	}
	for _, norm := range []*Tensor{a.QNorm, a.KNorm} {
		checkNorm(op, q, norm)
		if (norm == nil) != (a.QNorm == nil) {
			misuse(op, "a norm of q or k alone")
		}
	}
	if a.Positions == nil {
		misuse(op, "%s: positions are missing", shapeString(x.shape))
	}
	heads3 := q.Reshape(n, heads, dim)
	rope := ropeArgs(heads3, heads3, a.Cos, a.Sin, a.Positions, RoPEMode(a.Mode))
	checkPlaces(op, k, a.Positions, a.Sequences, batch, seq)
	scratch(op, "normed", a.Normed, n, x.cols())
	scratch(op, "new keys", a.KNew, n, kvHeads*dim)
	scratch(op, "new values", a.VNew, n, kvHeads*dim)
	ranks, stride := checkUpdates(op, n, a.Codes, adapted{a.QUpdate, a.Q}, adapted{a.KUpdate, a.K}, adapted{a.VUpdate, a.V})
	s := q.Stream()
	for _, w := range []**Tensor{&a.Norm, &a.Q, &a.K, &a.V, &a.QBias, &a.KBias, &a.VBias, &a.QNorm, &a.KNorm, &a.Cos, &a.Sin} {
		*w = (*w).on(op, s)
	}
	args := kernel.NormQKVArgs{
		Batch: batch, Seq: seq, Heads: heads, KVHeads: kvHeads, Dim: dim, Half: rope.Half, TableRows: rope.TableRows, Capacity: k.shape[2],
		Eps: a.Eps, KVType: k.dtype, Mode: a.Mode, Ring: a.Ring, Ranks: ranks, CodesStride: stride,
	}
	given := a.Handoff.Fits(left(s, x, a.Normed, a.Norm, a.QUpdate.V, a.KUpdate.V, a.VUpdate.V))
	exec(op, s, 3, func(s kernel.Stream, p pointers) error {
		args.Prepared = given && p[3] == a.Normed.ptr()
		whole(op, a.Handoff, args.Prepared)
		args.Q, args.K, args.V, args.Normed, args.KNew, args.VNew, args.X, args.Norm = p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]
		args.WQ, args.WK, args.WV, args.BQ, args.BK, args.BV = a.Q.weight(p[8]), a.K.weight(p[9]), a.V.weight(p[10]), p[11], p[12], p[13]
		args.QNorm, args.KNorm, args.Cos, args.Sin, args.Positions, args.Sequences = p[14], p[15], p[16], p[17], p[18], p[19]
		args.QV, args.QU, args.KV, args.KU, args.VV, args.VU, args.Codes = p[20], p[21], p[22], p[23], p[24], p[25], p[26]
		return s.NormQKV(&args)
	}, q, k, v, a.Normed, a.KNew, a.VNew, x, a.Norm, a.Q, a.K, a.V, a.QBias, a.KBias, a.VBias, a.QNorm, a.KNorm, a.Cos, a.Sin, a.Positions, a.Sequences,
		a.QUpdate.V, a.QUpdate.U, a.KUpdate.V, a.KUpdate.U, a.VUpdate.V, a.VUpdate.U, a.Codes)
	return written(s, k, v, a.Positions, a.Sequences)
}

func ropeKVWrite(q, k, v, kNew, qIn, vNew *Tensor, a fused.Rotation[*Tensor]) Written {
	const op = "rope kv write"
	checkCache(op, k, v)
	batch, seq, heads, dim, ok := tokenMajor(q)
	kvHeads, n := k.shape[1], batch*seq
	if !ok || q.dtype != F32 || dim != k.shape[3] || !isCache(k.dtype, dim) {
		misuse(op, "%v %s and cache %v %s", q.dtype, shapeString(q.shape), k.dtype, shapeString(k.shape))
	}
	scratch(op, "unrotated queries", qIn, n, heads*dim)
	scratch(op, "new keys", kNew, n, kvHeads*dim)
	scratch(op, "new values", vNew, n, kvHeads*dim)
	for _, norm := range []*Tensor{a.QNorm, a.KNorm} {
		checkNorm(op, q, norm)
		if (norm == nil) != (a.QNorm == nil) {
			misuse(op, "a norm of q or k alone")
		}
	}
	if a.Positions == nil {
		misuse(op, "%s: positions are missing", shapeString(q.shape))
	}
	heads3 := q.Reshape(n, heads, dim)
	rope := ropeArgs(heads3, heads3, a.Cos, a.Sin, a.Positions, RoPEMode(a.Mode))
	checkPlaces(op, k, a.Positions, a.Sequences, batch, seq)
	s := q.Stream()
	for _, w := range []**Tensor{&a.QNorm, &a.KNorm, &a.Cos, &a.Sin} {
		*w = (*w).on(op, s)
	}
	args := kernel.RoPEKVWriteArgs{
		Batch: batch, Seq: seq, Heads: heads, KVHeads: kvHeads, Dim: dim, Half: rope.Half, TableRows: rope.TableRows, Capacity: k.shape[2],
		Eps: a.Eps, KVType: k.dtype, Mode: a.Mode, Ring: a.Ring, Settled: a.Settled,
	}
	exec(op, s, 4, func(s kernel.Stream, p pointers) error {
		args.Q, args.K, args.V, args.KNew, args.QIn, args.VNew = p[0], p[1], p[2], p[3], p[4], p[5]
		args.QNorm, args.KNorm, args.Cos, args.Sin, args.Positions, args.Sequences = p[6], p[7], p[8], p[9], p[10], p[11]
		return s.RoPEKVWrite(&args)
	}, q, k, v, kNew, qIn, vNew, a.QNorm, a.KNorm, a.Cos, a.Sin, a.Positions, a.Sequences)
	return written(s, k, v, a.Positions, a.Sequences)
}
