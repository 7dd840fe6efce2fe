package tensor_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/optable"
	"github.com/vibrant-ml/vibrant/internal/fused"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestProductsOfPromptsHoweverTheyAreCutUp holds products of many rows with packed weights to float64 at some of their results: a GPU
// cuts them up by the sizes, in tiles of several widths, in parts that several blocks add up, and in more than all blocks
// take at once. CPUs, which do not, get one size.
func TestProductsOfPromptsHoweverTheyAreCutUp(t *testing.T) {
	const cols = 512
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		ns, rows := []int{5, 20, 32, 64, 128, 200, 300, 512, 1030}, []int{100, 2048, 6000, 17001}
		if d.Info().ID == "cpu" || b.Name() == "fake" {
			ns, rows = []int{65}, []int{100}
		}
		most := rows[len(rows)-1]
		added := make([]float64, ns[len(ns)-1]*most)
		for i := range added {
			added[i] = float64(i%13-6) / 16
		}
		add := optable.Floats(added)
		for _, dtype := range []tensor.DType{tensor.Q4_K, tensor.Q6_K, tensor.Q5_0} {
			g := optable.NewGenerator(uint64(dtype))
			w, up, bias := g.Weight(dtype, most, cols), g.Weight(dtype, most, cols), g.Normal(tensor.F32, most)
			norm := g.Offset(1, tensor.F32, cols)
			for _, n := range ns {
				x := g.Normal(tensor.F32, n, cols)
				for _, r := range rows {
					t.Run(fmt.Sprintf("%v_%dx%dx%d", dtype, n, cols, r), func(t *testing.T) {
						p := promptProduct{t, d, n, cols, r, x, norm, add}
						p.linearAdd(w, bias)
						p.normSwiGLU(w, up)
					})
				}
			}
		}
	})
}

// TestRowsOfAnySizeMeetNarrowWeights holds rows that 16-bit floats do not reach, beside rows that they do, to float64: a GPU rounds rows
// to the type of the weights, and scales those that would overflow or vanish. Some are large in their last columns alone.
func TestRowsOfAnySizeMeetNarrowWeights(t *testing.T) {
	const rows = 132
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		for _, dtype := range []tensor.DType{tensor.F16, tensor.BF16, tensor.Q8_0} {
			cols := 1032
			if dtype.Quantized() {
				cols = 1024
			}
			g := optable.NewGenerator(uint64(dtype))
			w := g.Weight(dtype, rows, cols)
			for _, n := range []int{1, 2, 16, 17, 32, 33, 64, 65} {
				x := g.Normal(tensor.F32, n, cols).Values
				for i := range n {
					first := i % 2 * (cols - 100) // the columns before stay as they are
					for k := first; k < cols; k++ {
						x[i*cols+k] *= []float64{1, 1e6, 1e-6, 1e20, 1e-20, 0}[i%6]
					}
				}
				p := promptProduct{T: t, device: d, n: n, cols: cols}
				at := optable.Floats(x, n, cols)
				y := tensor.Linear(p.on(at, n, cols), p.on(w, rows, cols), nil)
				got := y.Float32s()
				y.Free()
				for i := range n {
					var wrong, scale float64
					for r := range rows {
						want, s := p.dot(at.Values[i*cols:(i+1)*cols], w, r)
						e := float64(got[i*rows+r]) - want
						wrong, scale = wrong+e*e, scale+s*s
					}
					if !(wrong <= 0.005*0.005*scale) { // the contract of Linear
						t.Errorf("%v, %d rows: row %d is off by %g of %g (RMS)", dtype, n, i, math.Sqrt(wrong/rows), math.Sqrt(scale/rows))
					}
				}
			}
		}
	})
}

// TestFeedForwardOfLargeRowsLeavesOthersAsTheyWere computes rows whose h is far beyond what 16-bit floats reach among rows of common
// size: these must come out as they do alone.
func TestFeedForwardOfLargeRowsLeavesOthersAsTheyWere(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		sizes := [][3]int{{20, 2048, 1024}, {31, 256, 2048}, {200, 256, 1024}, {520, 2048, 1024}, {1100, 2048, 2048}} // rows, columns, inner
		if d.Info().ID == "cpu" || b.Name() == "fake" {
			sizes = [][3]int{{33, 256, 256}}
		}
		for _, dtype := range []tensor.DType{tensor.Q4_K, tensor.Q6_K, tensor.Q8_0} {
			for _, size := range sizes {
				feedForwardOfLargeRows(t, d, dtype, size[0], size[1], size[2])
			}
		}
	})
}

