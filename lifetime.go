package vibrant

import (
	"context"
	"errors"
	"sync"
)

// lifetime lets something be closed at any moment, also from within its use: it is released once it was closed and its
// last use has ended.
type lifetime struct {
	mu      sync.Mutex
	uses    int
	closed  bool
	release func() error
	context context.Context // ends when it is closed; nil before until
	end     context.CancelFunc
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

// close ends the life, and the contexts of uses under way. Closing twice is harmless.
func (l *lifetime) close() error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	idle := l.uses == 0
	end := l.end
	l.mu.Unlock()
	if end != nil {
		end()
	}
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

// life returns a context that ends when the life does.
func (l *lifetime) life() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.context == nil {
		l.context, l.end = context.WithCancel(context.Background())
		if l.closed {
			l.end()
		}
	}
	return l.context
}

// whileOpen returns a context that ends with ctx and with each of the lives, whose cause then is ErrClosed. The caller calls stop.
func whileOpen(ctx context.Context, lives ...*lifetime) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stops := make([]func() bool, len(lives))
	for i, l := range lives {
		stops[i] = context.AfterFunc(l.life(), func() { cancel(ErrClosed) })
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// closedError puts ErrClosed in place of the error of a context that whileOpen ended.
func closedError(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && context.Cause(ctx) == ErrClosed {
		return ErrClosed
	}
	return err
}
