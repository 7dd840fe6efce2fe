package gpu

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/backend/fake"
)

func TestUploadBringsEverythingInOrder(t *testing.T) {
	d, _ := openFake(t, fake.Config{})
	s := must[*Stream](t)(d.NewStream())
	sizes := []int64{0, 1, 4 << 20, 4<<20 + 1, 17, 90 << 20, 255, 0}
	r := rand.NewChaCha8([32]byte{1, 2})
	data := make([][]byte, len(sizes))
	to := make([]*Buffer, len(sizes))
	var uploads []Upload
	var order []int
	for i, n := range sizes {
		data[i] = make([]byte, n)
		r.Read(data[i])
		to[i] = must[*Buffer](t)(s.Alloc(n + 3))
		uploads = append(uploads, Upload{To: to[i], At: 3, Bytes: n,
			Read: func(dst []byte, offset int64) error { copy(dst, data[i][offset:]); return nil },
			Then: func() error {
				order = append(order, i)
				got := make([]byte, n)
				if err := to[i].CopyToHostAt(got, 3); err != nil || !bytes.Equal(got, data[i]) {
					t.Errorf("upload %d of %d bytes: wrong or %v when it is said to be enqueued", i, n, err)
				}
				return nil
			}})
	}
	if err := s.Upload(context.Background(), uploads); err != nil {
		t.Fatal(err)
	}
	for i := range sizes {
		if i >= len(order) || order[i] != i {
			t.Fatalf("told in the order %v", order)
		}
	}
	if err := s.Upload(context.Background(), nil); err != nil {
		t.Error(err)
	}
}

// TestUploadChunks holds the memory that is locked to what an upload is large enough for.
func TestUploadChunks(t *testing.T) {
	for _, c := range []struct{ bytes, want int64 }{
		{0, 256 << 10}, {7 << 20, 256 << 10}, {400 << 20, 768 << 10}, {2 << 30, 4 << 20}, {40 << 30, 4 << 20},
	} {
		if got := chunkBytes([]Upload{{Bytes: c.bytes / 2}, {Bytes: c.bytes - c.bytes/2}}); got != c.want {
			t.Errorf("chunks of %d bytes for %d, want %d", got, c.bytes, c.want)
		}
	}
}

func TestUploadStopsAtTheFirstError(t *testing.T) {
	d, hw := openFake(t, fake.Config{})
	s := d.Stream()
	b := must[*Buffer](t)(s.Alloc(64 << 20))
	errRead, errThen, errCopy := errors.New("read"), errors.New("then"), errors.New("copy")
	ctx, cancel := context.WithCancel(context.Background())
	var reads atomic.Int64
	upload := func(read, then func(n int64) error) error {
		reads.Store(0)
		return s.Upload(ctx, []Upload{{To: b, Bytes: b.Size(),
			Read: func([]byte, int64) error { return read(reads.Add(1)) },
			Then: func() error { return then(0) }}})
	}
	fine := func(int64) error { return nil }
	wants(t, upload(func(n int64) error {
		if n == 3 {
			return errRead
		}
		return nil
	}, fine), errRead)
	wants(t, upload(fine, func(int64) error { return errThen }), errThen)
	hw.FailAfter(fake.Copy, 2, errCopy)
	wants(t, upload(fine, fine), errCopy)
	hw.FailAfter(fake.AllocHost, 0, errCopy)
	wants(t, upload(fine, fine), errCopy)
	wants(t, upload(func(n int64) error {
		if n == 2 {
			cancel()
		}
		return nil
	}, fine), context.Canceled)
	// No copy passes the second chunk, and readers run ahead of copies by the slots. Each reader may hold an earlier chunk.
	if n := reads.Load(); n > uploadSlots+uploadReaders {
		t.Errorf("%d chunks were read though the upload was cancelled at the second", n)
	}
	wants(t, s.Upload(context.Background(), []Upload{{To: b, At: 1, Bytes: b.Size(), Read: func([]byte, int64) error { return nil }}}), ErrInvalid)
}

func TestReservedMemoryHasItsExactSizeAndIsNotKept(t *testing.T) {
	d, hw := openFake(t, fake.Config{Memory: 16 << 20}, WithPoolLimit(10<<20))
	const odd = 9<<20 + 1
	used := hw.Used()
	b := must[*Buffer](t)(d.Stream().Reserve(odd))
	if n := hw.Used() - used; n < odd || n > odd+255 || b.Size() != odd {
		t.Errorf("%d bytes were reserved as %d", odd, n)
	}
	if s := d.Pool().Stats(); s.InUse != hw.Used()-used || s.Cached != 0 {
		t.Errorf("the pool says %d in use, %d cached", s.InUse, s.Cached)
	}
	_, err := d.Stream().Reserve(2 << 20)
	wants(t, err, ErrOutOfMemory)
	b.Free()
	b.Free()
	if n := hw.Used(); n != used {
		t.Errorf("%d bytes are left of what was freed", n-used)
	}
	_, err = d.Stream().Reserve(-1)
	wants(t, err, ErrInvalid)
	must[*Buffer](t)(d.Stream().Reserve(0)).Free()

	// A graph that was captured with it holds it.
	s := must[*Stream](t)(d.NewStream())
	b = must[*Buffer](t)(s.Reserve(100))
	g := must[*Graph](t)(s.Capture(func() error { b.Free(); return nil }))
	if n := hw.Used(); n == used {
		t.Error("memory of a graph was given back")
	}
	g.Close()
	if n := hw.Used(); n != used {
		t.Errorf("%d bytes are left of the graph's", n-used)
	}
}
