package tensor

import (
	"runtime"
	"slices"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/fused"
)

// AllReduceInto computes out[r] = in[0] + in[1] + ... + add[r], in the order of ranks, for each rank r of a
// communicator: tensors of F32 and one length, those of a rank on its stream. add may be nil; out[r] may be in[r] or
// add[r]. Every rank gets the same bits of the sum. It may be captured (gpu.Communicator.Capture).
// Panics: *ShapeError, *OpError.
func AllReduceInto(c *gpu.Communicator, out, in, add []*Tensor) {
	allReduce("all reduce", c, out, in, add, false)
}

// AllReduceRoundedInto is AllReduceInto where a device may round each summand to 2^-13 of the largest of its 8 neighbours (the
// elements 8 j to 8 j + 7). GPUs do so where many elements cross, which takes half of the time. Panics: *ShapeError, *OpError.
func AllReduceRoundedInto(c *gpu.Communicator, out, in, add []*Tensor) {
	allReduce("all reduce rounded", c, out, in, add, true)
}

func allReduce(op string, c *gpu.Communicator, out, in, add []*Tensor, rounded bool) {
	all := [][]*Tensor{out, in}
	if add != nil {
		all = append(all, add)
	}
	n := checkRanks(op, c, all...)
	if c.Ranks() == 1 {
		if add != nil {
			AddInto(out[0], in[0], add[0])
		} else if out[0] != in[0] {
			CopyInto(out[0], in[0])
		}
		return
	}
	collective(op, c, func(k kernel.Communicator) error {
		var adds []kernel.Ptr
		if add != nil {
			adds = pointersOf(add)
		}
		return k.AllReduce(pointersOf(out), pointersOf(in), adds, n, rounded)
	}, all...)
}

// allReduceNorm is AllReduceNorm of internal/fused.
func allReduceNorm(c *gpu.Communicator, out, in, add []*Tensor, a fused.Reduction[*Tensor]) []fused.Handoff {
	const op = "all reduce norm"
	checkRanks(op, c, out, in, add)
	rows, cols, ready := out[0].rows(), out[0].cols(), c.Ranks() > 1 && len(a.Norm) > 0
	for r, norm := range a.Norm {
		checkNorm(op, out[r], norm)
		scratch(op, "normed", a.Normed[r], rows, cols)
		ready = ready && norm != nil && a.Handoffs[r].Fits(left(c.Stream(r), in[r], a.Normed[r], norm))
	}
	all := make([]fused.Handoff, len(out))
	if !ready && !a.AddParted {
		allReduce(op, c, out, in, add, true)
		return all
	}
	sum := kernel.SumOfRows{Add: pointersOf(add), N: rows, Cols: cols, From: a.From, AddParted: a.AddParted, Parted: a.Parted}
	operands := [][]*Tensor{out, in, add}
	if ready {
		sum.Norm, sum.Normed = pointersOf(a.Norm), pointersOf(a.Normed)
		operands = append(operands, a.Norm, a.Normed)
	}
	collective(op, c, func(k kernel.Communicator) (err error) {
		reducer, ok := k.(kernel.LayerReducer)
		if !ok {
			return k.AllReduce(pointersOf(out), pointersOf(in), pointersOf(add), rows*cols, true)
		}
		return reducer.AllReduceRows(pointersOf(out), pointersOf(in), &sum)
	}, operands...)
	for r := range all {
		switch {
		case sum.Prepared && sum.Parted:
			all[r] = fused.HandOverParts(left(c.Stream(r), out[r], a.Normed[r], a.Norm[r]))
		case sum.Prepared:
			all[r] = fused.HandOver(left(c.Stream(r), out[r], a.Normed[r], a.Norm[r]))
		}
	}
	return all
}

