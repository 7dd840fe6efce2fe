//go:build linux && (amd64 || arm64) && !nodlopen

package dynamic

import (
	"testing"
	"unsafe"
)

// A call within a call has a frame of its own, and a frame that is given back holds nothing.
func TestFramesOfCallsWithinCalls(t *testing.T) {
	s, x := &stream{}, 1
	outer := enter(s, &s.own.addFrame)
	outer.out = unsafe.Pointer(&x)
	inner := enter(s, &s.own.addFrame)
	if outer != &s.own.addFrame || inner == outer {
		t.Errorf("the outer call has %p, the inner one %p, the stream %p", outer, inner, &s.own.addFrame)
	}
	leave(s, &s.own.addFrame, inner)
	if other := enter(s, &s.own.mulFrame); other == &s.own.mulFrame {
		t.Error("the inner call gave the outer one's frame back")
	}
	leave(s, &s.own.addFrame, outer)
	if s.own.addFrame != (addFrame{}) {
		t.Errorf("a frame that was given back holds %+v", s.own.addFrame)
	}
	if next := enter(s, &s.own.mulFrame); next != &s.own.mulFrame {
		t.Error("no call has the stream's frames, and a new one is made")
	}
}
