package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"

	"github.com/vibrant-ml/vibrant/internal/wholefile"
)

// deadly receives the signals that end the process.
var deadly = make(chan os.Signal, 1)

// die ends the process by a signal. It leaves no half-written file behind, and the terminal as it was.
func die(s os.Signal) {
	wholefile.RemoveUnfinished()
	restoreTerminal()
	endByDefault(s)
	name := s.String()
	if s == os.Interrupt {
		name = "interrupted" // as of a command that ends by its context
	}
	fmt.Fprintf(os.Stderr, "vibrant: %s\n", name)
	os.Exit(statusOf(s))
}

// endBy has the process die by a signal that came before.
func endBy(s os.Signal) {
	select {
	case deadly <- s:
	default: // it dies already
	}
}

// interrupts has one receiver of interrupts (Ctrl-C): the command, and later the chat that it has begun.
type interrupts struct {
	mu      sync.Mutex
	receive func()
}

type interruptsKey struct{}

// withInterrupts returns a context that an interrupt cancels. A second interrupt ends the process, should the command take too long.
func withInterrupts(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	caught := make(chan os.Signal, 1)
	i := &interrupts{receive: func() {
		signal.Notify(deadly, os.Interrupt)
		signal.Stop(caught)
		cancel()
	}}
	signal.Notify(caught, os.Interrupt)
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-caught:
				i.mu.Lock()
				i.receive()
				i.mu.Unlock()
			case <-ended:
				return
			}
		}
	}()
	return context.WithValue(ctx, interruptsKey{}, i), func() {
		signal.Stop(caught)
		close(ended)
		cancel()
	}
}

// takeInterrupts has receive called for each interrupt until giveBack. It returns the error of a context that is cancelled already: so no
// interrupt is lost between two receivers.
func takeInterrupts(ctx context.Context, receive func()) (giveBack func(), err error) {
	i := ctx.Value(interruptsKey{}).(*interrupts)
	i.mu.Lock()
	defer i.mu.Unlock()
	before := i.receive
	i.receive = receive
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.receive = before
	}, ctx.Err()
}
