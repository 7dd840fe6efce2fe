//go:build !unix

package main

const openNoFollow, openNonBlock = 0, 0 // this system has no such flags
