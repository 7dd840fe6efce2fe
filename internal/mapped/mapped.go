// Package mapped maps files into memory, read only, and survives when somebody cuts such a file short.
//
// The system answers an access beyond the new end of a mapped file with the signal SIGBUS, which ends a process, be it in C or
// in Go. Here such an access reads zeros instead, and File.Intact says so from then on. In builds with cgo a signal handler puts
// zeros in the place of the pages that are gone, and passes every other SIGBUS on to the handler before it, Go's. In builds
// without it, code that reads mappings runs between debug.SetPanicOnFault and Recover.
package mapped

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// ErrFileChanged says that a file was cut short, or grew, while it was mapped.
var ErrFileChanged = errors.New("the file was changed while it was in use")

// File is a mapped file.
type File struct {
	fd     *os.File
	data   []byte
	slot   int // of the signal handler, where there is one
	broken atomic.Bool
	fetch  *fetch // under way, or nil

	mu     sync.Mutex
	users  int // values of Keep that are not collected
	closed bool
}

// open holds the mappings of this process.
var open struct {
	sync.RWMutex
	files map[*File]struct{}
}

// Map maps the first size bytes of a file, which stays open until Close. ErrUnsupported: this system maps no files; other
// errors say that memory is short.
func Map(fd *os.File, size int64) (*File, error) { return mapFile(fd, size, false) }

// MapPrivate is Map to memory that may be written: the file does not change, and what is written is this mapping's alone.
func MapPrivate(fd *os.File, size int64) (*File, error) { return mapFile(fd, size, true) }

func mapFile(fd *os.File, size int64, private bool) (*File, error) {
	data, err := mmap(fd, size, private)
	if err != nil {
		return nil, err
	}
	f := &File{fd: fd, data: data}
	if f.slot, err = guard(data); err != nil {
		return nil, errors.Join(err, munmap(data))
	}
	open.Lock()
	defer open.Unlock()
	if open.files == nil {
		open.files = map[*File]struct{}{}
	}
	open.files[f] = struct{}{}
	return f, nil
}

// Bytes returns the memory, which ends with Close, or later where Keep says so.
func (f *File) Bytes() []byte { return f.data }

// Intact returns ErrFileChanged where the file is not as long as it was, or an access found it shorter.
func (f *File) Intact() error {
	if f.broken.Load() || struck(f.slot) {
		return ErrFileChanged
	}
	info, err := f.fd.Stat()
	if err != nil {
		return err
	}
	if info.Size() != int64(len(f.data)) {
		f.broken.Store(true)
		return fmt.Errorf("%w: it had %d bytes and has %d", ErrFileChanged, len(f.data), info.Size())
	}
	return nil
}

// Keep returns a value that holds the mapping beyond Close, until the garbage collector finds the value dropped.
func (f *File) Keep() any {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users++
	k := &keeper{f}
	runtime.AddCleanup(k, (*File).drop, f)
	return k
}

type keeper struct{ *File }

// drop forgets a value of Keep.
func (f *File) drop() {
	f.mu.Lock()
	f.users--
	last := f.closed && f.users == 0
	f.mu.Unlock()
	if last {
		f.unmap()
	}
}

// Close ends the mapping, or has the last value of Keep end it. It does not close the file.
func (f *File) Close() error {
	f.mu.Lock()
	f.closed = true
	used := f.users > 0
	f.mu.Unlock()
	if used {
		return nil
	}
	return f.unmap()
}

// fetch is what Fetch does in the background.
type fetch struct {
	stop  atomic.Bool
	ended chan struct{}
}

// Fetch has the system bring the file into memory and into this process's page tables, in the background, until Close. It is for
// files all of which is read soon, and small enough to stay in memory. It is called once at most, and not after Close.
func (f *File) Fetch() {
	work := &fetch{ended: make(chan struct{})}
	f.mu.Lock()
	f.fetch = work
	f.mu.Unlock()
	go func() {
		defer close(work.ended)
		const piece = 16 << 20
		for rest := f.data; len(rest) > 0 && !work.stop.Load(); {
			n := min(piece, len(rest))
			if populate(rest[:n]) != nil {
				return // an older system, or a file that was cut short: accesses bring the pages
			}
			rest = rest[n:]
		}
	}()
}

func (f *File) unmap() error {
	f.mu.Lock()
	work := f.fetch
	f.mu.Unlock()
	if work != nil {
		work.stop.Store(true)
		<-work.ended
	}
	open.Lock()
	delete(open.files, f)
	open.Unlock()
	release(f.slot)
	return munmap(f.data)
}

// Recover ends the panic of an access to a mapping whose file is shorter by now, and lets any other go on. It is deferred by code
// that reads mappings after debug.SetPanicOnFault(true).
func Recover() {
	switch e := recover().(type) {
	case nil:
	case interface{ Addr() uintptr }:
		if !hit(e.Addr()) {
			panic(e)
		}
	default:
		panic(e)
	}
}

// hit notes an access that found no file behind a mapping, and reports whether there is a mapping at that address.
func hit(address uintptr) bool {
	open.RLock()
	defer open.RUnlock()
	for f := range open.files {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(f.data)))
		if address >= start && address-start < uintptr(len(f.data)) {
			f.broken.Store(true)
			return true
		}
	}
	return false
}
