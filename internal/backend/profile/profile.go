// Package profile times the operations of a stream on its device. A Stream is the stream of a backend with an event before and after
// each operation and copy; package gpu puts it in place of the backend's own where profiling is asked for.
//
// The bytes of an operation are those of its operands, each counted once, by the shapes that csrc/vibrant.h declares; of tables and
// caches only the rows that are read or written.
package profile

import (
	"errors"
	"fmt"
	"time"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Record is what one operation or copy took.
type Record struct {
	Op     string        // "Linear", "CopyToHost"
	Names  []string      // that the work was enqueued under, the outermost first
	Kernel string        // that computed it, "" where the device does not say
	Bytes  int64         // read and written
	Start  time.Duration // on the device, since the clock's origin
	Took   time.Duration
}

// Stream times what is enqueued on a backend's stream. It has no graphs: their operations are enqueued one at a time, so that each
// is timed.
type Stream struct {
	kernel.Stream
	// Names are what work enqueued from here on belongs to. A Record keeps the slice.
	Names []string

	device  kernel.Device
	sink    func(Record)
	pending []pending
	free    []kernel.Event
	// Times are counted from a mark that moves on: an event's time in float32 is too coarse some seconds away.
	origin, mark kernel.Event
	markAt       time.Duration // from origin
}

type pending struct {
	Record
	start, end kernel.Event
}

// most is the number of operations whose events are kept before their times are read.
const most = 1024

// New returns s with its operations timed. Records go to sink, in order, while a method of the Stream runs. origin is an event of the
// device that was recorded before: times count from it.
func New(s kernel.Stream, d kernel.Device, origin kernel.Event, sink func(Record)) *Stream {
	return &Stream{Stream: s, device: d, origin: origin, mark: origin, sink: sink}
}

// LastKernel names the kernel that the newest operation chose.
func (s *Stream) LastKernel() string {
	if k, ok := s.Stream.(kernel.KernelNamer); ok {
		return k.LastKernel()
	}
	return ""
}

// Native returns the handle of the backend's stream, nil where it has none.
func (s *Stream) Native() (kernel.Ptr, error) {
	if n, ok := s.Stream.(kernel.NativeStream); ok {
		return n.Native()
	}
	return nil, nil
}

func (s *Stream) event() (kernel.Event, error) {
	if n := len(s.free); n > 0 {
		e := s.free[n-1]
		s.free = s.free[:n-1]
		return e, nil
	}
	return s.device.NewEvent()
}

// timed enqueues an operation between two events.
func (s *Stream) timed(op string, bytes int64, run func() error) error {
	return s.between(op, bytes, true, run)
}

func (s *Stream) between(op string, bytes int64, named bool, run func() error) error {
	if len(s.pending) >= most {
		if err := s.Collect(); err != nil {
			return err
		}
	}
	start, err := s.event()
	if err != nil {
		return err
	}
	end, err := s.event()
	if err != nil {
		s.free = append(s.free, start)
		return err
	}
	if err = s.Stream.Record(start); err == nil {
		err = run()
	}
	if err == nil {
		err = s.Stream.Record(end)
	}
	if err != nil {
		s.free = append(s.free, start, end)
		return err
	}
	p := pending{Record{Op: op, Names: s.Names, Bytes: bytes}, start, end}
	if named {
		p.Kernel = s.LastKernel()
	}
	s.pending = append(s.pending, p)
	return nil
}

// Collect waits for the operations that were enqueued so far, and hands their records to the sink.
func (s *Stream) Collect() (err error) {
	if len(s.pending) == 0 {
		return nil
	}
	if err := s.pending[len(s.pending)-1].end.Synchronize(); err != nil {
		return err
	}
	at := s.markAt
	for i, p := range s.pending {
		from, e1 := p.start.ElapsedMS(s.mark)
		took, e2 := p.end.ElapsedMS(p.start)
		p.Start, p.Took = s.markAt+duration(from), duration(took)
		at = p.Start + p.Took
		if e := errors.Join(e1, e2); e != nil {
			err = fmt.Errorf("profile: %s: %w", p.Op, e)
		} else {
			s.sink(p.Record)
		}
		s.free = append(s.free, p.start)
		if i < len(s.pending)-1 {
			s.free = append(s.free, p.end)
		}
	}
	if s.mark != s.origin {
		s.free = append(s.free, s.mark)
	}
	s.mark, s.markAt = s.pending[len(s.pending)-1].end, at
	s.pending = s.pending[:0]
	return err
}

func duration(ms float32) time.Duration {
	return time.Duration(float64(ms) * float64(time.Millisecond))
}

// Close collects what is left and closes the backend's stream.
func (s *Stream) Close() error {
	collected := s.Collect()
	if s.mark != s.origin {
		s.free = append(s.free, s.mark)
	}
	for _, e := range s.free {
		e.Close()
	}
	s.free = nil
	return errors.Join(s.Stream.Close(), collected)
}

// BeginCapture says that there are no graphs.
func (s *Stream) BeginCapture() error {
	return fmt.Errorf("profile: a graph's operations are timed one at a time: %w", kernel.ErrUnsupported)
}

func (s *Stream) CopyToDevice(dst, src kernel.Ptr, bytes int64) error {
	return s.between("CopyToDevice", bytes, false, func() error { return s.Stream.CopyToDevice(dst, src, bytes) })
}

func (s *Stream) CopyToHost(dst, src kernel.Ptr, bytes int64) error {
	return s.between("CopyToHost", bytes, false, func() error { return s.Stream.CopyToHost(dst, src, bytes) })
}

func (s *Stream) CopyOnDevice(dst, src kernel.Ptr, bytes int64) error {
	return s.between("CopyOnDevice", 2*bytes, false, func() error { return s.Stream.CopyOnDevice(dst, src, bytes) })
}

func (s *Stream) Memset(dst kernel.Ptr, value byte, bytes int64) error {
	return s.between("Memset", bytes, false, func() error { return s.Stream.Memset(dst, value, bytes) })
}

func (s *Stream) WeightPack(out kernel.Ptr, w kernel.Weight) error {
	return s.timed("WeightPack", 2*weight(w), func() error { return s.Stream.WeightPack(out, w) })
}

func (s *Stream) Embedding(out kernel.Ptr, table kernel.Weight, ids kernel.Ptr, n int) error {
	read := table
	read.Rows = min(n, table.Rows)
	moved := weight(read) + size(kernel.F32, n, table.Cols) + size(kernel.I32, n)
	return s.timed("Embedding", moved, func() error { return s.Stream.Embedding(out, table, ids, n) })
}

func (s *Stream) CopyColumns(out kernel.Ptr, outCols, outFirst int, in kernel.Ptr, inCols, inFirst int, t kernel.DType, rows, cols int) error {
	return s.timed("CopyColumns", 2*size(t, rows, cols), func() error {
		return s.Stream.CopyColumns(out, outCols, outFirst, in, inCols, inFirst, t, rows, cols)
	})
}

// The arguments with what the operation touches of its tables and caches.

func touchedKVWriteArgs(a kernel.KVWriteArgs) *kernel.KVWriteArgs {
	a.Capacity = min(a.Capacity, a.Seq)
	return &a
}

func touchedAttentionArgs(a kernel.AttentionArgs) *kernel.AttentionArgs {
	if a.KVLen > 0 {
		a.KVCapacity = min(a.KVCapacity, a.KVLen)
	}
	return &a
}

func touchedNormQKVArgs(a kernel.NormQKVArgs) *kernel.NormQKVArgs {
	a.Capacity, a.TableRows = min(a.Capacity, a.Seq), min(a.TableRows, a.Batch*a.Seq)
	return &a
}

func touchedRoPEArgs(a kernel.RoPEArgs) *kernel.RoPEArgs {
	a.TableRows = min(a.TableRows, a.Batch*a.Seq)
	return &a
}

// touchedExpertLinearArgs counts no expert twice: at most as many are read as there are choices.
func touchedExpertLinearArgs(a kernel.ExpertLinearArgs) *kernel.ExpertLinearArgs {
	a.W.Rows *= min(a.Experts, a.N*a.K)
	return &a
}

func touchedExpertFeedForwardArgs(a kernel.ExpertFeedForwardArgs) *kernel.ExpertFeedForwardArgs {
	return &a
}

// touchedIndexArgs returns the arguments with as many elements as ids name.
func touchedIndexArgs(a kernel.IndexArgs) *kernel.IndexArgs {
	a.InSizes, a.OutSizes = a.IDsSizes, a.IDsSizes
	return &a
}

// view returns the bytes of a view's elements, 0 where it is left out.
func view(v kernel.View, sizes []int) int64 {
	return operand(v.Data, reach(v.Type, v.Strides[:len(sizes)], sizes...))
}

func operand(p kernel.Ptr, bytes int64) int64 {
	if p == nil {
		return 0
	}
	return max(bytes, 0)
}

func weight(w kernel.Weight) int64 { return operand(w.Data, size(w.Type, w.Rows, w.Cols)) }

// size returns the bytes of elements of a shape.
func size(t kernel.DType, n ...int) int64 {
	all := 1
	for _, d := range n {
		all *= max(d, 0)
	}
	return t.Bytes(all)
}

// reach returns the bytes of the elements of a shape: gaps between rows are not read, and what a stride of 0 repeats is read once.
func reach(t kernel.DType, strides []int, n ...int) int64 {
	all := size(t, n...)
	for i, stride := range strides {
		if stride == 0 && n[i] > 1 {
			all /= int64(n[i])
		}
	}
	return all
}
