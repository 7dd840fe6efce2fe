package tensor

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
)

// Scope calls f, and then frees every tensor that operations made on this goroutine meanwhile, but for those that f hands to keep,
// which returns its argument. It frees them also where f panics. Scopes may be nested: what an inner one keeps belongs to the outer.
//
// Dropped tensors are collected anyway; a scope frees them at once, and costs a microsecond a tensor.
//
//	tensor.Scope(func(keep func(*tensor.Tensor) *tensor.Tensor) { sum = keep(tensor.Add(tensor.Mul(a, b), c)) })
func Scope(f func(keep func(*Tensor) *Tensor)) {
	s := &scope{made: map[*Tensor]struct{}{}}
	id := goroutine()
	scopes.Lock()
	s.outer = scopes.of[id]
	if scopes.of == nil {
		scopes.of = map[uint64]*scope{}
	}
	scopes.of[id] = s
	scopes.Unlock()
	scopes.active.Add(1)
	defer func() {
		scopes.active.Add(-1)
		scopes.Lock()
		if scopes.of[id] = s.outer; s.outer == nil {
			delete(scopes.of, id)
		}
		scopes.Unlock()
		for t := range s.made {
			t.Free()
		}
	}()
	f(func(t *Tensor) *Tensor {
		if _, own := s.made[t]; own {
			delete(s.made, t)
			if s.outer != nil {
				s.outer.made[t] = struct{}{}
			}
		}
		return t
	})
}

// scope is a call of Scope under way, used by its goroutine alone.
type scope struct {
	made  map[*Tensor]struct{}
	outer *scope
}

// scopes holds the innermost scope of each goroutine that has one.
var scopes struct {
	sync.Mutex
	active atomic.Int32
	of     map[uint64]*scope
}

// noteMade puts a tensor into the scope of this goroutine, if it has one.
func noteMade(t *Tensor) {
	if scopes.active.Load() == 0 {
		return
	}
	id := goroutine()
	scopes.Lock()
	s := scopes.of[id]
	scopes.Unlock()
	if s != nil {
		s.made[t] = struct{}{}
	}
}

// goroutine returns the number of the calling goroutine, which Go tells in stack traces only.
func goroutine() uint64 {
	var buffer [64]byte
	text := buffer[len("goroutine "):runtime.Stack(buffer[:], false)]
	number, _, _ := bytes.Cut(text, []byte{' '})
	id, _ := strconv.ParseUint(string(number), 10, 64)
	return id
}
