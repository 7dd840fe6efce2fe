//go:build !linux

package mapped

import "errors"

func largePages([]byte) {}

func populate([]byte) error { return errors.ErrUnsupported }
