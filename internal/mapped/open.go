package mapped

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// ErrNotRegular says that a path names a folder, a pipe or a device.
var ErrNotRegular = errors.New("not a regular file")

// OpenFile opens a regular file for reading. It does not wait for a pipe's writer.
func OpenFile(path string) (fd *os.File, size int64, err error) {
	fd, err = os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := fd.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w (%s)", ErrNotRegular, kindOf(info.Mode()))
	}
	if err != nil {
		fd.Close()
		return nil, 0, err
	}
	return fd, info.Size(), nil
}

// ReadFile reads a regular file of at most limit bytes. It does not wait for a pipe's writer, and reads no device without an end.
func ReadFile(path string, limit int64) ([]byte, error) {
	fd, size, err := OpenFile(path)
	if errors.Is(err, ErrNotRegular) {
		err = fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	data, err := io.ReadAll(io.LimitReader(fd, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s: %d bytes, of which at most %d are read", path, max(size, limit+1), limit)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// kindOf says what a file is that is not a regular one.
func kindOf(m os.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&os.ModeNamedPipe != 0:
		return "a pipe"
	case m&os.ModeDevice != 0:
		return "a device"
	}
	return m.Type().String()
}

// Reader reads parts of a file: mapped where the system can, else into memory.
type Reader struct {
	r    io.ReaderAt
	size int64
	fd   *os.File // nil where the reader was not opened here
	file *File    // nil where nothing is mapped
}

// Open opens a file whose parts may be written to in memory; the file does not change. The caller closes the Reader.
func Open(path string) (*Reader, error) {
	fd, size, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{r: fd, size: size, fd: fd}
	if r.file, err = MapPrivate(fd, size); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		fd.Close()
		return nil, fmt.Errorf("mapping %d bytes: %w (is the address space limited, as by ulimit -v?)", size, err)
	}
	return r, nil
}

// NewReader reads parts of size bytes of r into memory.
func NewReader(r io.ReaderAt, size int64) *Reader { return &Reader{r: r, size: size} }

// Size returns the bytes that the file had when it was opened.
func (r *Reader) Size() int64 { return r.size }

// ReadAt reads from the file itself, so that a file that was cut short is an error: ErrFileChanged.
func (r *Reader) ReadAt(b []byte, offset int64) (int, error) {
	n, err := r.r.ReadAt(b, offset)
	if n == len(b) {
		return n, nil
	}
	if (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && offset+int64(len(b)) <= r.size {
		err = ErrFileChanged
	}
	return n, err
}

// Part returns n bytes from an offset on, which lie in the file, and what keeps a mapping that they are a part of: nil
// where they are no part of one.
func (r *Reader) Part(offset, n int64) (data []byte, keep any, err error) {
	if r.file != nil {
		return r.file.Bytes()[offset : offset+n : offset+n], r.file.Keep(), nil
	}
	if n > math.MaxInt {
		return nil, nil, fmt.Errorf("%d bytes: more than this system addresses", n)
	}
	data = make([]byte, n)
	_, err = r.ReadAt(data, offset)
	return data, nil, err
}

// Intact returns ErrFileChanged where a mapped file was cut short or grew.
func (r *Reader) Intact() error {
	if r.file == nil {
		return nil
	}
	return r.file.Intact()
}

// Close closes the file. Parts that Keep's value holds stay.
func (r *Reader) Close() error {
	var errs []error
	if r.file != nil {
		errs = append(errs, r.file.Close())
	}
	if r.fd != nil {
		errs = append(errs, r.fd.Close())
	}
	return errors.Join(errs...)
}
