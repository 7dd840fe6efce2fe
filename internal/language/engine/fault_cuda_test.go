package engine

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
)

// cudaFaults is the file by which internal/check/faults/cuda_faults.c is told which calls fail.
type cudaFaults struct {
	t    *testing.T
	file *os.File
}

const (
	faultKinds = 4
	faultBytes = 4 * (3*faultKinds + 1)
)

func (f cudaFaults) write(ints []int32) {
	f.t.Helper()
	b := make([]byte, 0, faultBytes)
	for _, x := range ints {
		b = binary.NativeEndian.AppendUint32(b, uint32(x))
	}
	if _, err := f.file.WriteAt(b, 0); err != nil {
		f.t.Fatal(err)
	}
}

func (f cudaFaults) read() (calls [faultKinds]int, live int32) {
	f.t.Helper()
	b := make([]byte, faultBytes)
	if _, err := f.file.ReadAt(b, 0); err != nil {
		f.t.Fatal(err)
	}
	at := func(i int) int32 { return int32(binary.NativeEndian.Uint32(b[4*i:])) }
	for k := range calls {
		calls[k] = int(at(3 * k))
	}
	return calls, at(3 * faultKinds)
}

// arm has the n-th call of a kind fail, and `count` in all from there on. Kind -1: none. The count of live blocks stays.
func (f cudaFaults) arm(kind, n, count int) {
	f.t.Helper()
	ints := make([]int32, 3*faultKinds)
	for k := range faultKinds {
		ints[3*k+1] = -1
		if k == kind {
			ints[3*k+1], ints[3*k+2] = int32(n), int32(count)
		}
	}
	f.write(ints)
}

// TestEveryRealFaultOfALoadAndFourTokens is TestEveryFaultOfALoadAndFourTokens on a GPU, with NVIDIA's runtime behind
// calls that fail: opening the device and closing all are a part of each run. An allocation fails twice, as the pool asks once
// more after it has given back what it keeps.
func TestEveryRealFaultOfALoadAndFourTokens(t *testing.T) {
	path := os.Getenv("VIBRANT_FAULTS")
	if path == "" {
		t.Skip("VIBRANT_FAULTS names no file: scripts/link-fault-library.sh says how to run this")
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(faultBytes); err != nil { // mktemp's file is empty
		t.Fatal(err)
	}
	f := cudaFaults{t, file}
	shape := testmodel.Tiny
	shape.Layers = 1
	data := testmodel.Random(shape)
	prompt := randomIDs(1, 10, shape.Vocab)
	run := func() ([]int32, error) {
		d, err := gpu.Open("cuda")
		if err != nil {
			return nil, err
		}
		defer d.Close()
		return loadAndFourTokens(d, data, prompt)
	}
	f.arm(-1, 0, 0)
	want, err := run()
	if err != nil {
		t.Fatal(err)
	}
	f.arm(-1, 0, 0)
	_, before := f.read()
	if _, err := run(); err != nil {
		t.Fatal(err)
	}
	calls, live := f.read()
	if live != before || calls[0] == 0 || calls[1] == 0 || calls[2] == 0 || calls[3] == 0 {
		t.Fatalf("calls %v, %d blocks live before and %d after: is this the library of scripts/link-fault-library.sh?", calls, before, live)
	}
	for kind, name := range []string{"allocation", "copy", "launch", "synchronization"} {
		failed, harmless := 0, 0
		for n := range calls[kind] {
			f.arm(kind, n, map[bool]int{true: 2, false: 1}[kind == 0])
			ids, err := run()
			switch {
			case err == nil && !slices.Equal(ids, want):
				t.Errorf("%s %d failed without an error: %v, want %v", name, n, ids, want)
			case err == nil: // while all is closed, or where it is tried again
				harmless++
			case !errors.Is(err, gpu.ErrOutOfMemory) && !strings.Contains(err.Error(), "driver error 999"):
				t.Errorf("%s %d: %v", name, n, err)
			default:
				failed++
			}
			f.arm(-1, 0, 0)
			if _, live := f.read(); live != before {
				t.Errorf("%s %d failed (%v), and %d blocks more stay live", name, n, err, live-before)
				before = live
			}
			if ids, err := run(); err != nil || !slices.Equal(ids, want) {
				t.Fatalf("after %s %d failed: %v, %v, want %v", name, n, ids, err, want)
			}
		}
		t.Logf("%s: of %d faults %d were errors, %d changed nothing; no leak, and every next run was right", name, failed+harmless, failed, harmless)
	}
}
