// Package digits reads numbers that are written by digits alone.
package digits

import "strconv"

// Int returns the number that the text writes as Go prints it: without a sign, spaces or a zero before it.
func Int(text string) (n int, ok bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == text
}
