// Package busy lets tests wait and measure on machines that are busy with other work, where a process may get no processor for seconds.
package busy

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// Limit ends the wait for what would never come. It is no measure: what a test waits for takes far less on an idle machine.
const Limit = 2 * time.Minute

// Until waits until a condition holds.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Limit); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v: %s", Limit, what)
		}
	}
}

// Receive waits for a value of a channel.
func Receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(Limit):
		t.Fatalf("after %v: %s", Limit, what)
		panic("not reached")
	}
}

// AtLook returns a context that ends when work looks at it for the n-th time, and calls f before: in the middle of the work, however
// fast the machine is. It is for work that asks for the context's Err and does not wait for Done.
func AtLook(n int64, f func()) context.Context {
	return &looked{context.Background(), n, f, atomic.Int64{}}
}

type looked struct {
	context.Context
	last  int64
	f     func()
	looks atomic.Int64
}

func (l *looked) Err() error {
	n := l.looks.Add(1)
	if n == l.last {
		l.f()
	}
	if n >= l.last {
		return context.Canceled
	}
	return nil
}

// Address returns a port of this host where nobody listens. Until the caller listens there another process might: so the host is named
// by an address that is this process's own, where the system has one.
func Address(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+os.Getpid()>>16&127, os.Getpid()>>8&255, os.Getpid()&255))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
