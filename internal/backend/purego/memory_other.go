//go:build !linux

package purego

// hostMemory knows no portable way to ask: it sets no limit.
func hostMemory() (free, total int64) { return unknownMemory, unknownMemory }
