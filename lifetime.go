package vibrant

import "sync"

// lifetime lets something be closed at any moment, also from within its use: it is released once it was closed and its
// last use has ended.
type lifetime struct {
	mu      sync.Mutex
	uses    int
	closed  bool
	release func() error
}

// enter begins a use, or returns ErrClosed.
func (l *lifetime) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	l.uses++
	return nil
}

// leave ends a use.
func (l *lifetime) leave() {
	l.mu.Lock()
	l.uses--
	last := l.closed && l.uses == 0
	l.mu.Unlock()
	if last {
		l.release()
	}
}

// close ends the life; uses under way see it by isClosed. Closing twice is harmless.
func (l *lifetime) close() error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	idle := l.uses == 0
	l.mu.Unlock()
	if first && idle {
		return l.release()
	}
	return nil
}

func (l *lifetime) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
