package tensor

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// Gating says how a router scores experts.
type Gating int

// The gatings.
const (
	GatingSoftmax       = Gating(kernel.GatingSoftmax)       // softmax over all experts (Qwen, DeepSeek-V2)
	GatingSoftmaxChosen = Gating(kernel.GatingSoftmaxChosen) // softmax over the chosen alone (gpt-oss, Granite)
	GatingSigmoid       = Gating(kernel.GatingSigmoid)       // 1 / (1 + exp(-logit)) (DeepSeek-V3, GLM 4.5, Llama 4)
)

// Router says how Route chooses.
type Router struct {
	Gating     Gating
	Normalized bool    // divide the chosen scores by their sum
	Scale      float32 // of the weights; 0 means 1
	Bias       *Tensor // F32 of the experts, added to scores for the choice alone; nil for none

	// Groups of neighbours, of which the GroupsUsed best are chosen from; 0 for none. A group's score is the sum of its two best
	// scores, or its best where GroupByBest.
	Groups, GroupsUsed int
	GroupByBest        bool
}

// Route chooses k experts for each row of logits (..., experts), F32, at most 1024: ids (I32) and weights (F32) are (..., k), the best
// first, the lowest index first among equals (Shazeer et al. 2017). Panics: *ShapeError, *OpError.
func Route(logits *Tensor, k int, r Router) (ids, weights *Tensor) {
	checkRows("route", logits, k)
	shape := append(logits.Shape()[:len(logits.shape)-1], k)
	ids, weights = output("route", logits.Stream(), I32, shape), output("route", logits.Stream(), F32, shape)
	RouteInto(ids, weights, logits, r)
	return ids, weights
}

// RouteInto writes Route(logits, k, r) to ids and weights, whose last dimension is k. Panics: *ShapeError, *OpError.
func RouteInto(ids, weights, logits *Tensor, r Router) {
	const op = "route"
	checkRoute(op, ids, weights, logits, &r)
	n, experts, k := logits.rows(), logits.cols(), ids.cols()
	args := kernel.RouteArgs{N: n, Experts: experts, K: k, Groups: r.Groups, GroupsUsed: r.GroupsUsed, Scale: r.Scale, Gating: kernel.Gating(r.Gating),
		Normalized: r.Normalized, GroupByBest: r.GroupByBest}
	exec(op, ids.Stream(), 2, func(s kernel.Stream, p pointers) error {
		args.IDs, args.Weights, args.Logits, args.Bias = p[0], p[1], p[2], p[3]
		return s.Route(&args)
	}, ids, weights, logits, r.Bias.on(op, ids.Stream()))
}

// checkRoute checks the operands of a choice, and sets its scale where that is 1.
func checkRoute(op string, ids, weights, logits *Tensor, r *Router) {
	k := ids.cols()
	checkRows(op, logits, k)
	n, experts := logits.rows(), logits.cols()
	if ids.dtype != I32 || weights.dtype != F32 || ids.n != n*k || weights.n != n*k {
		misuse(op, "%s into %v %s and %v %s: want I32 and F32 of %d rows", shapeString(logits.shape), ids.dtype, shapeString(ids.shape),
			weights.dtype, shapeString(weights.shape), n)
	}
	if r.Bias != nil && (r.Bias.dtype != F32 || r.Bias.n != experts) {
		misuse(op, "bias %v %s: want F32 of %d", r.Bias.dtype, shapeString(r.Bias.shape), experts)
	}
	if r.Groups < 0 || r.Groups > 0 && (experts%r.Groups != 0 || r.GroupsUsed <= 0 || r.GroupsUsed > r.Groups || k > experts/r.Groups*r.GroupsUsed) {
		misuse(op, "%d of %d experts in %d of %d groups", k, experts, r.GroupsUsed, r.Groups)
	}
	if r.Scale == 0 {
		r.Scale = 1
	}
}

// ExpertLinear multiplies rows with the experts chosen for them: w is (experts, rows, cols) of any type of weights, bias (experts,
// rows) F32 or nil, ids (n, k) I32; x is F32 (n, cols), shared by a token's choices, or (n, k, cols). The result is (n, k, rows):
// for choice i, x W[ids[i]]^T + bias[ids[i]], with the accuracy of Linear. Only the chosen experts are read. Pack makes w one that a
// GPU reads faster.
//
// An id of no expert gives a row of NaN on a GPU and an OpError on the CPU. Panics: *ShapeError, *OpError.
func ExpertLinear(x, w, bias, ids *Tensor) *Tensor {
	n, k, _ := expertLinear(x, w, bias, ids)
	out := output("expert linear", x.Stream(), F32, []int{n, k, w.shape[1]})
	ExpertLinearInto(out, x, w, bias, ids)
	return out
}

