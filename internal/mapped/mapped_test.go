package mapped

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// sum reads a mapping as kernels do.
func sum(data []byte) (n int) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer Recover()
	for _, b := range data {
		n += int(b)
	}
	return n
}

func TestFileThatIsCutShortWhileItIsMappedReadsAsZeros(t *testing.T) {
	const size = 1 << 20
	path := filepath.Join(t.TempDir(), "file")
	ones := make([]byte, size)
	for i := range ones {
		ones[i] = 1
	}
	for range 3 {
		if err := os.WriteFile(path, ones, 0o600); err != nil {
			t.Fatal(err)
		}
		fd, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Map(fd, size)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := sum(f.Bytes()); n != size || f.Intact() != nil {
			t.Errorf("whole: sum %d, %v", n, f.Intact())
		}
		if err := os.Truncate(path, size/2); err != nil {
			t.Fatal(err)
		}
		if n := sum(f.Bytes()); n > size/2 {
			t.Errorf("cut: sum %d", n)
		}
		if err := os.Truncate(path, size); err != nil { // what was seen is not forgotten
			t.Fatal(err)
		}
		if err := f.Intact(); !errors.Is(err, ErrFileChanged) {
			t.Errorf("cut: %v", err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		fd.Close()
	}
}

func TestOtherFaultsPass(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a fault outside of all mappings was swallowed")
		}
	}()
	defer Recover()
	var p *int
	_ = *p
}
