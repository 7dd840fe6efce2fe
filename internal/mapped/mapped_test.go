package mapped

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
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

// mapNew writes a file and maps it, where the system maps files.
func mapNew(t *testing.T, path string, data []byte) *File {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fd.Close() })
	f, err := Map(fd, int64(len(data)))
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFileThatIsCutShortWhileItIsMappedReadsAsZeros(t *testing.T) {
	const size = 1 << 20
	path := filepath.Join(t.TempDir(), "file")
	ones := make([]byte, size)
	for i := range ones {
		ones[i] = 1
	}
	for range 3 {
		f := mapNew(t, path, ones)
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
	}
}

func TestKeptMappingsOutliveTheirClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	data, keep, err := r.Part(2, 3)
	if err != nil || string(data) != "234" {
		t.Fatalf("%q %v", data, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	data[0] = 'x' // in memory alone
	if b, _ := os.ReadFile(path); string(data) != "x34" || string(b) != "0123456789" {
		t.Errorf("%q, the file has %q", data, b)
	}
	runtime.KeepAlive(keep)
	if keep == nil {
		t.Skip("this system maps no files")
	}
	f := keep.(*keeper).File
	keep = nil
	busy.Until(t, "the mapping stays when nothing uses it", func() bool { runtime.GC(); return !mappings(f) })
}

func TestFetchingEndsWithCloseAndWithAFileCutShort(t *testing.T) {
	const size = 64 << 20
	path := filepath.Join(t.TempDir(), "file")
	for _, left := range []int64{size, size / 2, 0} {
		f := mapNew(t, path, make([]byte, size))
		if err := os.Truncate(path, left); err != nil {
			t.Fatal(err)
		}
		f.Fetch()
		if left == 0 { // while it works, too
			select {
			case <-f.fetch.ended:
			case <-time.After(busy.Limit):
				t.Fatal("a file without pages is fetched for ever")
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		select {
		case <-f.fetch.ended:
		default:
			t.Error("pages are fetched after Close")
		}
	}
}

// mappings reports whether a file is among those that are mapped.
func mappings(f *File) bool {
	open.RLock()
	defer open.RUnlock()
	_, mapped := open.files[f]
	return mapped
}

func TestOpeningWhatIsNoFileFailsAtOnce(t *testing.T) {
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNotRegular) {
		t.Error(err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestReadFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("four"), 0o644); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadFile(path, 4); string(data) != "four" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if data, err := ReadFile(path, 3); data != nil || err == nil {
		t.Errorf("%q, %v", data, err)
	}
	for _, path := range []string{os.DevNull, t.TempDir()} {
		if _, err := ReadFile(path, 4); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", path, err)
		}
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
