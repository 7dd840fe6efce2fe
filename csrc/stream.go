//go:build cgo

package csrc

// #include "vibrant.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

type stream struct {
	p      *C.vb_stream
	device *C.vb_device
	owner  *kernel.Owner // of the stream's own memory; nil: the device
}

func (s *stream) check(op string, st C.vb_status) error {
	switch st {
	case C.VB_OK:
		return nil
	case C.VB_INVALID_ARGUMENT:
		if rule := C.GoString(C.vb_stream_invalid_argument(s.p)); rule != "" {
			return fmt.Errorf("%s: %s: %w", op, rule, kernel.ErrInvalid)
		}
	}
	return s.owner.Explain(check(op, st, s.device))
}

func (s *stream) copy(dst, src kernel.Ptr, bytes int64, kind C.vb_copy_kind) error {
	if dst == nil || src == nil || bytes <= 0 {
		return s.check("copy", C.vb_memcpy(dst, src, C.int64_t(bytes), kind, s.p))
	}
	// As slices: of these cgo looks at the bytes for pointers of Go, else at the whole variable that the bytes lie in.
	to, from := unsafe.Slice((*byte)(dst), bytes), unsafe.Slice((*byte)(src), bytes)
	return s.check("copy", C.vb_memcpy(unsafe.Pointer(&to[0]), unsafe.Pointer(&from[0]), C.int64_t(bytes), kind, s.p))
}

func (s *stream) CopyToDevice(dst, src kernel.Ptr, bytes int64) error {
	return s.copy(dst, src, bytes, C.VB_HOST_TO_DEVICE)
}

func (s *stream) CopyToHost(dst, src kernel.Ptr, bytes int64) error {
	return s.copy(dst, src, bytes, C.VB_DEVICE_TO_HOST)
}

func (s *stream) CopyOnDevice(dst, src kernel.Ptr, bytes int64) error {
	return s.copy(dst, src, bytes, C.VB_DEVICE_TO_DEVICE)
}

func (s *stream) Memset(dst kernel.Ptr, value byte, bytes int64) error {
	return s.check("memset", C.vb_memset(dst, C.int(value), C.int64_t(bytes), s.p))
}

func (s *stream) Synchronize() error { return s.check("synchronize", C.vb_stream_synchronize(s.p)) }

func (s *stream) Native() (p kernel.Ptr, err error) {
	err = s.check("native handle", C.vb_stream_handle(&p, s.p))
	return p, err
}

func (s *stream) LastKernel() string {
	if name := C.vb_last_kernel(s.p); name != nil {
		return C.GoString(name)
	}
	return ""
}

func (s *stream) Record(e kernel.Event) error {
	ev, ok := e.(*event)
	if !ok {
		return errForeign("event")
	}
	return s.check("record", C.vb_event_record(ev.p, s.p))
}

func (s *stream) Wait(e kernel.Event) error {
	ev, ok := e.(*event)
	if !ok {
		return errForeign("event")
	}
	return s.check("wait", C.vb_stream_wait(s.p, ev.p))
}

func (s *stream) BeginCapture() error { return s.check("begin capture", C.vb_graph_begin(s.p)) }

func (s *stream) EndCapture() (kernel.Graph, error) {
	g := &graph{device: s.device}
	if err := s.check("end capture", C.vb_graph_end(&g.p, s.p)); err != nil {
		return nil, err
	}
	return g, nil
}

func (s *stream) Launch(g kernel.Graph) error {
	gr, ok := g.(*graph)
	if !ok {
		return errForeign("graph")
	}
	return s.check("launch", C.vb_graph_launch(gr.p, s.p))
}

func (s *stream) Close() error {
	C.vb_stream_destroy(s.p)
	s.p = nil
	forget(s.owner)
	s.owner = nil
	return nil
}
