package gguf

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFileThatIsCutShortWhileItIsOpenIsSaid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	w := &Writer{}
	w.AddTensor("x", F32, []int{1 << 16}, make([]byte, 4<<16))
	file, err := os.Create(path)
	if err == nil {
		_, err = w.WriteTo(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Intact(); err != nil {
		t.Error(err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	x := &f.Tensors()[0]
	if err := f.ReadTensor(x, make([]byte, x.Bytes), 0); !errors.Is(err, ErrFileChanged) || errors.Is(err, io.EOF) {
		t.Errorf("ReadTensor: %v", err)
	}
	if f.memory == nil {
		return // this system maps no files
	}
	if err := f.Intact(); !errors.Is(err, ErrFileChanged) {
		t.Errorf("Intact: %v", err)
	}
}

func TestErrorsStayShortWhateverTheFileSays(t *testing.T) {
	long := strings.Repeat("k\x1b", 30000)
	for name, b := range map[string][]byte{
		"key":         raw(head(0, 1), long, uint32(99), filler),
		"key twice":   raw(head(0, 2), long, uint32(TypeUint8), []byte{0}, long, uint32(TypeUint8), []byte{0}),
		"tensor name": raw(head(1, 0), long, uint32(1), uint64(1<<60), uint32(F32), uint64(0)),
	} {
		_, err := FromBytes(b)
		if err == nil || len(err.Error()) > 200 || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %.300v", name, err)
		}
	}
	f, err := FromBytes(raw(head(0, 1), long, uint32(TypeUint8), []byte{0}))
	if err != nil {
		t.Fatal(err)
	}
	_, missing := f.Tensor(long)
	_, mistyped := f.String(long)
	for _, err := range []error{missing, mistyped} {
		if err == nil || len(err.Error()) > 200 {
			t.Errorf("%.300v", err)
		}
	}
}
