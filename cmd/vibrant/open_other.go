//go:build !unix

package main

const openNonBlock = 0 // this system has no such flag
