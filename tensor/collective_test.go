package tensor_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// openRanks opens a stream on each of so many devices; where there are fewer, devices serve several ranks.
func openRanks(t testing.TB, b kernel.Backend, ranks int) *gpu.Communicator {
	t.Helper()
	infos, err := b.Devices()
	if err != nil || len(infos) == 0 {
		t.Skipf("no devices: %v", err)
	}
	var streams []*gpu.Stream
	for r := range ranks {
		d, err := gpu.OpenBackend(b, r%len(infos))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		streams = append(streams, d.Stream())
	}
	c, err := gpu.NewCommunicator(streams...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// skipCrowded skips where kernels that wait for each other would find no room: more than two ranks share a GPU.
func skipCrowded(t *testing.T, c *gpu.Communicator) {
	t.Helper()
	devices := map[string]int{}
	for r := range c.Ranks() {
		devices[c.Stream(r).Device().String()]++
	}
	for name, ranks := range devices {
		if c.Stream(0).Device().Info().Backend == "cuda" && ranks > 1 && c.Ranks() > 2 {
			t.Skipf("%d of %d ranks are on %s", ranks, c.Ranks(), name)
		}
	}
}

// eachRanks runs a test on every backend that there is, with each of some numbers of ranks.
func eachRanks(t *testing.T, counts []int, f func(t *testing.T, c *gpu.Communicator)) {
	for _, b := range backends() {
		if b.Name() == "ptx" { // which has no collectives
			continue
		}
		t.Run(b.Name(), func(t *testing.T) {
			for _, ranks := range counts {
				b := b
				if b.Name() == "fake" {
					b = fake.New(fake.Config{Devices: ranks, Memory: 1 << 30, Delay: 20 * time.Microsecond})
				}
				t.Run(fmt.Sprintf("%d ranks", ranks), func(t *testing.T) { f(t, openRanks(t, b, ranks)) })
			}
		})
	}
}

func randomRanks(t testing.TB, c *gpu.Communicator, seed uint64, shape func(rank int) []int) (tensors []*tensor.Tensor, values [][]float32) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	for rank := range c.Ranks() {
		x, err := tensor.New(c.Stream(rank), tensor.F32, shape(rank)...)
		if err != nil {
			t.Fatal(err)
		}
		v := make([]float32, x.Len())
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		if err := x.WriteFloat32s(v); err != nil {
			t.Fatal(err)
		}
		tensors, values = append(tensors, x), append(values, v)
	}
	return tensors, values
}

// sizes are those of awkward ends, of a token of a model, and on both sides of where the kernels change.
var collectiveSizes = []int{1, 2, 3, 127, 2048, 4096, 8191, 20481, 1 << 17, 1<<17 + 1, 3<<18 + 5}

// The sum is exact in the order of ranks: each rank adds the same float32 numbers in the same order as this test.
func TestAllReduceSumsInTheOrderOfRanksOnEveryRank(t *testing.T) {
	eachRanks(t, []int{2, 3, 4}, func(t *testing.T, c *gpu.Communicator) {
		ranks := c.Ranks()
		for i, n := range collectiveSizes {
			if raceDetector && n > 1<<17+1 {
				continue // it would take most of the time, and the same goroutines run
			}
			whole := func(int) []int { return []int{n} }
			in, values := randomRanks(t, c, uint64(i), whole)
			add, more := randomRanks(t, c, uint64(i)+100, whole)
			out, _ := randomRanks(t, c, 0, whole)
			for _, test := range []struct {
				name     string
				out, add []*tensor.Tensor
			}{{"plain", out, nil}, {"add", out, add}, {"in place", in, add}} {
				tensor.AllReduceInto(c, test.out, in, test.add)
				for r := range ranks {
					got := test.out[r].Float32s()
					for j := range got {
						want := values[0][j]
						for _, v := range values[1:] {
							want += v[j]
						}
						if test.add != nil {
							want += more[r][j]
						}
						if math.Float32bits(got[j]) != math.Float32bits(want) {
							t.Fatalf("%d ranks, %d elements, %s: rank %d has %g at %d, want %g", ranks, n, test.name, r, got[j], j, want)
						}
					}
				}
			}
		}
	})
}

// Each summand is rounded to 2^-13 of the largest of its 8 neighbours at most, on every rank to the same bits. A number that is not
// finite shows in the result.
func TestAllReduceRoundedStaysNearTheSum(t *testing.T) {
	eachRanks(t, []int{2, 4}, checkAllReduceRounded)
}

func checkAllReduceRounded(t *testing.T, c *gpu.Communicator) {
	skipCrowded(t, c)
	sizes := []int{8, 4096, 1<<17 + 8, 1<<17 + 9, 64 * 3584}
	if c.Stream(0).Device().Info().Backend == "cuda" {
		sizes = append(sizes, 64*8192, 5<<20) // several letters
	} else if raceDetector {
		sizes = sizes[:3] // the same goroutines run
	}
	for i, n := range sizes {
		whole := func(int) []int { return []int{n} }
		in, values := randomRanks(t, c, uint64(i), whole)
		for r, v := range values { // numbers of different sizes, and zeros
			for j := range v {
				v[j] *= float32(math.Exp2(float64(j/8%40 - 20)))
				if j/8%41 == 40 {
					v[j] = 0
				}
			}
			if err := in[r].WriteFloat32s(v); err != nil {
				t.Fatal(err)
			}
		}
		add, more := randomRanks(t, c, 7, whole)
		for again := range 3 { // letters take turns
			out, _ := randomRanks(t, c, 0, whole)
			tensor.AllReduceRoundedInto(c, out, in, add)
			first := out[0].Float32s()
			for r := range c.Ranks() {
				got := out[r].Float32s()
				for j := range got {
					from, want, bound := j/8*8, float64(more[r][j]), 0.0
					for _, v := range values {
						largest := 0.0
						for _, x := range v[from:min(from+8, n)] {
							largest = max(largest, math.Abs(float64(x)))
						}
						want += float64(v[j])
						bound += largest / (1 << 13)
					}
					bound += 1e-6 * (1 + math.Abs(want))
					if diff := math.Abs(float64(got[j]) - want); !(diff <= bound) {
						t.Fatalf("%d elements, time %d: rank %d has %g at %d, want %g within %g", n, again, r, got[j], j, want, bound)
					}
					if more[r][j] == more[0][j] && math.Float32bits(got[j]) != math.Float32bits(first[j]) {
						t.Fatalf("%d elements: rank %d has %g at %d, rank 0 %g", n, r, got[j], j, first[j])
					}
				}
			}
			for _, x := range out {
				x.Free()
			}
		}
		values[1][n/2] = float32(math.Inf(1))
		if err := in[1].WriteFloat32s(values[1]); err != nil {
			t.Fatal(err)
		}
		tensor.AllReduceRoundedInto(c, in, in, nil)
		for r := range c.Ranks() {
			if got := float64(in[r].Float32s()[n/2]); !math.IsNaN(got) && !math.IsInf(got, 1) {
				t.Errorf("%d elements: rank %d has %g where a summand is infinite", n, r, got)
			}
		}
		for r := range in {
			in[r].Free()
			add[r].Free()
		}
	}
}

func TestAllGatherPutsRowsSideBySide(t *testing.T) {
	eachRanks(t, []int{3}, func(t *testing.T, c *gpu.Communicator) {
		for i, rows := range []int{1, 3, 64} {
			for _, cols := range [][]int{{1, 1, 1}, {5, 127, 3}, {0, 896, 0}, {4096, 4095, 4097}} {
				in, values := randomRanks(t, c, uint64(i), func(r int) []int { return []int{rows, cols[r]} })
				total := cols[0] + cols[1] + cols[2]
				out, _ := randomRanks(t, c, 1, func(int) []int { return []int{rows, total} })
				tensor.AllGatherInto(c, out, in)
				for r := range c.Ranks() {
					got := out[r].Float32s()
					for row := range rows {
						at := row * total
						for from, n := range cols {
							for j := range n {
								if want := values[from][row*n+j]; got[at] != want {
									t.Fatalf("%v of %d rows: rank %d has %g in row %d from rank %d, want %g", cols, rows, r, got[at], row, from, want)
								}
								at++
							}
						}
					}
				}
			}
		}
	})
}

// A broadcast leaves the first rank's bits with the others, whatever they mean.
func TestBroadcastCopiesTheFirstRanksBits(t *testing.T) {
	eachRanks(t, []int{3}, func(t *testing.T, c *gpu.Communicator) {
		for _, n := range []int{1, 7, 4096, 1<<17 + 3} {
			var all []*tensor.Tensor
			want := make([]int32, n)
			for r := range c.Ranks() {
				x, err := tensor.New(c.Stream(r), tensor.I32, n)
				if err != nil {
					t.Fatal(err)
				}
				v := make([]int32, n)
				for i := range v {
					v[i] = int32(uint32(i)*2654435761 + 0x7fa00001*uint32(1-min(r, 1))) // signalling NaNs among them
				}
				if r == 0 {
					copy(want, v)
				}
				if err := x.WriteInt32s(v); err != nil {
					t.Fatal(err)
				}
				all = append(all, x)
			}
			tensor.BroadcastInto(c, all)
			for r, x := range all {
				for i, got := range x.Int32s() {
					if got != want[i] {
						t.Fatalf("%d elements: rank %d has %x at %d, want %x", n, r, got, i, want[i])
					}
				}
			}
		}
	})
}

// What one rank sends is what the other has, and the third rank keeps its own.
func TestSendCopiesFromOneRankToAnother(t *testing.T) {
	eachRanks(t, []int{3}, func(t *testing.T, c *gpu.Communicator) {
		for _, n := range []int{1, 4097} {
			var all []*tensor.Tensor
			for r := range c.Ranks() {
				all = append(all, tensor.Full(c.Stream(r), float64(r+1), tensor.F32, n))
			}
			tensor.SendInto(c, all[2], all[0], 0, 2)
			tensor.MulScalarInto(all[0], all[0], 5) // waits until it was copied
			tensor.SendInto(c, all[0], all[1], 1, 0)
			for r, want := range []float32{2, 2, 1} {
				for i, got := range all[r].Float32s() {
					if got != want {
						t.Fatalf("%d elements: rank %d has %g at %d, want %g", n, r, got, i, want)
					}
				}
			}
		}
		var shape *tensor.ShapeError
		x, y := tensor.Full(c.Stream(0), 1, tensor.F32, 3), tensor.Full(c.Stream(1), 1, tensor.F32, 4)
		for name, f := range map[string]func(){
			"lengths":  func() { tensor.SendInto(c, y, x, 0, 1) },
			"no rank":  func() { tensor.SendInto(c, y, x, 0, 3) },
			"streams":  func() { tensor.SendInto(c, x, x, 0, 1) },
			"left out": func() { tensor.SendInto(c, nil, x, 0, 1) },
		} {
			if err := tensor.Try(f); !errors.As(err, &shape) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A replay exchanges what memory holds then, however often, and plain collectives and other sizes may come between.
func TestACapturedAllReduceIsReplayed(t *testing.T) {
	eachRanks(t, []int{2}, func(t *testing.T, c *gpu.Communicator) {
		const n = 4096
		shape := func(int) []int { return []int{n} }
		x, _ := randomRanks(t, c, 1, shape)
		y, _ := randomRanks(t, c, 2, shape)
		tensor.AllReduceInto(c, y, x, nil) // loads the kernels
		graphs, err := c.Capture(func() error {
			return tensor.Try(func() {
				for range 3 {
					tensor.AllReduceInto(c, x, x, nil)
				}
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		defer graphs.Close()
		for replay := range 40 {
			for r := range 2 {
				v := make([]float32, n)
				for i := range v {
					v[i] = float32(replay + r*i)
				}
				if err := x[r].WriteFloat32s(v); err != nil {
					t.Fatal(err)
				}
			}
			if err := graphs.Launch(); err != nil {
				t.Fatal(err)
			}
			if replay%3 == 0 {
				tensor.AllReduceInto(c, y, y, nil)
				tensor.MulScalarInto(y[0], y[0], 0.5) // so that they stay finite
				tensor.MulScalarInto(y[1], y[1], 0.5)
			}
			for r := range 2 {
				for i, got := range x[r].Float32s() {
					if want := float32(4 * (2*replay + i)); got != want {
						t.Fatalf("replay %d: rank %d has %g at %d, want %g", replay, r, got, i, want)
					}
				}
			}
		}
	})
}

// Of two communicators over the same devices neither waits for the other, whoever enqueues when.
func TestCommunicatorsShareDevices(t *testing.T) {
	b := fake.New(fake.Config{Devices: 2, Delay: 50 * time.Microsecond, Crowded: true})
	first := openRanks(t, b, 2)
	var streams []*gpu.Stream
	for r := range 2 {
		s, err := first.Stream(r).Device().NewStream()
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	second, err := gpu.NewCommunicator(streams...)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	for i, c := range []*gpu.Communicator{first, second} {
		x, _ := randomRanks(t, c, uint64(i), func(int) []int { return []int{100} })
		go func() {
			done <- errors.Join(tensor.Try(func() {
				for range 50 {
					tensor.AllReduceInto(c, x, x, nil)
				}
			}), c.Synchronize())
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A driver may keep launches out while it waits for a device, where a rank has begun to wait for the next one's launch.
func TestOthersUseDevicesBetweenTheLaunchesOfRanks(t *testing.T) {
	b := fake.New(fake.Config{Devices: 2, Serial: true, Scratch: true})
	c := openRanks(t, b, 2)
	x, _ := randomRanks(t, c, 1, func(int) []int { return []int{100} })
	ended, done := make(chan struct{}), make(chan error)
	for r := range 2 {
		go func() {
			var err error
			for d := c.Stream(r).Device(); err == nil; err = useDevice(d) {
				select {
				case <-ended:
					done <- nil
					return
				default:
				}
			}
			done <- err
		}()
	}
	go func() {
		defer close(ended)
		done <- errors.Join(tensor.Try(func() {
			for range 100 {
				tensor.AllReduceInto(c, x, x, nil)
			}
		}), c.Synchronize())
	}()
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// useDevice has a device allocate and free memory in each way, and compute.
func useDevice(d *gpu.Device) error {
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	reserved, err := s.Reserve(1 << 10)
	if err != nil {
		return err
	}
	reserved.Free()
	pooled, err := s.Alloc(1 << 10)
	if err != nil {
		return err
	}
	pooled.Free()
	d.Pool().Trim()
	x, err := tensor.New(s, tensor.F32, 4)
	if err != nil {
		return err
	}
	defer x.Free()
	return tensor.Try(func() { tensor.MulScalarInto(x, x, 2) })
}

func TestWhatACommunicatorRefuses(t *testing.T) {
	b := fake.New(fake.Config{Devices: 2})
	c := openRanks(t, b, 2)
	x, _ := randomRanks(t, c, 1, func(r int) []int { return []int{4 + r} })
	var shape *tensor.ShapeError
	for name, f := range map[string]func(){
		"lengths that differ": func() { tensor.AllReduceInto(c, x, x, nil) },
		"too few ranks":       func() { tensor.AllReduceInto(c, x[:1], x[:1], nil) },
		"another's stream":    func() { tensor.AllReduceInto(c, []*tensor.Tensor{x[0], x[0]}, []*tensor.Tensor{x[0], x[0]}, nil) },
		"columns":             func() { tensor.AllGatherInto(c, x, x) },
	} {
		if err := tensor.Try(f); !errors.As(err, &shape) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := c.Stream(0)
	for _, streams := range [][]*gpu.Stream{{}, {s, s}, {s, gpu.CPU().Stream()}} {
		if _, err := gpu.NewCommunicator(streams...); !errors.Is(err, gpu.ErrInvalid) {
			t.Errorf("%d streams: %v", len(streams), err)
		}
	}
	apart := fake.New(fake.Config{Devices: 2, NoPeers: true})
	var streams []*gpu.Stream
	for r := range 2 {
		d, err := gpu.OpenBackend(apart, r)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		streams = append(streams, d.Stream())
	}
	if _, err := gpu.NewCommunicator(streams...); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("without peer access: %v", err)
	}
	y, _ := randomRanks(t, c, 1, func(int) []int { return []int{4} })
	c.Close()
	c.Close()
	if err := tensor.Try(func() { tensor.AllReduceInto(c, y, y, nil) }); !errors.Is(err, gpu.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// A device that fails ends what the others wait for with an error.
func TestALostDeviceEndsTheOthers(t *testing.T) {
	b := fake.New(fake.Config{Devices: 2, Delay: time.Millisecond})
	c := openRanks(t, b, 2)
	x, _ := randomRanks(t, c, 1, func(int) []int { return []int{4} })
	if err := c.Synchronize(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		tensor.AllReduceInto(c, x, x, nil)
	}
	b.GPU(1).Poison()
	if err := c.Synchronize(); !errors.Is(err, gpu.ErrDeviceLost) {
		t.Errorf("after the other device was lost: %v", err)
	}
}

// A copy between GPUs waits for what is under way on the one, and the one's later work waits for the copy.
func TestCopiesBetweenGPUsFollowBothStreams(t *testing.T) {
	b := fake.New(fake.Config{Devices: 2, Delay: 200 * time.Microsecond})
	c := openRanks(t, b, 2)
	x, _ := randomRanks(t, c, 1, func(int) []int { return []int{1000} })
	for i := range 5 {
		for range 3 {
			tensor.MulScalarInto(x[0], x[0], 0)
		}
		if err := x[0].WriteFloat32s(ramp(1000)); err != nil {
			t.Fatal(err)
		}
		tensor.MulScalarInto(x[0], x[0], float32(i))
		y, err := x[0].ToStream(c.Stream(1))
		if err != nil {
			t.Fatal(err)
		}
		tensor.MulScalarInto(x[0], x[0], 0) // after the copy
		for j, got := range y.Float32s() {
			if want := float32(i * (j + 1)); got != want {
				t.Fatalf("copy %d has %g at %d, want %g", i, got, j, want)
			}
		}
		y.Free()
	}
}

// BenchmarkAllReduce has the time of one of 200 all-reduces in a graph, between two GPUs (or two streams of the only one), and
// between all GPUs where there are more.
func BenchmarkAllReduce(b *testing.B) {
	benchmarkAllReduce(b, func(c *gpu.Communicator, x []*tensor.Tensor) { tensor.AllReduceInto(c, x, x, nil) })
}

// BenchmarkAllReduceRounded is the same where summands may be rounded.
func BenchmarkAllReduceRounded(b *testing.B) {
	benchmarkAllReduce(b, func(c *gpu.Communicator, x []*tensor.Tensor) { tensor.AllReduceRoundedInto(c, x, x, nil) })
}

func benchmarkAllReduce(b *testing.B, sum func(c *gpu.Communicator, x []*tensor.Tensor)) {
	for _, backend := range backends() {
		if backend.Name() != "cuda" {
			continue
		}
		infos, err := backend.Devices()
		if err != nil {
			b.Fatal(err)
		}
		benchmarkRanks(b, openRanks(b, backend, 2), sum)
		if len(infos) > 2 {
			benchmarkRanks(b, openRanks(b, backend, len(infos)), sum)
		}
	}
}

func benchmarkRanks(b *testing.B, c *gpu.Communicator, sum func(c *gpu.Communicator, x []*tensor.Tensor)) {
	for _, kib := range []int{8, 16, 32, 64, 256, 512, 1024, 2048, 16 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%s/%dKiB", c, kib), func(b *testing.B) {
			const inner = 200
			x, _ := randomRanks(b, c, 1, func(int) []int { return []int{kib << 8} })
			for r := range x {
				x[r].Zero() // sums stay finite
			}
			graphs, err := c.Capture(func() error {
				return tensor.Try(func() {
					for range inner {
						sum(c, x)
					}
				})
			})
			if err != nil {
				b.Fatal(err)
			}
			defer graphs.Close()
			launch := func(n int) {
				for range n {
					if err := graphs.Launch(); err != nil {
						b.Fatal(err)
					}
				}
				if err := c.Synchronize(); err != nil {
					b.Fatal(err)
				}
			}
			launch(2)
			b.ResetTimer()
			launch(b.N)
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/inner, "us/all-reduce")
			for r := range x {
				x[r].Free()
			}
		})
	}
}
