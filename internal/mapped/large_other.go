//go:build unix && !linux

package mapped

func largePages([]byte) {}
