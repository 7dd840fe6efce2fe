package gpu

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Copies of up to smallCopy bytes share small staging buffers, which most streams never outgrow; the first larger one
// replaces them. 4 MiB is where a copy over PCIe reaches its full speed, and two of them let the processor fill one
// while the device reads the other.
const (
	smallCopy = 64 << 10
	largeCopy = 4 << 20
)

// staging is a pair of page-locked buffers between ordinary memory and the device, filled in turns. The stream's lock
// guards it.
type staging struct {
	half   [2]stagingHalf
	size   int64 // of each half
	turn   int
	offset int64 // where the next upload goes
}

type stagingHalf struct {
	ptr  kernel.Ptr
	done kernel.Event // the device has passed all uploads from this half
	busy bool
}

// prepare makes the staging buffers large enough for good speed with a copy of that many bytes.
func (g *staging) prepare(s *stream, bytes int64) error {
	want := int64(smallCopy)
	if bytes > smallCopy {
		want = largeCopy
	}
	if g.size >= want {
		return nil
	}
	if g.size > 0 {
		if err := s.kernel.Synchronize(); err != nil {
			return err
		}
		g.release(s.dev)
	}
	for i := range g.half {
		h := &g.half[i]
		err := s.dev.call(func() (err error) {
			if h.ptr, err = s.dev.kernel.AllocHost(want); err == nil {
				h.done, err = s.dev.kernel.NewEvent()
			}
			return err
		})
		if err != nil {
			g.release(s.dev)
			return err
		}
	}
	g.size = want
	return nil
}

func (g *staging) release(d *device) {
	for _, h := range g.half {
		if h.done != nil {
			d.call(h.done.Close)
		}
		if h.ptr != nil {
			d.call(func() error { return d.kernel.FreeHost(h.ptr) })
		}
	}
	*g = staging{}
}

// upload copies host memory to the device. It returns once src may be reused, which on a GPU is before the device has
// the data.
func (s *stream) upload(dst kernel.Ptr, src []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	s.enqueued.Add(1)
	if s.dev.info.HostMemory {
		err := s.toDevice(dst, unsafe.Pointer(&src[0]), int64(len(src)))
		runtime.KeepAlive(src)
		return s.dev.check(err)
	}
	if s.capture.Load() != nil {
		return fmt.Errorf("gpu: copy from host while capturing: %w: a replay would copy stale memory", ErrUnsupported)
	}
	if err := s.uploadStaged(dst, src); err != nil {
		return fmt.Errorf("gpu: copy of %d bytes to %s: %w", len(src), s.dev, s.dev.check(err))
	}
	return nil
}

func (s *stream) uploadStaged(dst kernel.Ptr, src []byte) error {
	g := &s.staging
	if err := g.prepare(s, int64(len(src))); err != nil {
		return err
	}
	for len(src) > 0 {
		if g.offset >= g.size {
			if err := s.kernel.Record(g.half[g.turn].done); err != nil {
				return err
			}
			g.half[g.turn].busy = true
			g.turn, g.offset = 1-g.turn, 0
			if h := &g.half[g.turn]; h.busy {
				if err := h.done.Synchronize(); err != nil {
					return err
				}
				h.busy = false
			}
		}
		at := unsafe.Add(g.half[g.turn].ptr, g.offset)
		n := copy(unsafe.Slice((*byte)(at), g.size-g.offset), src)
		if err := s.toDevice(dst, at, int64(n)); err != nil {
			return err
		}
		dst, src = unsafe.Add(dst, n), src[n:]
		g.offset += (int64(n) + 15) &^ 15
	}
	return nil
}

// download copies device memory to the host and waits for it, and so for all work before it.
func (s *stream) download(dst []byte, src kernel.Ptr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if s.capture.Load() != nil {
		return fmt.Errorf("gpu: copy to host while capturing: %w", ErrUnsupported)
	}
	n := s.enqueued.Load()
	var err error
	if s.dev.info.HostMemory {
		if err = s.toHost(unsafe.Pointer(&dst[0]), src, int64(len(dst))); err == nil {
			err = s.kernel.Synchronize()
		}
		runtime.KeepAlive(dst)
	} else {
		err = s.downloadStaged(dst, src)
	}
	if err != nil {
		return fmt.Errorf("gpu: copy of %d bytes from %s: %w", len(dst), s.dev, s.dev.check(err))
	}
	s.finished.Store(n)
	return nil
}

func (s *stream) downloadStaged(dst []byte, src kernel.Ptr) error {
	g := &s.staging
	if err := g.prepare(s, int64(len(dst))); err != nil {
		return err
	}
	// Stream order keeps these copies behind uploads that still read the halves; nothing is left to wait for after them.
	var waiting []byte // what the half filled last will be copied to
	for len(dst) > 0 || waiting != nil {
		var next []byte
		if len(dst) > 0 {
			next = dst[:min(int64(len(dst)), g.size)]
			h := &g.half[g.turn]
			if err := s.toHost(h.ptr, src, int64(len(next))); err != nil {
				return err
			}
			if err := s.kernel.Record(h.done); err != nil {
				return err
			}
			src, dst = unsafe.Add(src, len(next)), dst[len(next):]
		}
		if waiting != nil {
			h := &g.half[1-g.turn]
			if err := h.done.Synchronize(); err != nil {
				return err
			}
			copy(waiting, unsafe.Slice((*byte)(h.ptr), g.size))
		}
		waiting = next
		g.turn = 1 - g.turn
	}
	g.half[0].busy, g.half[1].busy, g.offset = false, false, 0
	return nil
}
