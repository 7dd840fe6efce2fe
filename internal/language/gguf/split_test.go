package gguf

import (
	"bytes"
	"errors"
	"fmt"
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
