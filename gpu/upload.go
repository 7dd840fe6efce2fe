package gpu

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/phase"
)

// Upload is data on its way to a device.
type Upload struct {
	To *Buffer // of the device; the work of another stream that it belongs to comes first
	At int64   // byte offset there
	// Bytes is how many there are.
	Bytes int64
	// Read fills dst with the data from an offset on. It is called from several goroutines at once.
	Read func(dst []byte, offset int64) error
	// Then is called in order, on the caller's goroutine, when all copies up to the last of this upload are enqueued: what it
	// enqueues on the stream finds the data. It may be nil.
	Then func() error
}

// A chunk is large enough for a copy over PCIe to reach its full speed, and there are enough of them for several readers,
// those that wait to be copied, and those that are being copied: reading from the page cache takes several threads to
// keep up with the bus. Memory takes time to lock: small uploads have small chunks.
const (
	uploadChunk   = 4 << 20
	uploadLeast   = 256 << 10
	uploadParts   = 512 // chunks of all, while these are no larger or smaller than they may be
	uploadSlots   = 16
	uploadCopying = 4 // slots that the readers leave to copies under way
	uploadReaders = 8
)

// chunk is a part of an upload that passes through one slot.
type chunk struct {
	upload int
	offset int64
	bytes  int64
	last   bool
	slot   int
	memory []byte
}

// Upload brings data to buffers of the stream, in stream order: several goroutines read ahead into page-locked memory while
// the device copies. It returns when everything is enqueued and what Read read from is not needed any more, or with the
// first error, or that of ctx.
func (s *Stream) Upload(ctx context.Context, uploads []Upload) error {
	defer runtime.KeepAlive(s)
	room := chunkBytes(uploads)
	chunks, err := cut(s, uploads, room)
	if err != nil {
		return err
	}
	if len(chunks) == 0 {
		return nil
	}
	slots := min(uploadSlots, len(chunks))
	staging, err := s.dev.allocHost(int64(slots) * room)
	if err != nil {
		return err
	}
	defer func() {
		s.Synchronize() // copies from the staging memory; an error of the stream's work is its next user's
		staging.free()
	}()
	phase.Done("page-locked memory allocated")
	copied := make([]*Event, slots)
	filled := make([]chan error, slots)
	for i := range slots {
		copied[i], filled[i] = s.device.NewEvent(), make(chan error, 1)
		defer copied[i].Close()
	}

	todo := make(chan chunk, slots)
	var readers sync.WaitGroup
	for range min(uploadReaders, runtime.GOMAXPROCS(0), len(chunks)) {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for c := range todo {
				filled[c.slot] <- uploads[c.upload].Read(c.memory, c.offset)
			}
		}()
	}
	defer readers.Wait()
	defer close(todo)

	ahead := max(1, slots-uploadCopying)
	for done, handed := 0, 0; done < len(chunks); done++ {
		for ; handed < min(len(chunks), done+ahead); handed++ {
			c := &chunks[handed]
			c.slot = handed % slots
			if handed >= slots {
				if err := copied[c.slot].Synchronize(); err != nil {
					return err
				}
			}
			c.memory = unsafe.Slice((*byte)(unsafe.Add(staging.ptr, int64(c.slot)*room)), c.bytes)
			todo <- *c
		}
		c := &chunks[done]
		err := <-filled[c.slot]
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		u := &uploads[c.upload]
		if c.bytes > 0 {
			if err := s.copyFrom(u.To, u.At+c.offset, c.memory); err != nil {
				return err
			}
			if err := s.Record(copied[c.slot]); err != nil {
				return err
			}
		}
		if c.last && u.Then != nil {
			if err := u.Then(); err != nil {
				return err
			}
		}
	}
	return nil
}

// chunkBytes returns the most bytes of a chunk.
func chunkBytes(uploads []Upload) int64 {
	var sum int64
	for _, u := range uploads {
		sum += u.Bytes
	}
	return min(max(sum/uploadParts, uploadLeast), uploadChunk) &^ (uploadLeast - 1)
}

// cut divides uploads into chunks of so many bytes at most, an empty one into one of no bytes.
func cut(s *Stream, uploads []Upload, most int64) ([]chunk, error) {
	var chunks []chunk
	for i, u := range uploads {
		if u.Read == nil {
			return nil, fmt.Errorf("gpu: upload %d has nothing to read: %w", i, ErrInvalid)
		}
		if err := u.To.Use(s); err != nil {
			return nil, fmt.Errorf("gpu: upload %d: %w", i, err)
		}
		if err := u.To.span("upload", u.Bytes, u.At); err != nil {
			return nil, err
		}
		for at := int64(0); ; at += most {
			n := min(most, u.Bytes-at)
			chunks = append(chunks, chunk{upload: i, offset: at, bytes: n, last: at+n == u.Bytes})
			if at+n == u.Bytes {
				break
			}
		}
	}
	return chunks, nil
}

// copyFrom enqueues a copy from page-locked memory, which must not change before the device has passed it.
func (s *Stream) copyFrom(b *Buffer, at int64, memory []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if s.capture.Load() != nil {
		return fmt.Errorf("gpu: upload while capturing: %w: a replay would copy stale memory", ErrUnsupported)
	}
	s.enqueued.Add(1)
	err := s.kernel.CopyToDevice(unsafe.Add(b.ptr, at), unsafe.Pointer(unsafe.SliceData(memory)), int64(len(memory)))
	if err != nil {
		return fmt.Errorf("gpu: upload of %d bytes to %s: %w", len(memory), s.dev, s.dev.check(err))
	}
	return nil
}
