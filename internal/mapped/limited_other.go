//go:build !linux

package mapped

// Limited is not asked here.
func Limited() bool { return false }