func feedForwardOfLargeRows(t *testing.T, d *gpu.Device, dtype tensor.DType, n, cols, inner int) {
	const large = 3 // every third row
	g := optable.NewGenerator(uint64(dtype))
	norm, x := g.Offset(1, tensor.F32, cols).Values, g.Normal(tensor.F32, n, cols).Values
	clear := func(remainders ...int) { // the columns that are normed to thousands, of some rows
		for i := range n {
			if slices.Contains(remainders, i%large) {
				for j := range 8 {
					x[i*cols+j] = 0
				}
			}
		}
	}
	for j := range 8 {
		norm[j] *= 3e4 // h of up to 1e9 or so
	}
	p := promptProduct{T: t, device: d, n: n, cols: cols}
	gate, up, down := g.Weight(dtype, inner, cols), g.Weight(dtype, inner, cols), g.Weight(dtype, cols, inner)
	ffn := fused.FFN[*tensor.Tensor]{
		Norm: p.on(optable.Floats(norm, cols), cols), Gate: p.on(gate, inner, cols), Up: p.on(up, inner, cols), Down: p.on(down, cols, inner),
		Eps: 1e-6, Normed: p.scratch(cols), Gated: p.scratch(inner), Product: p.scratch(inner),
	}
	run := func() []float32 {
		y := p.scratch(cols)
		fusedOperations.FeedForward(y, p.on(optable.Floats(x, n, cols), n, cols), ffn)
		return y.Float32s()
	}
	clear(1, 2)
	beside := run()
	clear(0)
	alone := run()
	for at, y := range alone {
		if i := at / cols; i%large != 0 && !(math.Abs(float64(beside[at]-y)) <= 1e-5*math.Max(1, math.Abs(float64(y)))) { // sums in the order of the columns either way
			t.Fatalf("%v %dx%dx%d: y[%d][%d] is %v beside large rows, %v beside others", dtype, n, cols, inner, i, at%cols, beside[at], y)
		}
	}
}

// TestNormQKVReadsWhatFeedForwardPrepared compares queries, keys and values of rows that FeedForward prepared with those of the same
// rows as floats, row by row; every third row is far beyond what 16-bit floats reach in some columns.
func TestNormQKVReadsWhatFeedForwardPrepared(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		ns, sizes := []int{9, 32, 64, 200, 512, 700}, []int{512, 2048}
		if d.Info().ID == "cpu" || b.Name() == "fake" {
			ns, sizes = []int{33}, []int{256}
		}
		prepared := 0
		for _, n := range ns {
			for _, cols := range sizes {
				for _, values := range []tensor.DType{tensor.Q4_K, tensor.Q6_K} {
					if queriesOfPrepared(t, d, n, cols, tensor.Q4_K, values) {
						prepared++
					}
				}
				// rows whose last tile, of 256 columns, is half a tile
				if queriesOfPrepared(t, d, n, cols+128, tensor.NVFP4, tensor.NVFP4) {
					prepared++
				}
			}
		}
		if info := d.Info(); info.Backend == "cuda" && info.ComputeMajor == 9 && prepared == 0 {
			t.Error("nothing was prepared")
		}
	})
}

// queriesOfPrepared reports whether rows were prepared; down and v have the type values, the other weights others.
func queriesOfPrepared(t *testing.T, d *gpu.Device, n, cols int, others, values tensor.DType) bool {
	const heads, kvHeads, dim, inner, eps = 4, 2, 64, 512, 1e-6
	g := optable.NewGenerator(uint64(n))
	x := rowsBeyondF16(g, n, cols)
	p := promptProduct{T: t, device: d, n: n, cols: cols}
	weight := func(dtype tensor.DType, rows, cols int) *tensor.Tensor {
		return p.on(g.Weight(dtype, rows, cols), rows, cols)
	}
	vector := func() *tensor.Tensor { return p.on(g.Offset(1, tensor.F32, cols), cols) }
	next, y := vector(), p.scratch(cols)
	ffn := fused.FFN[*tensor.Tensor]{
		Norm: vector(), Gate: weight(others, inner, cols), Up: weight(others, inner, cols), Down: weight(values, cols, inner),
		Eps: eps, NextNorm: next, Normed: p.scratch(cols), Gated: p.scratch(inner), Product: p.scratch(inner),
	}
	in, prepared := p.on(optable.Floats(x, n, cols), n, cols), false
	positions := make([]int, n)
	for i := range positions {
		positions[i] = i
	}
	qkv := fused.QKV[*tensor.Tensor]{
		Norm: next, Q: weight(others, heads*dim, cols), K: weight(others, kvHeads*dim, cols), V: weight(values, kvHeads*dim, cols),
		Cos: p.on(g.Normal(tensor.F32, n, dim/2), n, dim/2), Sin: p.on(g.Normal(tensor.F32, n, dim/2), n, dim/2), Mode: kernel.RoPENeoX, Eps: eps,
		Positions: p.on(optable.List(positions...), n), KNew: p.scratch(kvHeads * dim), VNew: p.scratch(kvHeads * dim),
	}
	run := func(hand bool) [3][]float32 {
		q, k, v := p.scratch(heads*dim).Reshape(1, n, heads, dim), p.scratch(kvHeads*dim).Reshape(1, kvHeads, n, dim), p.scratch(kvHeads*dim).Reshape(1, kvHeads, n, dim)
		handoff := fusedOperations.FeedForward(y, in, ffn)
		if qkv.Normed = ffn.Normed; hand {
			qkv.Handoff, prepared = handoff, handoff.Prepared()
		} else {
			qkv.Handoff = fused.Handoff{}
		}
		fusedOperations.NormQKV(q, k, v, y, qkv)
		return [3][]float32{q.Float32s(), k.Float32s(), v.Float32s()}
	}
	got, want := run(true), run(false)
	for which := range want {
		sameRows(t, fmt.Sprintf("%v %v %dx%d: %c", others, values, n, cols, "qkv"[which]), got[which], want[which], dim, 0.003) // a head of a row
	}
	return prepared
}

