package gguf

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeSplit writes a model of three tensors in three files and returns their paths; spoil may change each before.
func writeSplit(t *testing.T, spoil func(number int, w *Writer)) []string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for n := range 3 {
		w := &Writer{}
		if n == 0 {
			w.Set("general.architecture", "llama")
		}
		w.Set("split.no", uint16(n))
		w.Set("split.count", uint16(3))
		w.Set("split.tensors.count", int32(3))
		if spoil != nil {
			spoil(n, w)
		}
		w.AddTensor(fmt.Sprintf("t%d", n), F32, []int{8}, bytes.Repeat([]byte{byte(n + 1)}, 32))
		var b bytes.Buffer
		if _, err := w.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("m-%05d-of-00003.gguf", n+1)))
		if err := os.WriteFile(paths[n], b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func TestSplitModelOpensAsOneByAnyOfItsFiles(t *testing.T) {
	for i, path := range writeSplit(t, nil) {
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := f.String("general.architecture"); err != nil || a != "llama" {
			t.Errorf("by part %d: architecture %q, %v", i+1, a, err)
		}
		if n := len(f.Tensors()); n != 3 {
			t.Fatalf("by part %d: %d tensors", i+1, n)
		}
		if f.Bytes() <= 2*f.Size {
			t.Errorf("by part %d: %d bytes of %d in the first", i+1, f.Bytes(), f.Size)
		}
		for n := range 3 {
			x, err := f.Tensor(fmt.Sprintf("t%d", n))
			if err != nil {
				t.Fatal(err)
			}
			want := bytes.Repeat([]byte{byte(n + 1)}, 32)
			if b, err := f.Data(x); err != nil || !bytes.Equal(b, want) {
				t.Errorf("by part %d: tensor %d: %v, %v", i+1, n, b, err)
			}
			b := make([]byte, 30)
			if err := f.ReadTensor(x, b, 2); err != nil || !bytes.Equal(b, want[2:]) {
				t.Errorf("by part %d: tensor %d read from byte 2: %v, %v", i+1, n, b, err)
			}
			if err := f.ReadTensor(x, b, 3); err == nil {
				t.Errorf("by part %d: read beyond tensor %d", i+1, n)
			}
		}
		for range 2 {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := f.Data(&f.Tensors()[2]); !errors.Is(err, ErrClosed) {
			t.Errorf("data of a closed file: %v", err)
		}
	}
}

func TestSplitModelsThatDoNotFitTogetherAreRefused(t *testing.T) {
	paths := writeSplit(t, nil)
	os.Remove(paths[0])
	os.Remove(paths[2])
	_, err := Open(paths[1])
	if !errors.Is(err, ErrMissingPart) || !strings.Contains(err.Error(), "2 of 3: m-00001-of-00003.gguf, m-00003-of-00003.gguf") {
		t.Errorf("two parts are missing: %v", err)
	}
	renamed := filepath.Join(filepath.Dir(paths[1]), "other.gguf")
	os.Rename(paths[1], renamed)
	if _, err := Open(renamed); err == nil || !strings.Contains(err.Error(), "-00002-of-00003.gguf") {
		t.Errorf("renamed: %v", err)
	}

	paths = writeSplit(t, nil)
	b, _ := os.ReadFile(paths[1])
	os.WriteFile(paths[2], b, 0o600)
	for _, p := range []string{paths[0], paths[2]} {
		if _, err := Open(p); err == nil || !strings.Contains(err.Error(), "2 of 3") {
			t.Errorf("the second part as the third, by %s: %v", filepath.Base(p), err)
		}
	}
	os.WriteFile(paths[2], b[:40], 0o600)
	if _, err := Open(paths[0]); err == nil || !strings.Contains(err.Error(), "00003-of-00003") {
		t.Errorf("a truncated part: %v", err)
	}
	for name, spoil := range map[string]func(int, *Writer){
		"twice": func(n int, w *Writer) {
			if n == 1 {
				w.AddTensor("t0", F32, []int{1}, make([]byte, 4))
			}
		},
		"4 tensors": func(n int, w *Writer) {
			if n == 2 {
				w.AddTensor("more", F32, []int{1}, make([]byte, 4))
			}
		},
	} {
		if _, err := Open(writeSplit(t, spoil)[0]); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// writeParts writes three files of one tensor each and returns their paths.
func writeParts(t *testing.T, number, count, total func(n int) uint64) []string {
	t.Helper()
	dir := t.TempDir()
	paths := make([]string, 3)
	for n := range paths {
		w := &Writer{}
		w.Set("split.no", number(n))
		w.Set("split.count", count(n))
		w.Set("split.tensors.count", total(n))
		w.AddTensor(fmt.Sprintf("t%d", n), F32, []int{8}, make([]byte, 32))
		var b bytes.Buffer
		if _, err := w.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		paths[n] = filepath.Join(dir, fmt.Sprintf("m-%05d-of-00003.gguf", n+1))
		if err := os.WriteFile(paths[n], b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func TestPartsThatContradictEachOtherAreRefused(t *testing.T) {
	own := func(n int) uint64 { return uint64(n) }
	three := func(int) uint64 { return 3 }
	all := func(x uint64) func(int) uint64 { return func(int) uint64 { return x } }
	counted := func(n int) uint64 { return uint64(3 + n) }
	for name, c := range map[string]struct{ number, count, total func(int) uint64 }{
		"number beyond the count":     {counted, three, three},
		"number that wraps around":    {all(math.MaxUint64), three, three},
		"count beyond its type":       {own, all(math.MaxUint64), three},
		"another count in one part":   {own, counted, three},
		"another total in one part":   {own, three, counted},
		"a total that is not reached": {own, three, all(4)},
		"one number in all parts":     {all(0), three, three},
	} {
		for _, path := range writeParts(t, c.number, c.count, c.total) {
			if _, err := Open(path); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "part") && !strings.Contains(err.Error(), "split.") {
				t.Errorf("%s: %s: %v", name, filepath.Base(path), err)
			}
		}
	}
}

// The names m-00000-of-00003 and m-00004-of-00003 agree with numbers of parts that do not exist.
func TestNumberOfAPartIsCheckedBeforeItsName(t *testing.T) {
	for name, number := range map[string]uint64{"m-00000-of-00003.gguf": math.MaxUint64, "m-00004-of-00003.gguf": 3} {
		paths := writeParts(t, func(int) uint64 { return number }, func(int) uint64 { return 3 }, func(int) uint64 { return 3 })
		path := filepath.Join(filepath.Dir(paths[0]), name)
		if err := os.Link(paths[0], path); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzParts wants a short error, or the tensors of a model in two files, by either of them.
func FuzzParts(f *testing.F) {
	part := func(number, count, total uint64, name string) []byte {
		w := &Writer{}
		w.Set("split.no", number)
		w.Set("split.count", count)
		w.Set("split.tensors.count", total)
		w.AddTensor(name, F32, []int{8}, make([]byte, 32))
		return build(f, w)
	}
	f.Add(part(0, 2, 2, "a"), part(1, 2, 2, "b"))
	f.Add(part(0, 2, 2, "a"), part(1, 2, 2, "a"))
	f.Add(part(0, 1, 2, "a"), part(1, 2, 3, "b"))
	f.Add(part(0, math.MaxUint64, 2, "a"), part(math.MaxUint64, 2, 2, strings.Repeat("\x1b", 60)))
	f.Add(part(0, 2, 2, "a"), part(1, 2, 2, "b")[:70])
	for _, c := range hostile {
		f.Add(part(0, 2, 2, "a"), c.file)
		f.Add(c.file, part(1, 2, 2, "b"))
	}
	folder := f.TempDir()
	f.Fuzz(func(t *testing.T, first, second []byte) {
		paths := []string{filepath.Join(folder, "m-00001-of-00002.gguf"), filepath.Join(folder, "m-00002-of-00002.gguf")}
		for i, b := range [][]byte{first, second} {
			if err := os.WriteFile(paths[i], b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range paths {
			g, err := Open(path)
			if err != nil {
				if len(err.Error()) > 1000+2*len(folder) {
					t.Fatalf("%.2000s", err)
				}
				continue
			}
			for i := range g.Tensors() {
				if x, err := g.Data(&g.Tensors()[i]); err != nil || int64(len(x)) != g.Tensors()[i].Bytes {
					t.Fatalf("%+v: %d bytes, %v", g.Tensors()[i], len(x), err)
				}
			}
			g.Close()
		}
	})
}
