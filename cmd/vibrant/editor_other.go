//go:build !unix && !js && !wasip1 && !plan9

package main

import "os"

// probe asks nothing: the consoles of this system answer.
func probe(_, _ *os.File) (typed string, answers bool, err error) { return "", true, nil }

// suspend does nothing: no process is stopped from a terminal here.
func suspend() {}

const openNoFollow = 0 // this system has no such flag
