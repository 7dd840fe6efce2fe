//go:build linux && (amd64 || arm64) && !nodlopen

package dynamic

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

type stream struct {
	p, device kernel.Ptr
	owner     *kernel.Owner // of the stream's own memory; nil: the device

	calling atomic.Bool // with one of its own frames
	own     frames
}

// enter gives a call the stream's own frame of its operation, or a new one while another call has one: a call allocates nothing else.
func enter[T any](s *stream, own *T) *T {
	if s.calling.CompareAndSwap(false, true) {
		return own
	}
	return new(T)
}

// leave ends a call. The frame keeps no memory from the collector.
func leave[T any](s *stream, own, frame *T) {
	if frame == own {
		var nothing T
		*frame = nothing
		s.calling.Store(false)
	}
}

func (s *stream) check(op string, result uintptr) error {
	if kernel.Status(int32(result)) == kernel.StatusInvalidArgument {
		if rule := text(invoke(fnStreamInvalidArgument, uintptr(s.p))); rule != "" {
			return fmt.Errorf("%s: %s: %w", op, rule, kernel.ErrInvalid)
		}
	}
	return s.owner.Explain(check(op, result, s.device))
}

// call calls an operation, whose number lies in its frame.
func (s *stream) call(op string, frame kernel.Ptr) error {
	return s.check(op, uintptr(cgocall(found().at[fnCall], frame)))
}

// cgocall calls a C function of one pointer on the thread's own stack, and returns its int. purego's calls by address end in it, too,
// but allocate a block of 25 registers and a slice on the way there.
//
//go:linkname cgocall runtime.cgocall
func cgocall(function uintptr, argument unsafe.Pointer) int32

// Values of vb_copy_kind.
const (
	hostToDevice   = 1
	deviceToHost   = 2
	deviceToDevice = 3
)

func (s *stream) copy(dst, src kernel.Ptr, bytes int64, kind uintptr) error {
	return s.check("copy", invoke(fnMemcpy, uintptr(dst), uintptr(src), uintptr(bytes), kind, uintptr(s.p)))
}

func (s *stream) CopyToDevice(dst, src kernel.Ptr, bytes int64) error {
	return s.copy(dst, src, bytes, hostToDevice)
}

func (s *stream) CopyToHost(dst, src kernel.Ptr, bytes int64) error {
	return s.copy(dst, src, bytes, deviceToHost)
}

func (s *stream) CopyOnDevice(dst, src kernel.Ptr, bytes int64) error {
	return s.copy(dst, src, bytes, deviceToDevice)
}

func (s *stream) Memset(dst kernel.Ptr, value byte, bytes int64) error {
	return s.check("memset", invoke(fnMemset, uintptr(dst), uintptr(value), uintptr(bytes), uintptr(s.p)))
}

func (s *stream) Synchronize() error {
	return s.check("synchronize", invoke(fnStreamSynchronize, uintptr(s.p)))
}

func (s *stream) Native() (kernel.Ptr, error) {
	var p kernel.Ptr
	err := s.check("native handle", invoke(fnStreamHandle, uintptr(unsafe.Pointer(&p)), uintptr(s.p)))
	return p, err
}

func (s *stream) LastKernel() string { return text(invoke(fnLastKernel, uintptr(s.p))) }

func (s *stream) Record(e kernel.Event) error {
	ev, ok := e.(*event)
	if !ok {
		return errForeign("event")
	}
	return s.check("record", invoke(fnEventRecord, uintptr(ev.p), uintptr(s.p)))
}

func (s *stream) Wait(e kernel.Event) error {
	ev, ok := e.(*event)
	if !ok {
		return errForeign("event")
	}
	return s.check("wait", invoke(fnStreamWait, uintptr(s.p), uintptr(ev.p)))
}

func (s *stream) BeginCapture() error {
	return s.check("begin capture", invoke(fnGraphBegin, uintptr(s.p)))
}

func (s *stream) EndCapture() (kernel.Graph, error) {
	g := &graph{device: s.device}
	if err := s.check("end capture", invoke(fnGraphEnd, uintptr(unsafe.Pointer(&g.p)), uintptr(s.p))); err != nil {
		return nil, err
	}
	return g, nil
}

func (s *stream) Launch(g kernel.Graph) error {
	gr, ok := g.(*graph)
	if !ok {
		return errForeign("graph")
	}
	return s.check("launch", invoke(fnGraphLaunch, uintptr(gr.p), uintptr(s.p)))
}

func (s *stream) Close() error {
	invoke(fnStreamDestroy, uintptr(s.p))
	forget(s.owner)
	s.p, s.owner = nil, nil
	return nil
}