// sameRows compares products by row, relative to its root of squares: 0.003 where both round x and W to 11 bits.
func sameRows(t *testing.T, name string, got, want []float32, cols int, tolerance float64) {
	t.Helper()
	for at := 0; at < len(want); at += cols {
		size, off := 0.0, 0.0
		for i, w := range want[at:][:cols] {
			difference := float64(got[at+i]) - float64(w)
			size, off = size+float64(w)*float64(w), off+difference*difference
		}
		if !(off <= size*tolerance*tolerance) {
			t.Fatalf("%s[%d] is off by %.3g", name, at/cols, math.Sqrt(off/size))
		}
	}
}

// TestFeedForwardReadsWhatAttentionPrepared compares the result on rows that AttentionLinearAddInto prepared with that on the same rows
// as floats, what is added to both left out.
func TestFeedForwardReadsWhatAttentionPrepared(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		ns, sizes := []int{64, 200, 512, 700}, []int{512, 2048}
		if d.Info().ID == "cpu" || b.Name() == "fake" {
			ns, sizes = []int{33}, []int{256}
		}
		prepared := 0
		for _, n := range ns {
			for _, cols := range sizes {
				for _, beyond := range []bool{false, true} {
					if feedForwardOfPrepared(t, d, n, cols, beyond) {
						prepared++
					}
				}
			}
		}
		if info := d.Info(); info.Backend == "cuda" && info.ComputeMajor == 9 && prepared == 0 {
			t.Error("nothing was prepared")
		}
	})
}

func feedForwardOfPrepared(t *testing.T, d *gpu.Device, n, cols int, beyond bool) bool {
	const heads, kvHeads, dim, inner = 8, 2, 64, 1024
	g := optable.NewGenerator(uint64(n))
	x := g.Normal(tensor.F32, n, cols).Values
	if beyond {
		x = rowsBeyondF16(g, n, cols)
	}
	p := promptProduct{T: t, device: d, n: n, cols: cols}
	weight := func(rows, cols int) *tensor.Tensor { return p.on(g.Weight(tensor.Q4_K, rows, cols), rows, cols) }
	norm, y, normed := p.on(g.Offset(1, tensor.F32, cols), cols), p.scratch(cols), p.scratch(cols)
	cache := func() *tensor.Tensor { return p.on(g.Cache(tensor.F16, 1, kvHeads, n, dim), 1, kvHeads, n, dim) }
	in, q := p.on(optable.Floats(x, n, cols), n, cols), p.on(g.Normal(tensor.F32, 1, n, heads, dim), 1, n, heads, dim)
	k, v, output := cache(), cache(), weight(cols, heads*dim)
	attended, product := p.scratch(heads*dim).Reshape(1, n, heads, dim), p.scratch(cols)
	prepared := false
	ffn := fused.FFN[*tensor.Tensor]{
		Norm: norm, Gate: weight(inner, cols), Up: weight(inner, cols), Down: weight(cols, inner), Eps: 1e-6,
		Gated: p.scratch(inner), Product: p.scratch(inner),
	}
	run := func(hand bool) []float32 {
		sum := p.scratch(cols)
		handoff := fusedOperations.AttentionLinearAdd(y, in, q, k, v, tensor.AttentionOptions{Causal: true, KVLen: n}, output, nil, fused.LowRank[*tensor.Tensor]{}, nil,
			attended, product, norm, normed, [2]*tensor.Tensor{})
		if ffn.Normed = normed; hand {
			ffn.Handoff, prepared = handoff, handoff.Prepared()
		} else {
			ffn.Handoff = fused.Handoff{}
		}
		fusedOperations.FeedForward(sum, y, ffn)
		rows, out := y.Float32s(), sum.Float32s()
		for i := range out {
			if out[i] -= rows[i]; math.Abs(float64(rows[i])) > 1000 {
				out[i] = 0 // the sum has lost digits
			}
		}
		return out
	}
	sameRows(t, fmt.Sprintf("%dx%d", n, cols), run(true), run(false), cols, 0.003)
	return prepared
}