// ExpertLinearInto writes ExpertLinear(x, w, bias, ids) to dst; not in place. Panics: *ShapeError, *OpError.
func ExpertLinearInto(dst, x, w, bias, ids *Tensor) {
	const op = "expert linear"
	n, k, perChoice := expertLinear(x, w, bias, ids)
	if dst.dtype != F32 || dst.n != n*k*w.shape[1] {
		misuse(op, "into %v %s: want F32 (%d,%d,%d)", dst.dtype, shapeString(dst.shape), n, k, w.shape[1])
	}
	args := kernel.ExpertLinearArgs{N: n, K: k, Experts: w.shape[0], XPerChoice: perChoice}
	w, bias = w.on(op, dst.Stream()), bias.on(op, dst.Stream())
	exec(op, dst.Stream(), 1, func(s kernel.Stream, p pointers) error {
		args.Y, args.X, args.Bias, args.IDs = p[0], p[1], p[3], p[4]
		args.W = w.expertWeight(p[2])
		return s.ExpertLinear(&args)
	}, dst, x, w, bias, ids)
}

// expertWeight describes the matrix of the first of the experts (experts, rows, cols) at an address.
func (t *Tensor) expertWeight(p kernel.Ptr) kernel.Weight {
	return kernel.Weight{Data: p, Type: t.dtype, Packed: t.packed, Rows: t.shape[1], Cols: t.shape[2]}
}

func expertLinear(x, w, bias, ids *Tensor) (n, k int, perChoice bool) {
	const op = "expert linear"
	if len(w.shape) != 3 || integers(w.dtype) || len(ids.shape) != 2 || ids.dtype != I32 {
		misuse(op, "weights %v %s and ids %v %s: want (experts,rows,cols) and I32 (n,k)", w.dtype, shapeString(w.shape), ids.dtype, shapeString(ids.shape))
	}
	n, k = ids.shape[0], ids.shape[1]
	cols := w.shape[2]
	perChoice = len(x.shape) == 3
	if x.dtype != F32 || len(x.shape) == 0 || x.cols() != cols || x.n != n*cols && !perChoice || x.n != n*k*cols && perChoice {
		misuse(op, "%v %s with ids %s and weights %s: want F32 (%d,%d) or (%d,%d,%d)", x.dtype, shapeString(x.shape), shapeString(ids.shape),
			shapeString(w.shape), n, cols, n, k, cols)
	}
	if bias != nil && (bias.dtype != F32 || bias.n != w.shape[0]*w.shape[1]) {
		misuse(op, "bias %v %s: want F32 (%d,%d)", bias.dtype, shapeString(bias.shape), w.shape[0], w.shape[1])
	}
	return n, k, perChoice
}

// ExpertSum returns add + the sum over j of weights[..., j] * y[..., j, :]: y is F32 (n, k, cols), weights (n, k) or nil for ones, add
// (n, cols) or nil for none. Panics: *ShapeError, *OpError.
func ExpertSum(add, y, weights *Tensor) *Tensor {
	n, _, cols := expertSum(add, y, weights)
	out := output("expert sum", y.Stream(), F32, []int{n, cols})
	ExpertSumInto(out, add, y, weights)
	return out
}

// ExpertSumInto writes ExpertSum(add, y, weights) to dst, which may be add. Panics: *ShapeError, *OpError.
func ExpertSumInto(dst, add, y, weights *Tensor) {
	const op = "expert sum"
	n, k, cols := expertSum(add, y, weights)
	if dst.dtype != F32 || dst.n != n*cols {
		misuse(op, "%s into %v %s: want F32 (%d,%d)", shapeString(y.shape), dst.dtype, shapeString(dst.shape), n, cols)
	}
	exec(op, dst.Stream(), 1, func(s kernel.Stream, p pointers) error {
		return s.ExpertSum(p[0], p[1], p[2], p[3], n, k, cols)
	}, dst, add, y, weights)
}

func expertSum(add, y, weights *Tensor) (n, k, cols int) {
	const op = "expert sum"
	if len(y.shape) != 3 || y.dtype != F32 {
		misuse(op, "%v %s: want F32 (n,k,cols)", y.dtype, shapeString(y.shape))
	}
	n, k, cols = y.shape[0], y.shape[1], y.shape[2]
	if weights != nil && (weights.dtype != F32 || weights.n != n*k) {
		misuse(op, "%s with weights %v %s: want F32 (%d,%d)", shapeString(y.shape), weights.dtype, shapeString(weights.shape), n, k)
	}
	if add != nil && (add.dtype != F32 || add.n != n*cols) {
		misuse(op, "%s added to %v %s: want F32 (%d,%d)", shapeString(y.shape), add.dtype, shapeString(add.shape), n, cols)
	}
	return n, k, cols
}
