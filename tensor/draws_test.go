package tensor_test

import (
	"errors"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/optable"
	"github.com/vibrant-ml/vibrant/tensor"
)

// numberOf returns the number in an environment variable, or another one where it is not set.
func numberOf(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRandomDrawsOfEveryOperation runs operations at shapes that nobody chose: 0, 1, odd and unequal sizes, every type. A wrong value or
// an error that the contract does not name fails. VIBRANT_DRAWS says how many draws a backend gets, 500 where it is not set;
// VIBRANT_DRAWS_OF, a regular expression, which operations are drawn of them.
func TestRandomDrawsOfEveryOperation(t *testing.T) {
	strictly(t)
	draws := numberOf(t, "VIBRANT_DRAWS", 500)
	chosen, err := regexp.Compile(os.Getenv("VIBRANT_DRAWS_OF"))
	if err != nil {
		t.Fatal(err)
	}
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		t.Parallel()
		if raceDetector {
			t.Skip("TestOps is what the race detector watches")
		}
		table := optable.Table()
		var computed, refused atomic.Int64
		draw := func(d *gpu.Device, n int) {
			op := table[n%len(table)]
			if !chosen.MatchString(op.Name) {
				return
			}
			c := op.Draw(uint64(n)) // each draw can be repeated by its number
			if c == nil {
				return
			}
			var shape *tensor.ShapeError
			switch err := c.Check(d); {
			case err == nil:
				computed.Add(1)
			case errors.As(err, &shape), errors.Is(err, gpu.ErrInvalid), errors.Is(err, gpu.ErrUnsupported):
				refused.Add(1)
			default:
				t.Errorf("draw %d: %s/%s: %v", n, op.Name, c.Name(), err)
			}
		}
		workers := max(1, min(runtime.GOMAXPROCS(0), draws/1000))
		var group sync.WaitGroup
		for w := range workers {
			own := d
			if w > 0 {
				var err error
				if own, err = gpu.OpenBackend(b, 0, gpu.WithThreads(1)); err != nil {
					t.Fatal(err)
				}
				defer own.Close()
			}
			group.Add(1)
			go func() {
				defer group.Done()
				for n := w; n < draws && own.Err() == nil; n += workers {
					draw(own, n)
				}
				if err := own.Err(); err != nil {
					t.Error(err)
				}
			}()
		}
		group.Wait()
		t.Logf("%d draws: %d computed, %d refused by name", draws, computed.Load(), refused.Load())
		if chosen.String() == "" && int(computed.Load()) < draws/2 {
			t.Errorf("only %d of %d draws computed anything", computed.Load(), draws)
		}
	})
}

// TestTheSameOperationHasTheSameBits repeats every case of the operation table, 5 times or as often as VIBRANT_REPEATS says, and
// compares bits. On a GPU caches are cold at every second time, and several processes at once make waits longer: a read that a
// later write may overtake shows there if anywhere.
func TestTheSameOperationHasTheSameBits(t *testing.T) {
	strictly(t)
	times := numberOf(t, "VIBRANT_REPEATS", 5)
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		if raceDetector || b.Name() != "c" && b.Name() != "cuda" {
			t.Skip("TestOps is enough for what computes in one order")
		}
		between, n := func() {}, 0
		if b.Name() == "cuda" {
			from, err := tensor.New(d.Stream(), tensor.F32, 32<<20) // more than the L2 holds
			if err != nil {
				t.Fatal(err)
			}
			defer from.Free()
			to := tensor.Copy(from)
			defer to.Free()
			between = func() {
				if n++; n%2 == 0 {
					tensor.CopyInto(to, from)
				}
			}
		}
		for _, op := range optable.Table() {
			t.Run(op.Name, func(t *testing.T) {
				for i, c := range op.Cases {
					if c.Large || b.Name() == "c" && long(b, op, c) || op.Name == "ScatterAdd" { // adds in any order
						continue
					}
					if err := op.Repeat(d, c, uint64(i), times, between); err != nil && !errors.Is(err, gpu.ErrUnsupported) {
						t.Errorf("%s: %v", c.Name(), err)
					}
				}
			})
		}
	})
}