// rowsBeyondF16 returns rows of which every third is far beyond what 16-bit floats reach in some columns.
func rowsBeyondF16(g *optable.Generator, n, cols int) []float64 {
	x := g.Normal(tensor.F32, n, cols).Values
	for i := 0; i < n; i += 3 {
		for j := range 8 {
			x[i*cols+70+j] *= 1e6
		}
	}
	return x
}

type promptProduct struct {
	*testing.T
	device        *gpu.Device
	n, cols, rows int
	x, norm, add  *optable.Array
}

// on puts the leading part of an array on the device.
func (p promptProduct) on(a *optable.Array, shape ...int) *tensor.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	x, err := tensor.FromMemory(p.device, a.Type, a.Raw[:a.Type.Bytes(n)], nil, shape...)
	if err != nil {
		p.Fatal(err)
	}
	if a.Type.Quantized() {
		if err := x.Pack(); err != nil {
			p.Fatal(err)
		}
	}
	p.Cleanup(x.Free)
	return x
}

func (p promptProduct) scratch(cols int) *tensor.Tensor {
	x, err := tensor.New(p.device.Stream(), tensor.F32, p.n, cols)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(x.Free)
	return x
}

// dot is x times row r of w, and what independent errors of the terms add up to.
func (p promptProduct) dot(x []float64, w *optable.Array, r int) (sum, scale float64) {
	for k, v := range x {
		term := v * w.Values[r*p.cols+k]
		sum, scale = sum+term, scale+term*term
	}
	return sum, math.Sqrt(scale)
}

// hold compares some results of every 16 x 16, and the last one.
func (p promptProduct) hold(name string, got *tensor.Tensor, tolerance float64, want func(i, r int) (value, scale float64)) {
	p.Helper()
	values, scales, errors := got.Float32s(), 0.0, 0.0
	for i := range p.n {
		for r := range p.rows {
			if (i*7+r*5)%256 != 0 && (i != p.n-1 || r != p.rows-1) {
				continue
			}
			value, scale := want(i, r)
			difference := float64(values[i*p.rows+r]) - value
			if math.IsNaN(difference) {
				p.Fatalf("%s [%d][%d] is %v, want %v", name, i, r, values[i*p.rows+r], value)
			}
			scales, errors = scales+scale*scale, errors+difference*difference
		}
	}
	if e := math.Sqrt(errors / scales); !(e <= tolerance) {
		p.Errorf("%s is off by %.3g (RMS)", name, e)
	}
}

func (p promptProduct) linearAdd(w, bias *optable.Array) {
	x, y := p.on(p.x, p.n, p.cols), p.scratch(p.rows)
	fusedOperations.LinearAdd(y, p.on(p.add, p.n, p.rows), x, p.on(w, p.rows, p.cols), p.on(bias, p.rows), p.scratch(p.rows))
	p.hold("linear_add", y, 0.005, func(i, r int) (value, scale float64) { // the contract of vb_linear: activations may be rounded
		sum, scale := p.dot(p.x.Values[i*p.cols:][:p.cols], w, r)
		return sum + bias.Values[r] + p.add.Values[i*p.rows+r], scale
	})
}

func (p promptProduct) normSwiGLU(gate, up *optable.Array) {
	y := p.scratch(p.rows)
	fusedOperations.NormSwiGLU(y, p.on(p.x, p.n, p.cols), p.on(p.norm, p.cols), 1e-6, p.on(gate, p.rows, p.cols), p.on(up, p.rows, p.cols), p.scratch(p.cols), p.scratch(p.rows))
	row, h := -1, make([]float64, p.cols)
	p.hold("norm_swiglu", y, 0.006, func(i, r int) (value, scale float64) { // the same for two factors; silu's slope is at most 1.1
		if i != row {
			sum := 0.0
			for _, v := range p.x.Values[i*p.cols:][:p.cols] {
				sum += v * v
			}
			scale := 1 / math.Sqrt(sum/float64(p.cols)+1e-6)
			for k := range h {
				h[k] = p.x.Values[i*p.cols+k] * scale * p.norm.Values[k]
			}
			row = i
		}
		g, gateScale := p.dot(h, gate, r)
		u, upScale := p.dot(h, up, r)
		silu := g / (1 + math.Exp(-g))
		return silu * u, math.Hypot(gateScale*u, silu*upScale)
	})
}
