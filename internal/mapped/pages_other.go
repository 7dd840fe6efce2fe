//go:build !linux

package mapped

import "errors"

func populate([]byte) error { return errors.ErrUnsupported }
