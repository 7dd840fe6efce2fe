package purego

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// mostExperts is the most that a router chooses from, as csrc/ops_experts.c has it.
const mostExperts = 1024

func (s *stream) Route(a *kernel.RouteArgs) error {
	const op = "route"
	size, err := volume(op, a.N, a.Experts)
	switch {
	case err != nil:
		return err
	case a.K < 0 || a.K > a.Experts:
		return fmt.Errorf("%s: %d of %d experts: %w", op, a.K, a.Experts, kernel.ErrInvalid)
	case a.Groups < 0 || a.Groups > 0 && (a.Experts%a.Groups != 0 || a.GroupsUsed <= 0 || a.GroupsUsed > a.Groups || a.K > a.Experts/a.Groups*a.GroupsUsed):
		return fmt.Errorf("%s: %d of %d experts, %d of %d groups: %w", op, a.K, a.Experts, a.GroupsUsed, a.Groups, kernel.ErrInvalid)
	case size == 0 || a.K == 0:
		return nil
	case a.Gating < kernel.GatingSoftmax || a.Gating > kernel.GatingSigmoid:
		return fmt.Errorf("%s: gating %d: %w", op, a.Gating, kernel.ErrInvalid)
	case a.Experts > mostExperts:
		return fmt.Errorf("%s: %d experts: %w", op, a.Experts, kernel.ErrUnsupported)
	}
	if err := notNil(op, a.IDs, a.Weights, a.Logits); err != nil {
		return err
	}
	logits, bias := slice[float32](a.Logits, size), optional(a.Bias, a.Experts)
	ids, weights := slice[int32](a.IDs, a.N*a.K), slice[float32](a.Weights, a.N*a.K)
	s.device.parallel(a.N, grain(a.Experts*(a.K+8)), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			routeRow(a, ids[r*a.K:][:a.K], weights[r*a.K:][:a.K], logits[r*a.Experts:][:a.Experts], bias)
		}
	})
	return nil
}

func routeRow(a *kernel.RouteArgs, ids []int32, weights, logits, bias []float32) {
	scores, values, taken := make([]float64, a.Experts), make([]float64, a.Experts), make([]bool, a.Experts)
	top, sum := math.Inf(-1), 0.0
	for _, l := range logits {
		top = math.Max(top, float64(l))
	}
	for e, l := range logits {
		if a.Gating == kernel.GatingSigmoid {
			scores[e] = 1 / (1 + math.Exp(-float64(l)))
		} else {
			scores[e] = math.Exp(float64(l) - top)
		}
		sum += scores[e]
	}
	for e, l := range logits {
		if a.Gating == kernel.GatingSoftmax {
			scores[e] /= sum
		}
		values[e] = float64(l) // scores rise with logits
		if bias != nil || a.Groups > 0 {
			values[e] = scores[e]
		}
		if bias != nil {
			values[e] += float64(bias[e])
		}
	}
	if a.Groups > 0 {
		leaveGroups(a, values, taken)
	}
	chosen := 0.0
	for j := range ids {
		ids[j] = int32(takeBest(values, taken))
		chosen += scores[ids[j]]
	}
	factor := float64(a.Scale)
	if (a.Normalized || a.Gating == kernel.GatingSoftmaxChosen) && chosen != 0 {
		factor /= chosen
	}
	for j, id := range ids {
		weights[j] = float32(scores[id] * factor)
	}
}

// takeBest returns the index of the greatest value that is not taken, the lowest among equals, and takes it. NaN is the greatest.
func takeBest(values []float64, taken []bool) int {
	best := -1
	for i, v := range values {
		if !taken[i] && (best < 0 || v > values[best] || v != v && values[best] == values[best]) {
			best = i
		}
	}
	taken[best] = true
	return best
}