// linearAllReduce is LinearAllReduce of internal/fused.
func linearAllReduce(c *gpu.Communicator, out, add []*Tensor, parts []fused.Part[*Tensor]) {
	const op = "linear all reduce"
	var product, x, w, bias []*Tensor
	var weights []kernel.Weight
	for r, p := range parts {
		checkLinear(p.X, p.W, p.Bias)
		s := c.Stream(r)
		product, x = append(product, p.Product), append(x, p.X)
		w, bias = append(w, p.W.on(op, s)), append(bias, p.Bias.on(op, s))
		weights = append(weights, w[r].weight(w[r].ptr()))
	}
	checkRanks(op, c, out, product, add)
	n := x[0].rows()
	composed := c.Ranks() == 1
	if !composed {
		collective(op, c, func(k kernel.Communicator) error {
			reducer, ok := k.(kernel.LayerReducer)
			if composed = !ok; composed {
				return nil
			}
			return reducer.LinearAllReduce(pointersOf(out), pointersOf(product),
				&kernel.SumOfProducts{Add: pointersOf(add), X: pointersOf(x), Bias: pointersOf(bias), W: weights, N: n})
		}, out, product, add, x)
	}
	if composed {
		for _, p := range parts {
			LinearInto(p.Product, p.X, p.W, p.Bias)
		}
		allReduce(op, c, out, product, add, true)
	}
	runtime.KeepAlive(w)
	runtime.KeepAlive(bias)
}

// AllGatherInto puts the rows of in[0], in[1], ... side by side into each out[r] (rows, sum of columns), of F32. Those
// of a rank lie on its stream. out must not be among in. It may be captured (gpu.Communicator.Capture).
// Panics: *ShapeError, *OpError.
func AllGatherInto(c *gpu.Communicator, out, in []*Tensor) { AllGatherColumnsInto(c, out, in, nil) }

// AllGatherColumnsInto is AllGatherInto where each rank's columns are given, those of this process too. Without them the ranks of
// other processes have as many columns as this one. Panics: *ShapeError, *OpError.
func AllGatherColumnsInto(c *gpu.Communicator, out, in []*Tensor, columns []int) {
	const op = "all gather"
	checkRanks(op, c, out)
	rows, total := out[0].rows(), 0
	if len(in) != c.Local() || columns != nil && len(columns) != c.Ranks() {
		misuse(op, "%d parts of %d ranks, columns of %d", len(in), c.Local(), len(columns))
	}
	cols := slices.Clone(columns)
	if cols == nil {
		cols = slices.Repeat([]int{in[0].cols()}, c.Ranks())
		for r, t := range in {
			cols[c.First()+r] = t.cols()
		}
	}
	for r, t := range in {
		if t.dtype != F32 || t.rows() != rows {
			misuse(op, "%v %s of rank %d, want F32 of %d rows", t.dtype, shapeString(t.shape), r, rows)
		}
		if t.Stream() != c.Stream(r) {
			misuse(op, "operand of rank %d is on a stream of %s", r, t.Device())
		}
		if own := cols[c.First()+r]; own != t.cols() {
			misuse(op, "%d columns of rank %d, want %d", t.cols(), c.First()+r, own)
		}
	}
	for _, n := range cols {
		total += n
	}
	if total != out[0].cols() {
		misuse(op, "%d parts of %d columns into %s of %d ranks", len(cols), total, shapeString(out[0].shape), c.Ranks())
	}
	if c.Ranks() == 1 {
		CopyInto(out[0], in[0])
		return
	}
	collective(op, c, func(k kernel.Communicator) error { return k.AllGather(pointersOf(out), pointersOf(in), rows, cols) }, out, in)
}

// BroadcastInto copies the first rank's tensor to those of the others, of one length, F32 or I32 and without gaps. It
// may be captured (gpu.Communicator.Capture). Panics: *ShapeError, *OpError.
func BroadcastInto(c *gpu.Communicator, all []*Tensor) {
	const op = "broadcast"
	if len(all) != c.Local() {
		misuse(op, "operands of %d ranks, want %d", len(all), c.Local())
	}
	for r, t := range all {
		if t.dtype != all[0].dtype || t.dtype != F32 && t.dtype != I32 || t.n != all[0].n || t.Stream() != c.Stream(r) {
			misuse(op, "%v %s of rank %d on %s, want %v of %d elements on its stream", t.dtype, shapeString(t.shape), r, t.Device(), all[0].dtype, all[0].n)
		}
	}
	if c.Ranks() == 1 {
		return
	}
	collective(op, c, func(k kernel.Communicator) error { return k.Broadcast(pointersOf(all), all[0].n, 0) }, all)
}

