// Command bench_tensor measures tensor operations on one thread of the CPU beside gonum, which computes in float64, and PyTorch, and
// adds to docs/benchmarks/tensor.jsonl. Peers take turns with ours; each figure is the minimum of many runs in time of the processor,
// which other programs on the machine change little. On a GPU it measures more operations, beside PyTorch (gpu.go).
//
//	cd scripts/bench_tensor && GOMAXPROCS=1 go run . -python python3 -out cpu.jsonl
//	cd scripts/bench_tensor && go run . -device cuda -python python3 -out cuda.jsonl
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
	"golang.org/x/sys/unix"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

type result struct {
	Suite    string   `json:"suite"`
	Case     string   `json:"case"`
	Ours     float64  `json:"ours"`
	Peer     *float64 `json:"peer"`
	Unit     string   `json:"unit"`
	Ratio    *float64 `json:"ratio"`
	Roofline *float64 `json:"roofline"`
	Error    *float64 `json:"error"`
	Device   string   `json:"device"`
	Command  string   `json:"command"`
	PeerName string   `json:"peer_name"`
}

type pair struct {
	name        string
	ours, gonum func()
}

func main() {
	log.SetFlags(0)
	python := flag.String("python", "", "a Python with PyTorch; none for gonum alone")
	out := flag.String("out", "", "the file to write")
	device := flag.String("device", "", "a GPU to measure, in place of the CPU")
	flag.Parse()
	if *device != "" {
		benchGPU(*device, *python, *out)
		return
	}
	d, err := gpu.Open("cpu", gpu.WithThreads(1))
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	torch := map[string]float64{}
	cases := pairs(d)
	ours, gonum := make([]float64, len(cases)), make([]float64, len(cases))
	for i := range cases {
		ours[i], gonum[i] = math.Inf(1), math.Inf(1)
	}
	for range 3 {
		for i, c := range cases {
			for range 4 { // in turns
				ours[i] = min(ours[i], least(c.ours))
				if c.gonum != nil {
					gonum[i] = min(gonum[i], least(c.gonum))
				}
			}
		}
		askPeer(*python, "torch_peer.py", torch)
	}
	var results []result
	for i, c := range cases {
		for name, v := range map[string]float64{"PyTorch": torch[c.name], "gonum": gonum[i]} {
			r := result{Suite: "tensor", Case: c.name, Ours: rounded(ours[i]), Unit: "us", Device: d.Info().Name, PeerName: name,
				Command: "cd scripts/bench_tensor && GOMAXPROCS=1 go run . -python python3"}
			if v > 0 && !math.IsInf(v, 1) {
				v = rounded(v)
				ratio := math.Round(1000*v/ours[i]) / 1000
				r.Peer, r.Ratio = &v, &ratio
				results = append(results, r)
			}
		}
	}
	save(results, *out)
}

// askPeer runs a script that prints PyTorch's times, and keeps the least of each case in least.
func askPeer(python, script string, least map[string]float64) {
	if python == "" {
		return
	}
	c := exec.Command(python, script)
	c.Stderr = os.Stderr
	text, err := c.Output()
	if err != nil {
		log.Fatalf("PyTorch: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		name, us, _ := strings.Cut(strings.TrimSpace(line), "\t")
		v, err := strconv.ParseFloat(us, 64)
		if err != nil {
			log.Fatal(err)
		}
		if old, ok := least[name]; !ok || v < old {
			least[name] = v
		}
	}
}

// save prints results and writes them to a file, if one is named.
func save(results []result, out string) {
	slices.SortFunc(results, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.Case, b.Case), cmp.Compare(a.PeerName, b.PeerName))
	})
	var text []byte
	for _, r := range results {
		line, err := json.Marshal(r)
		if err != nil {
			log.Fatal(err)
		}
		text = append(append(text, line...), '\n')
	}
	fmt.Print(string(text))
	if out != "" {
		if err := os.WriteFile(out, text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

func rounded(v float64) float64 { return math.Round(10*v) / 10 }

// least returns the microseconds of the quickest of the runs in 80 ms.
func least(f func()) float64 {
	best := math.Inf(1)
	for end := time.Now().Add(80 * time.Millisecond); time.Now().Before(end); {
		start := used()
		f()
		best = min(best, used()-start)
	}
	return best
}

// used returns the microseconds of the processor that this program has used.
func used() float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		log.Fatal(err)
	}
	return float64(t.Nano()) / 1e3
}

