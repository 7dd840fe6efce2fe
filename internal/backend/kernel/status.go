package kernel

import (
	"errors"
	"fmt"
)

// Explainer is a library that says what the status of a call leaves open.
type Explainer interface {
	CUDALibrary() string   // where its kernels for GPUs are, or why there are none
	DriverReport() string  // where the driver is, or why there is none
	Architectures() string // the GPUs that it has kernels for
	StatusString(Status) string
	DriverError() int // the driver's own number, of the device that was called
}

// StatusError is the error of a call that returned the status, nil for StatusOK.
func StatusError(op string, s Status, library Explainer) error {
	var cause error
	switch s {
	case StatusOK:
		return nil
	case StatusInvalidArgument:
		cause = ErrInvalid
	case StatusUnsupported:
		cause = ErrUnsupported
	case StatusNotCompiled:
		return fmt.Errorf("%s: %w: %s", op, ErrNotCompiled, library.CUDALibrary())
	case StatusNoDevice:
		return fmt.Errorf("%s: %w: %s", op, ErrNoDevice, library.DriverReport())
	case StatusNoKernelImage:
		return NoKernelImage(op, library.Architectures())
	case StatusOutOfMemory:
		cause = ErrOutOfMemory
	case StatusDeviceLost:
		cause = ErrDeviceLost
	case StatusInvalidEnvironment:
		return fmt.Errorf("%s: %w: %s", op, ErrInvalid, library.StatusString(s))
	default:
		return fmt.Errorf("%s: %s %d", op, library.StatusString(s), library.DriverError())
	}
	return fmt.Errorf("%s: %w", op, cause)
}

// statusOf is the status with which memory is refused to a library.
func statusOf(err error) Status {
	switch {
	case err == nil:
		return StatusOK
	case errors.Is(err, ErrDeviceLost):
		return StatusDeviceLost
	}
	return StatusOutOfMemory
}
