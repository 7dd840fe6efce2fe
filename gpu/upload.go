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
	// Then is called in order, one at a time, when all copies up to the last of this upload are enqueued: what it enqueues on
	// the stream finds the data. It may run on any goroutine, and may be nil.
	Then func() error
	// Passed is called in order on the caller's goroutine after Then. It may be nil.
	Passed func()
}

// A chunk is large enough for a copy over PCIe to reach its full speed, and there are enough of them for several readers
// and for those that are being copied: reading from the page cache takes several threads to keep up with the bus. Memory
// takes time to lock: small uploads have small chunks.
const (
	uploadChunk   = 4 << 20
	uploadLeast   = 256 << 10
	uploadParts   = 512 // chunks of all, while these are no larger or smaller than they may be
	uploadSlots   = 16
	uploadReaders = 8
)

// chunk is a part of an upload that passes through one slot.
type chunk struct {
	upload int
	offset int64
	bytes  int64
	last   bool
}

// uploader brings chunks to the device. Whichever reader finds that the next chunk in order is read enqueues its copy: none
// waits for another to be scheduled.
type uploader struct {
	stream  *Stream
	ctx     context.Context
	uploads []Upload
	chunks  []chunk
	memory  [][]byte // of each slot: chunk i passes through slot i % len(memory)
	copied  []*Event // out of it
	passed  chan int // uploads

	mu        sync.Mutex
	turn      sync.Cond // enqueued grew, or err is set
	next      int       // chunk to read
	enqueued  int       // chunks before it are
	read      []bool    // by slot: to be enqueued
	enqueuing bool      // a reader does
	err       error
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
	u := &uploader{stream: s, ctx: ctx, uploads: uploads, chunks: chunks, read: make([]bool, slots), passed: make(chan int, len(uploads))}
	u.turn.L = &u.mu
	for i := range slots {
		u.memory = append(u.memory, unsafe.Slice((*byte)(unsafe.Add(staging.ptr, int64(i)*room)), room))
		u.copied = append(u.copied, s.device.NewEvent())
		defer u.copied[i].Close()
	}
	var readers sync.WaitGroup
	for range min(uploadReaders, runtime.GOMAXPROCS(0), len(chunks)) {
		readers.Add(1)
		go func() {
			defer readers.Done()
			u.readAll()
		}()
	}
	go func() {
		readers.Wait()
		close(u.passed)
	}()
	for i := range u.passed {
		if f := uploads[i].Passed; f != nil {
			f()
		}
	}
	return u.err
}

// readAll reads chunks until there are none left, or an error.
func (u *uploader) readAll() {
	for i, ok := u.take(); ok; i, ok = u.take() {
		c, slot := u.chunks[i], i%len(u.memory)
		err := u.copied[slot].Synchronize()
		if err == nil {
			err = u.ctx.Err()
		}
		if err == nil {
			err = u.uploads[c.upload].Read(u.memory[slot][:c.bytes], c.offset)
		}
		u.finish(slot, err)
	}
}

// take returns the next chunk to read, once its slot was handed to a copy before, if ever.
func (u *uploader) take() (chunk int, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	i := u.next
	if i == len(u.chunks) {
		return 0, false
	}
	u.next++
	for u.err == nil && i-len(u.memory) >= u.enqueued {
		u.turn.Wait()
	}
	return i, u.err == nil
}

// finish notes that the chunk in a slot was read, and enqueues the copies whose turn it is, unless another reader does.
func (u *uploader) finish(slot int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.read[slot] = true
	u.fail(err)
	for !u.enqueuing && u.err == nil && u.read[u.enqueued%len(u.read)] {
		i := u.enqueued
		u.read[i%len(u.read)] = false
		u.enqueuing = true
		u.mu.Unlock()
		err := u.enqueue(i)
		u.mu.Lock()
		u.enqueuing = false
		u.enqueued++
		u.fail(err)
		u.turn.Broadcast()
	}
}

// fail keeps the first error, which ends the upload.
func (u *uploader) fail(err error) {
	if u.err == nil && err != nil {
		u.err = err
		u.turn.Broadcast()
	}
}

// enqueue has the device copy a chunk.
func (u *uploader) enqueue(i int) error {
	c, slot := u.chunks[i], i%len(u.memory)
	if err := u.ctx.Err(); err != nil {
		return err
	}
	upload := &u.uploads[c.upload]
	if c.bytes > 0 {
		if err := u.stream.copyFrom(upload.To, upload.At+c.offset, u.memory[slot][:c.bytes]); err != nil {
			return err
		}
		if err := u.stream.Record(u.copied[slot]); err != nil {
			return err
		}
	}
	if !c.last {
		return nil
	}
	if upload.Then != nil {
		if err := upload.Then(); err != nil {
			return err
		}
	}
	u.passed <- c.upload
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
	err := s.toDevice(unsafe.Add(b.ptr, at), unsafe.Pointer(unsafe.SliceData(memory)), int64(len(memory)))
	if err != nil {
		return fmt.Errorf("gpu: upload of %d bytes to %s: %w", len(memory), s.dev, s.dev.check(err))
	}
	return nil
}
