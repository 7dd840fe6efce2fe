//go:build !unix

package main

const openNoFollow = 0 // this system has no such flags
