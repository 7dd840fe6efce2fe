package main

import (
	"encoding/binary"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// A gpuCase is an operation on operands that take turns, so that each call finds them in memory and not in a cache.
type gpuCase struct {
	name  string
	bytes float64 // read and written by one call; 0 where memory does not bound it
	call  func(set int)
}

const (
	gpuElements = 64 << 20
	gpuSets     = 3
)

// benchGPU measures each case and writes it beside PyTorch's time: medians of nine replays of a graph of gpuSets calls. The roofline is
// the share of the rate of a copy in the same run.
func benchGPU(id, python, out string) {
	d, err := gpu.Open(id)
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	tensor.SetStrict(true)
	cases := gpuCases(d)
	ours, torch, lacks := map[string]float64{}, map[string]float64{}, map[string]string{}
	for range 2 {
		for _, c := range cases {
			t, err := replayed(d, c.call)
			if err != nil {
				lacks[c.name] = err.Error()
			} else if old, ok := ours[c.name]; !ok || t < old {
				ours[c.name] = t
			}
		}
		askPeer(python, "torch_gpu.py", torch)
	}
	copied := ours[cases[0].name] / cases[0].bytes
	var results []result
	for _, c := range cases {
		r := result{Suite: "tensor", Case: c.name, Ours: rounded(ours[c.name]), Unit: "us", Device: d.Info().Name, PeerName: "PyTorch",
			Command: "cd scripts/bench_tensor && go run . -device " + id + " -python python3"}
		if why := lacks[c.name]; why != "" {
			fmt.Fprintf(os.Stderr, "%s: %s\n", c.name, why)
			continue
		}
		if c.bytes > 0 {
			share := math.Round(1000*copied*c.bytes/ours[c.name]) / 10
			r.Roofline = &share
		}
		if v, ok := torch[c.name]; ok {
			v = rounded(v)
			ratio := math.Round(1000*v/ours[c.name]) / 1000
			r.Peer, r.Ratio = &v, &ratio
		}
		results = append(results, r)
	}
	save(results, out)
}

// replayed returns the microseconds of one call, the median of nine replays of a graph that calls f for each set.
func replayed(d *gpu.Device, f func(set int)) (us float64, err error) {
	calls := func() error {
		return tensor.Try(func() {
			for i := range gpuSets {
				f(i)
			}
		})
	}
	if err := calls(); err != nil {
		return 0, err
	}
	s := d.Stream()
	g, err := s.Capture(calls)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	start, end := d.NewEvent(), d.NewEvent()
	defer start.Close()
	defer end.Close()
	var times []time.Duration
	for range 10 {
		for _, step := range []func() error{func() error { return s.Record(start) }, g.Launch, func() error { return s.Record(end) }, end.Synchronize} {
			if err := step(); err != nil {
				return 0, err
			}
		}
		t, err := end.Since(start)
		if err != nil {
			return 0, err
		}
		times = append(times, t)
	}
	times = times[1:] // the first brings the graph to the device
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 1e3 / gpuSets, nil
}

func gpuCases(d *gpu.Device) []gpuCase {
	const n = gpuElements
	s := d.Stream()
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(rand.NormFloat64())
	}
	type set struct{ x, y, p, xb, yb, xh, xi, yi, x8, y8, xu, m, rows, weight, column, row *tensor.Tensor }
	var sets [gpuSets]set
	made := func(t *tensor.Tensor, err error) *tensor.Tensor {
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	written := func(dtype tensor.DType, data []byte, shape ...int) *tensor.Tensor {
		t := made(tensor.New(s, dtype, shape...))
		if err := t.WriteBytes(data); err != nil {
			log.Fatal(err)
		}
		return t
	}
	random := func(count int) []byte {
		b := make([]byte, 4*count)
		from := rand.IntN(n)
		for i := range count {
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(values[(from+i)%n]))
		}
		return b
	}
	for i := range sets {
		t := &sets[i]
		b := random(n)
		t.x, t.xi, t.x8, t.xu = written(tensor.F32, b, n), written(tensor.I32, b, n), written(tensor.I8, b[:n], n), written(tensor.U8, b[:n], n)
		b = random(n)
		t.y, t.yi, t.y8 = written(tensor.F32, b, n), written(tensor.I32, b, n), written(tensor.I8, b[:n], n)
		for j := range n {
			b[4*j+3] &^= 0x80
		}
		t.p = written(tensor.F32, b, n) // no negative numbers: bases of powers
		t.xb, t.yb, t.xh = tensor.Convert(t.x, tensor.BF16), tensor.Convert(t.y, tensor.BF16), tensor.Convert(t.x, tensor.F16)
		t.m, t.rows = t.x.Reshape(8192, 8192), t.x.Reshape(n/4096, 4096)
		t.row, t.column = written(tensor.F32, random(8192), 1, 8192), written(tensor.F32, random(8192), 8192, 1)
		t.weight = written(tensor.F32, random(4096), 4096)
	}
	ids := make([]int32, 1<<16)
	for i := range ids {
		ids[i] = int32(rand.IntN(n / 4096))
	}
	picked := made(tensor.FromInt32s(ids).ToDevice(tensor.On(d)))
	edge := made(tensor.New(s, tensor.BF16, 4096, 4096))
	tensor.CopyInto(edge, sets[0].xb.Slice(0, 4096*4096).Reshape(4096, 4096))
	f := tensor.Fuse(func(x, y tensor.Expr) tensor.Expr { return x.Mul(y).Add(x).Tanh() })
	on := func(op func(*set) *tensor.Tensor) func(int) { return func(i int) { op(&sets[i]).Free() } }
	both := func(op func(*set) (a, b *tensor.Tensor)) func(int) {
		return func(i int) {
			a, b := op(&sets[i])
			a.Free()
			b.Free()
		}
	}
	return []gpuCase{
		{"copy F32", 8 * n, on(func(t *set) *tensor.Tensor { return tensor.Copy(t.x) })},
		{"add F32", 12 * n, on(func(t *set) *tensor.Tensor { return tensor.Add(t.x, t.y) })},
		{"add BF16", 6 * n, on(func(t *set) *tensor.Tensor { return tensor.Add(t.xb, t.yb) })},
		{"add I32", 12 * n, on(func(t *set) *tensor.Tensor { return tensor.Add(t.xi, t.yi) })},
		{"add I8", 3 * n, on(func(t *set) *tensor.Tensor { return tensor.Add(t.x8, t.y8) })},
		{"add row F32", 8 * n, on(func(t *set) *tensor.Tensor { return tensor.Add(t.m, t.row) })},
		{"add column F32", 8 * n, on(func(t *set) *tensor.Tensor { return tensor.Add(t.m, t.column) })},
		{"mul scalar F32", 8 * n, on(func(t *set) *tensor.Tensor { return tensor.MulScalar(t.x, 3) })},
		{"exp F32", 8 * n, on(func(t *set) *tensor.Tensor { return tensor.Exp(t.x) })},
		{"sin F32", 8 * n, on(func(t *set) *tensor.Tensor { return tensor.Sin(t.x) })},
		{"pow F32", 12 * n, on(func(t *set) *tensor.Tensor { return tensor.Pow(t.p, t.y) })},
		{"gelu BF16", 4 * n, on(func(t *set) *tensor.Tensor { return tensor.GELU(t.xb) })},
		{"silu F16", 4 * n, on(func(t *set) *tensor.Tensor { return tensor.SiLU(t.xh) })},
		{"swiglu F32", 12 * n, on(func(t *set) *tensor.Tensor { return tensor.SwiGLU(t.x, t.y) })},
		{"swiglu BF16", 6 * n, on(func(t *set) *tensor.Tensor { return tensor.SwiGLU(t.xb, t.yb) })},
		{"less F32", 9 * n, on(func(t *set) *tensor.Tensor { return tensor.Lt(t.x, t.y) })},
		{"F32 to BF16", 6 * n, on(func(t *set) *tensor.Tensor { return tensor.Convert(t.x, tensor.BF16) })},
		{"U8 to F32", 5 * n, on(func(t *set) *tensor.Tensor { return tensor.Convert(t.xu, tensor.F32) })},
		{"tanh(x*y+x) F32", 12 * n, on(func(t *set) *tensor.Tensor { return f.Call(t.x, t.y) })},
		{"copy of transposed F32", 8 * n, on(func(t *set) *tensor.Tensor { return tensor.Copy(t.m.T()) })},
		{"concat F32", 16 * n, on(func(t *set) *tensor.Tensor { return tensor.Concat(0, t.x, t.y) })},
		{"rand F32", 4 * n, on(func(*set) *tensor.Tensor { return tensor.Rand(s, 1, tensor.F32, n) })},
		{"randn F32", 4 * n, on(func(*set) *tensor.Tensor { return tensor.RandN(s, 1, tensor.F32, n) })},
		{"sum F32", 4 * n, on(func(t *set) *tensor.Tensor { return tensor.Sum(t.x) })},
		{"sum of rows F32", 4 * n, on(func(t *set) *tensor.Tensor { return tensor.Sum(t.m, 1) })},
		{"sum of columns F32", 4 * n, on(func(t *set) *tensor.Tensor { return tensor.Sum(t.m, 0) })},
		{"argmax of rows F32", 4 * n, on(func(t *set) *tensor.Tensor { return tensor.ArgmaxOver(t.m, 1) })},
		{"variance of rows F32", 4 * n, on(func(t *set) *tensor.Tensor { return tensor.Var(t.m, 1, 1) })},
		{"cumsum of rows F32", 8 * n, on(func(t *set) *tensor.Tensor { return tensor.CumSum(t.rows, 1) })},
		{"softmax F32", 8 * n, on(func(t *set) *tensor.Tensor { return tensor.Softmax(t.rows) })},
		{"rms norm F32", 8 * n, on(func(t *set) *tensor.Tensor { return tensor.RMSNorm(t.rows, t.weight, 1e-6) })},
		{"layer norm F32", 8 * n, on(func(t *set) *tensor.Tensor { return tensor.LayerNorm(t.rows, t.weight, t.weight, 1e-6) })},
		{"select 65536 rows F32", 8 * 4096 << 16, on(func(t *set) *tensor.Tensor { return tensor.IndexSelect(t.rows, picked, 0) })},
		{"sort 1048576 F32", 0, both(func(t *set) (a, b *tensor.Tensor) { return tensor.SortWithIndices(t.x.Slice(0, 1<<20), 0, false) })},
		{"sort of rows 4096x4096 F32", 0, both(func(t *set) (a, b *tensor.Tensor) { return tensor.SortWithIndices(t.rows.Slice(0, 4096), 1, false) })},
		{"top 50 of 128 x 131072 F32", 4 << 24, both(func(t *set) (a, b *tensor.Tensor) {
			return tensor.TopKOver(t.x.Slice(0, 1<<24).Reshape(128, 1<<17), 50, 1, true)
		})},
		{"matmul 4096 BF16", 0, func(int) { tensor.MatMul(edge, edge).Free() }},
	}
}