func pairs(d *gpu.Device) []pair {
	const n, m = 1024, 512
	s := d.Stream()
	random := func(n int) (*tensor.Tensor, []float64) {
		v, w := make([]float32, n), make([]float64, n)
		for i := range v {
			v[i] = float32(rand.NormFloat64())
			w[i] = float64(v[i])
		}
		t, err := tensor.New(s, tensor.F32, n)
		if err == nil {
			err = t.WriteFloat32s(v)
		}
		if err != nil {
			log.Fatal(err)
		}
		return t, w
	}
	x, gx := random(n * n)
	y, gy := random(n * n)
	a, ga := random(m * m)
	b, gb := random(m * m)
	line, gline := random(1 << 20)
	x, y, a, b = x.Reshape(n, n), y.Reshape(n, n), a.Reshape(m, m), b.Reshape(m, m)
	bytes, truths, positive := tensor.Convert(x, tensor.U8), tensor.Gt(x, y), tensor.Abs(x)
	mx, my, sum := mat.NewDense(n, n, gx), mat.NewDense(n, n, gy), mat.NewDense(n, n, nil)
	ma, mb, product := mat.NewDense(m, m, ga), mat.NewDense(m, m, gb), mat.NewDense(m, m, nil)
	made := func(f func() *tensor.Tensor) func() { return func() { f().Free() } }
	rows := make([]float64, n)
	sorted, order := make([]float64, 1<<20), make([]int, 1<<20)
	return []pair{
		{"add 1024x1024", made(func() *tensor.Tensor { return tensor.Add(x, y) }), func() { sum.Add(mx, my) }},
		{"exp 1024x1024", made(func() *tensor.Tensor { return tensor.Exp(x) }), func() { sum.Apply(func(_, _ int, v float64) float64 { return math.Exp(v) }, mx) }},
		{"sin 1024x1024", made(func() *tensor.Tensor { return tensor.Sin(x) }), nil},
		{"log 1024x1024", made(func() *tensor.Tensor { return tensor.Log(positive) }), nil},
		{"tanh 1024x1024", made(func() *tensor.Tensor { return tensor.Tanh(x) }), nil},
		{"pow 1024x1024", made(func() *tensor.Tensor { return tensor.Pow(positive, y) }), nil},
		{"gelu 1024x1024", made(func() *tensor.Tensor { return tensor.GELU(x) }), nil},
		{"add u8 1024x1024", made(func() *tensor.Tensor { return tensor.Add(bytes, bytes) }), nil},
		{"and 1024x1024", made(func() *tensor.Tensor { return tensor.And(truths, truths) }), nil},
		{"less 1024x1024", made(func() *tensor.Tensor { return tensor.Lt(x, y) }), nil},
		{"where 1024x1024", made(func() *tensor.Tensor { return tensor.Where(truths, x, y) }), nil},
		{"max of rows 1024x1024", made(func() *tensor.Tensor { return tensor.Max(x, 1) }), nil},
		{"max of columns 1024x1024", made(func() *tensor.Tensor { return tensor.Max(x, 0) }), nil},
		{"argmax of rows 1024x1024", made(func() *tensor.Tensor { return tensor.ArgmaxOver(x, 1) }), nil},
		{"logsumexp of rows 1024x1024", made(func() *tensor.Tensor { return tensor.LogSumExp(x, 1) }), nil},
		{"var of rows 1024x1024", made(func() *tensor.Tensor { return tensor.Var(x, 1, 1) }), nil},
		{"cumsum of rows 1024x1024", made(func() *tensor.Tensor { return tensor.CumSum(x, 1) }), nil},
		{"sum 1024x1024", made(func() *tensor.Tensor { return tensor.Sum(x) }), func() { rows[0] = mat.Sum(mx) }},
		{"sum of rows 1024x1024", made(func() *tensor.Tensor { return tensor.Sum(x, 1) }), func() {
			for i := range rows {
				rows[i] = floats.Sum(mx.RawRowView(i))
			}
		}},
		{"sum of columns 1024x1024", made(func() *tensor.Tensor { return tensor.Sum(x, 0) }), func() {
			clear(rows)
			for i := range n {
				floats.Add(rows, mx.RawRowView(i))
			}
		}},
		{"softmax 1024x1024", made(func() *tensor.Tensor { return tensor.Softmax(x) }), func() {
			for i := range n {
				row, to := mx.RawRowView(i), sum.RawRowView(i)
				total := floats.LogSumExp(row)
				for j, v := range row {
					to[j] = math.Exp(v - total)
				}
			}
		}},
		{"matmul 512x512x512", made(func() *tensor.Tensor { return tensor.MatMul(a, b) }), func() { product.Mul(ma, mb) }},
		{"argsort 1048576", made(func() *tensor.Tensor { return tensor.Argsort(line, 0, false) }), func() {
			copy(sorted, gline)
			floats.Argsort(sorted, order)
		}},
		{"sort of rows 1024x1024", func() {
			values, indices := tensor.SortWithIndices(x, 1, false)
			values.Free()
			indices.Free()
		}, nil},
	}
}