// leaveGroups takes the experts of all groups but the best.
func leaveGroups(a *kernel.RouteArgs, values []float64, taken []bool) {
	size := a.Experts / a.Groups
	scores, used := make([]float64, a.Groups), make([]bool, a.Groups)
	for g := range scores {
		of, left := values[g*size:][:size], make([]bool, size)
		scores[g] = of[takeBest(of, left)]
		if !a.GroupByBest && size > 1 {
			scores[g] += of[takeBest(of, left)]
		}
	}
	for range a.GroupsUsed {
		takeBest(scores, used)
	}
	for e := range taken {
		taken[e] = !used[e/size]
	}
}

// ExpertLinear multiplies the rows of each chosen expert together, by Linear.
func (s *stream) ExpertLinear(a *kernel.ExpertLinearArgs) error {
	const op = "expert_linear"
	if _, err := weightBytes(op, a.W); err != nil {
		return err
	}
	weights, err := volume(op, a.Experts, a.W.Rows, a.W.Cols)
	if err != nil {
		return err
	}
	inner, err := volume(op, a.N, a.K, a.W.Cols)
	if err != nil {
		return err
	}
	if size, err := volume(op, a.N, a.K, a.W.Rows); size == 0 {
		return err
	}
	if err := notNil(op, a.Y, a.IDs); err != nil {
		return err
	}
	if weights > 0 && inner > 0 {
		if err := notNil(op, a.X, a.W.Data); err != nil {
			return err
		}
	}
	choices := make([][]int, a.Experts)
	for i, id := range slice[int32](a.IDs, a.N*a.K) {
		if id < 0 || int(id) >= a.Experts {
			return fmt.Errorf("%s: id %d at %d, there are %d experts: %w", op, id, i, a.Experts, kernel.ErrInvalid)
		}
		choices[id] = append(choices[id], i)
	}
	share := a.K // choices with one row of x
	if a.XPerChoice {
		share = 1
	}
	rows, cols := a.W.Rows, a.W.Cols
	x, y, bias := slice[float32](a.X, a.N*a.K/share*cols), slice[float32](a.Y, a.N*a.K*rows), optional(a.Bias, a.Experts*rows)
	for e, mine := range choices {
		if len(mine) == 0 {
			continue
		}
		in, out := make([]float32, len(mine)*cols+1), make([]float32, len(mine)*rows) // an address of x where there are no columns
		for i, c := range mine {
			copy(in[i*cols:(i+1)*cols], x[c/share*cols:])
		}
		w := a.W
		w.Data = unsafe.Add(w.Data, int64(e)*w.Type.Bytes(rows*cols))
		var b kernel.Ptr
		if bias != nil {
			b = unsafe.Pointer(&bias[e*rows])
		}
		if err := s.Linear(unsafe.Pointer(&out[0]), unsafe.Pointer(&in[0]), w, b, len(mine)); err != nil {
			return err
		}
		for i, c := range mine {
			copy(y[c*rows:(c+1)*rows], out[i*rows:])
		}
	}
	return nil
}

func (s *stream) ExpertSum(out, add, y, weights kernel.Ptr, n, k, cols int) error {
	const op = "expert_sum"
	inner, err := volume(op, n, k, cols)
	if err != nil {
		return err
	}
	size, err := volume(op, n, cols)
	if size == 0 {
		return err
	}
	if err := notNil(op, out); err != nil {
		return err
	}
	if inner > 0 {
		if err := notNil(op, y); err != nil {
			return err
		}
	}
	dst, base, in, w := slice[float32](out, size), optional(add, size), slice[float32](y, inner), optional(weights, n*k)
	s.device.parallel(n, grain(cols*(k+1)), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			for c := range cols {
				sum := 0.0
				if base != nil {
					sum = float64(base[r*cols+c])
				}
				for i := r * k; i < (r+1)*k; i++ {
					v := float64(in[i*cols+c])
					if w != nil {
						v *= float64(w[i])
					}
					sum += v
				}
				dst[r*cols+c] = float32(sum)
			}
		}
	})
	return nil
}
