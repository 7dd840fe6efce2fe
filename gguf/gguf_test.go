package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/gguf"
)

const golden = "testdata/golden.gguf"

func open(t testing.TB, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// The file is by gguf-py: testdata/golden.py.
func TestFilesOfGGUFPyAreRead(t *testing.T) {
	b, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	read, err := gguf.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*gguf.File{open(t, golden), read} {
		for key, want := range map[string]any{
			"general.architecture": "llama", "llama.block_count": uint32(2), "rope.scale": float32(0.1), "epsilon": 1e-5, "tied": true,
			"general.name": "Grüße", "i8": int8(-100), "u64": uint64(math.MaxUint64), "tokens": []string{"a", "", "€"}, "ids": []int32{-1, 0, 7},
			"flags": []bool{true, false},
		} {
			if v, err := f.Value(key); err != nil || !reflect.DeepEqual(v, want) || !slices.Contains(f.Keys(), key) {
				t.Errorf("%s: %v (%T) %v, want %v", key, v, v, err, want)
			}
		}
		n, err := f.Uint("llama.block_count")
		if err != nil || n != 2 {
			t.Error(n, err)
		}
		if s, err := f.Float("rope.scale"); err != nil || s != float64(float32(0.1)) {
			t.Error(s, err)
		}
		if _, err := f.Int("u64"); err == nil || !strings.Contains(err.Error(), `key "u64": 18446744073709551615 is out of range`) {
			t.Error(err)
		}
		if _, err := f.Bool("i8"); err == nil || !strings.Contains(err.Error(), `key "i8" is of type i8, not bool`) {
			t.Error(err)
		}
		if ids, err := f.Ints("ids"); err != nil || !slices.Equal(ids, []int64{-1, 0, 7}) {
			t.Error(ids, err)
		}
		if _, err := f.Strings("none"); !errors.Is(err, gguf.ErrNoKey) {
			t.Error(err)
		}
		if _, err := f.Value("none"); !errors.Is(err, gguf.ErrNoKey) || !strings.Contains(err.Error(), `"none"`) {
			t.Error(err)
		}
		want := []gguf.Tensor{{"plain.weight", dtype.F32, []int{2, 64}, 512}, {"half.weight", dtype.F16, []int{2, 64}, 256},
			{"blocks.weight", dtype.Q8_0, []int{2, 64}, 136}, {"double", 28, []int{2}, 16}}
		if got := f.Tensors(); !reflect.DeepEqual(got, want) || got[3].Type.String() != "F64" {
			t.Errorf("%v, want %v", got, want)
		}
		data, _, err := f.Data("plain.weight")
		if err != nil || math.Float32frombits(binary.LittleEndian.Uint32(data[4*64:])) != 4 {
			t.Error(data, err)
		}
		if _, _, err := f.Data("none"); !errors.Is(err, gguf.ErrNoTensor) {
			t.Error(err)
		}
		if _, err := f.Tensor("none"); !errors.Is(err, gguf.ErrNoTensor) {
			t.Error(err)
		}
		if err := f.Intact(); err != nil {
			t.Error(err)
		}
	}
}

// write copies keys and tensors of a file.
func write(t *testing.T, f *gguf.File) *gguf.Writer {
	t.Helper()
	w := &gguf.Writer{}
	for _, key := range f.Keys() {
		v, err := f.Value(key)
		if err != nil {
			t.Fatal(err)
		}
		w.Set(key, v)
	}
	for _, x := range f.Tensors() {
		data, _, err := f.Data(x.Name)
		if err != nil {
			t.Fatal(err)
		}
		w.Add(x.Name, x.Type, x.Shape, data)
	}
	return w
}

func TestWrittenFilesAreThoseOfGGUFPy(t *testing.T) {
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "x.gguf")
	if err := write(t, open(t, golden)).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v\n%q\n%q", err, got, want)
	}
	var memory bytes.Buffer
	if n, err := write(t, open(t, golden)).WriteTo(&memory); err != nil || n != int64(len(want)) || !bytes.Equal(memory.Bytes(), want) {
		t.Errorf("%d bytes in memory, %v", n, err)
	}
	w := &gguf.Writer{}
	w.Add("x", dtype.Q8_0, []int{2, 33}, make([]byte, 68))
	if err := w.WriteFile(path); err == nil || !strings.Contains(err.Error(), `tensor "x": rows of 33 elements`) {
		t.Error(err)
	}
	if got, _ := os.ReadFile(path); !bytes.Equal(got, want) {
		t.Error("the file changed")
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 1 {
		t.Errorf("something is left: %v", entries)
	}
}

