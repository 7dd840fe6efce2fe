// Package phase says on stderr how a start goes, where VIBRANT_TRACE holds the word "start".
//
// A line a phase has the milliseconds since the process began. csrc/trace.c is the same for C: its lines stand between those of Go.
package phase

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

var traced = slices.Contains(strings.Split(os.Getenv("VIBRANT_TRACE"), ","), "start")

// Done says that a phase of the start is over. The name is an operation in the past: "tokenizer read".
func Done(name string) {
	if traced {
		fmt.Fprintf(os.Stderr, "vibrant: start: %.1f ms: %s\n", float64(age())/float64(time.Millisecond), name)
	}
}