// SendInto copies a tensor of a rank to a rank's tensor of the same length, both F32 or I32 and without gaps, in the order of
// their streams. in is nil where this process does not have the first rank, out where it does not have the other. Other
// ranks call it too. It may be captured (gpu.Communicator.Capture). Panics: *ShapeError, *OpError.
func SendInto(c *gpu.Communicator, out, in *Tensor, from, to int) {
	const op = "send"
	if from < 0 || from >= c.Ranks() || to < 0 || to >= c.Ranks() {
		misuse(op, "from rank %d to %d of %d", from, to, c.Ranks())
	}
	var ends []*Tensor
	for _, end := range []struct {
		t    *Tensor
		rank int
	}{{out, to}, {in, from}} {
		i := end.rank - c.First()
		if here := i >= 0 && i < c.Local(); here != (end.t != nil) {
			misuse(op, "operand of rank %d: want it where the rank is of this process, nil elsewhere", end.rank)
		} else if !here {
			continue
		}
		if t := end.t; t.dtype != F32 && t.dtype != I32 || t.Stream() != c.Stream(i) {
			misuse(op, "%v %s of rank %d on %s, want F32 or I32 on its stream", t.dtype, shapeString(t.shape), end.rank, t.Device())
		}
		ends = append(ends, end.t)
	}
	if len(ends) == 0 {
		return
	}
	if a, b := ends[0], ends[len(ends)-1]; a.n != b.n || a.dtype != b.dtype {
		misuse(op, "%v %s into %v %s", b.dtype, shapeString(b.shape), a.dtype, shapeString(a.shape))
	}
	if c.Ranks() == 1 {
		if out != in {
			CopyInto(out, in)
		}
		return
	}
	pointers := pointersOf([]*Tensor{out, in})
	collective(op, c, func(k kernel.Communicator) error { return k.Send(pointers[0], pointers[1], ends[0].n, from, to) }, ends)
}

// checkRanks panics unless each list has a tensor of F32 for each rank, on its stream, all of one length, which it
// returns.
func checkRanks(op string, c *gpu.Communicator, lists ...[]*Tensor) int {
	n := -1
	for _, list := range lists {
		if len(list) != c.Local() {
			misuse(op, "operands of %d ranks, want %d", len(list), c.Local())
		}
		for r, t := range list {
			if n < 0 {
				n = t.n
			}
			if t.dtype != F32 || t.n != n || t.Stream() != c.Stream(r) {
				misuse(op, "%v %s of rank %d on %s, want F32 of %d elements on the stream of %s", t.dtype, shapeString(t.shape), r,
					t.Device(), n, c.Stream(r).Device())
			}
		}
	}
	return n
}

// pointersOf returns the addresses of a rank's operands.
func pointersOf(tensors []*Tensor) []kernel.Ptr {
	p := make([]kernel.Ptr, len(tensors))
	for i, t := range tensors {
		if t != nil {
			p[i] = t.ptr()
		}
	}
	return p
}

// collective enqueues a collective on the streams of all ranks.
func collective(op string, c *gpu.Communicator, f func(kernel.Communicator) error, lists ...[]*Tensor) {
	for _, list := range lists {
		for r, t := range list {
			if t.strides != nil {
				misuse(op, "%s of rank %d is a view with strides", shapeString(t.shape), r)
			}
		}
	}
	err := c.Do(func(k kernel.Communicator) error {
		for _, list := range lists {
			for _, t := range list {
				if err := t.buffer.Err(); err != nil {
					return err
				}
			}
		}
		return f(k)
	})
	runtime.KeepAlive(lists)
	if err != nil {
		var operands []*Tensor
		for _, list := range lists {
			operands = append(operands, list...)
		}
		fail(op, err, operands...)
	}
}