func TestArraysAreReadByType(t *testing.T) {
	w, memory := &gguf.Writer{}, &bytes.Buffer{}
	w.Set("floats", []float64{0.5, -3})
	w.Set("bools", []bool{true, false, true})
	if _, err := w.WriteTo(memory); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.NewReader(bytes.NewReader(memory.Bytes()), int64(memory.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if floats, err := f.Floats("floats"); err != nil || !slices.Equal(floats, []float32{0.5, -3}) {
		t.Errorf("floats: %v, %v", floats, err)
	}
	if bools, err := f.Bools("bools"); err != nil || !slices.Equal(bools, []bool{true, false, true}) {
		t.Errorf("bools: %v, %v", bools, err)
	}
	if _, err := f.Bools("floats"); err == nil || !strings.Contains(err.Error(), "floats") {
		t.Errorf("floats as bools: %v", err)
	}
}

func TestDividedModelsAreOneFile(t *testing.T) {
	folder := t.TempDir()
	part := func(n int, name string) {
		w := &gguf.Writer{}
		w.Set("split.no", uint16(n))
		w.Set("split.count", uint16(2))
		w.Set("split.tensors.count", int32(2))
		w.Add(name, dtype.I8, []int{3}, []byte{byte(n), 1, 2})
		if err := w.WriteFile(filepath.Join(folder, []string{"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}[n])); err != nil {
			t.Fatal(err)
		}
	}
	part(0, "a")
	if _, err := gguf.Open(filepath.Join(folder, "m-00001-of-00002.gguf")); !errors.Is(err, gguf.ErrMissingPart) {
		t.Error(err)
	}
	part(1, "b")
	f := open(t, filepath.Join(folder, "m-00002-of-00002.gguf"))
	for n, name := range []string{"a", "b"} {
		if data, _, err := f.Data(name); err != nil || !bytes.Equal(data, []byte{byte(n), 1, 2}) {
			t.Error(name, data, err)
		}
	}
}

func TestHostileFilesKeepTheirErrors(t *testing.T) {
	b, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := os.WriteFile(path, b[:len(b)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := gguf.Open(path); !errors.Is(err, gguf.ErrTruncated) || !errors.Is(err, gguf.ErrInvalid) || !strings.Contains(err.Error(), `"double"`) {
		t.Error(err)
	}
	if _, err := gguf.NewReader(strings.NewReader("PK\x03\x04...."), 8); !errors.Is(err, gguf.ErrNotGGUF) {
		t.Error(err)
	}
	if _, err := gguf.Open(filepath.Dir(path)); !errors.Is(err, gguf.ErrNotGGUF) || !strings.Contains(err.Error(), "a directory") {
		t.Error(err)
	}
}

func TestDataOutlivesItsFileWhereItIsKept(t *testing.T) {
	f := open(t, golden)
	data, keep, err := f.Data("plain.weight")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if keep != nil { // a mapping
		runtime.GC()
		data[0] = 1
		if b, _ := os.ReadFile(golden); bytes.Contains(b, data[:64]) {
			t.Error("the file changed")
		}
		runtime.KeepAlive(keep)
	}
	if _, _, err := f.Data("plain.weight"); !errors.Is(err, gguf.ErrClosed) {
		t.Error(err)
	}
}
