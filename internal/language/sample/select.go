package sample

import (
	"math"
	"slices"
)

func sortCandidates(c []candidate) {
	slices.SortFunc(c, func(a, b candidate) int {
		if better(a, b) {
			return -1
		}
		if better(b, a) {
			return 1
		}
		return 0
	})
}

// collect leaves in s.kept the tokens that penalties and top-k keep, and returns the top-k: 0 where it keeps all.
//
// With a top-k the whole vocabulary is looked at once, against the lowest logit kept so far, and nothing is sorted but
// what is kept. Penalized tokens are few: the scan leaves them out and they follow with their new logits, so that the
// logits need neither be copied nor changed.
func (s *Sampler) collect(logits []float32) (int, error) {
	s.kept = s.kept[:0]
	s.penalized = s.penalized[:0]
	for id := range s.counts {
		if id >= 0 && int(id) < len(logits) {
			s.penalized = append(s.penalized, id)
		}
	}
	slices.Sort(s.penalized)
	k := min(s.limit(), len(logits)) // sorted as SampleTop sorts candidates, be they all
	next := 0
	for _, id := range s.penalized {
		if err := s.scan(logits[:id], next, k); err != nil {
			return 0, err
		}
		next = int(id) + 1
	}
	if err := s.scan(logits, next, k); err != nil {
		return 0, err
	}
	for _, id := range s.penalized {
		logit := s.penalize(logits[id], s.counts[id])
		if logit != logit {
			return 0, notANumber(id)
		}
		if !math.IsInf(float64(logit), -1) {
			s.keep(candidate{id: id, logit: logit}, k)
		}
	}
	return k, nil
}

// scan keeps the tokens from on of logits, k of them if k is not 0.
func (s *Sampler) scan(logits []float32, from, k int) error {
	floor := float32(math.Inf(-1))
	if k > 0 && len(s.kept) == k {
		floor = s.kept[0].logit
	}
	for i, x := range logits[from:] {
		if x <= floor { // of equals the lower id is better, and it came first
			continue
		}
		if x != x {
			return notANumber(int32(from + i))
		}
		s.keep(candidate{id: int32(from + i), logit: x}, k)
		if k > 0 && len(s.kept) == k {
			floor = s.kept[0].logit
		}
	}
	return nil
}

// keep adds a candidate. With a limit s.kept is a heap once it is full, the worst candidate on top, that drops the worst.
func (s *Sampler) keep(c candidate, k int) {
	if k == 0 || len(s.kept) < k {
		s.kept = append(s.kept, c)
		if len(s.kept) == k {
			for i := k/2 - 1; i >= 0; i-- {
				s.sink(i)
			}
		}
		return
	}
	if better(c, s.kept[0]) {
		s.kept[0] = c
		s.sink(0)
	}
}

func (s *Sampler) sink(i int) {
	h := s.kept
	for {
		worst := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if better(h[worst], h[child]) {
				worst = child
			}
		}
		if worst == i {
			return
		}
		h[i], h[worst] = h[worst], h[i]
		i = worst
	}
}

// weigh gives each candidate its weight relative to the likeliest and returns the sum.
func (s *Sampler) weigh() float64 {
	total, top := 0.0, s.top()
	for i := range s.kept {
		s.kept[i].weight = exp(float64(s.kept[i].logit) - top)
		total += s.kept[i].weight
	}
	return total
}

// cut applies top-p and min-p to ranked and weighed candidates; total is the sum of the weights of all there were. Both
// keep a first part of the ranking, so their order makes no difference.
func (s *Sampler) cut(total float64) {
	n := len(s.kept)
	sum := 0.0
	for i, c := range s.kept {
		if i > 0 && c.weight < s.opts.MinP {
			n = i
			break
		}
		if sum += c.weight; s.opts.TopP < 1 && sum >= float64(s.opts.TopP*total) {
			n = i + 1
			break
		}
	}
	s.kept = s.kept[:n]
}

// cutAll cuts where there is no top-k. Nothing is sorted but what may be kept: min-p drops tokens by their weight alone,
// and so are dropped those so light that all of them together are less than what top-p drops.
func (s *Sampler) cutAll() error {
	best := 0
	for i, c := range s.kept {
		if better(c, s.kept[best]) {
			best = i
		}
	}
	if len(s.kept) == 0 || math.IsInf(float64(s.kept[best].logit), 1) {
		if len(s.kept) > 0 {
			s.kept[0] = s.kept[best]
		}
		return s.usable()
	}
	if s.opts.MinP == 0 && s.opts.TopP == 1 {
		return nil // all stay, in the order of their ids
	}
	if s.opts.TopP == 1 {
		// Only the ratio to the likeliest counts: most need no exponential to be too light. The margin covers rounding.
		low := float64(s.kept[best].logit) + math.Log(s.opts.MinP) - 1e-3
		s.keepIf(func(c candidate) bool { return float64(c.logit) >= low })
	}
	total := s.weigh()
	// Half of what top-p drops leaves room for the rounding of the sums. The likeliest weighs 1, which is never too light.
	light := max(s.opts.MinP, float64((1-s.opts.TopP)*total)/float64(2*len(s.kept)))
	s.keepIf(func(c candidate) bool { return c.weight >= light })
	sortCandidates(s.kept)
	s.cut(total)
	return nil
}

func (s *Sampler) keepIf(keep func(c candidate) bool) {
	left := s.kept[:0]
	for _, c := range s.kept {
		if keep(c) {
			left = append(left, c)
		}
	}
	s.kept = left
}

// exp is e to the power of x, for x up to 0, to about 1e-12; below 1e-307 it is 0. Unlike math.Exp, which has different
// code on different processors, it rounds alike everywhere: the conversions forbid that a product and a sum are rounded
// as one.
func exp(x float64) float64 {
	if x < -707 {
		return 0
	}
	k := int(float64(x*math.Log2E) - 0.5)                                       // to the nearest, as x is not above 0
	const ln2Hi, ln2Lo = 6.93147180369123816490e-01, 1.90821492927058770002e-10 // ln 2, the first part with zeros at its end
	r := float64(x-float64(float64(k)*ln2Hi)) - float64(float64(k)*ln2Lo)       // at most ln(2)/2
	// The series of e^r, its terms in groups so that the products need not wait for each other.
	r2 := float64(r * r)
	r4 := float64(r2 * r2)
	a := 1 + r
	b := float64(r2 * (1.0/2 + float64(r*(1.0/6))))
	c := float64(r4 * (1.0/24 + float64(r*(1.0/120)) + float64(r2*(1.0/720+float64(r*(1.0/5040))))))
	d := float64(float64(r4*r4) * (1.0/40320 + float64(r*(1.0/362880)) + float64(r2*(1.0/3628800))))
	return (a + (b + (c + d))) * math.Float64frombits(uint64(k+1023)<<52)
}
