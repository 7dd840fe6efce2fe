package gpu

import (
	"errors"
	"fmt"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// The failures that callers tell apart, by errors.Is; what is returned wraps one of them and says what happened.
var (
	ErrInvalid       = kernel.ErrInvalid       // the caller's mistake: a wrong size, an unknown device name
	ErrUnsupported   = kernel.ErrUnsupported   // sensible, but this device has no kernel for it
	ErrNotCompiled   = kernel.ErrNotCompiled   // this build holds no code for that kind of device
	ErrNoDevice      = kernel.ErrNoDevice      // no such device, or no driver
	ErrNoKernelImage = kernel.ErrNoKernelImage // this build was not made for that GPU's compute capability
	ErrOutOfMemory   = kernel.ErrOutOfMemory   // of the device, or over the pool's limit
	ErrDeviceLost    = kernel.ErrDeviceLost    // a fault poisoned the device: close it, nothing else works
	ErrClosed        = kernel.ErrClosed        // a device, stream, buffer or graph was used after its end
)

// check passes an error of a backend on; one that says that the device is lost is remembered, so that everything after
// it fails with the same reason instead of a driver's follow-up errors.
func (d *device) check(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrDeviceLost) {
		d.lost.CompareAndSwap(nil, &err)
	}
	return err
}

// usable says why the device cannot be used, if it cannot.
func (d *device) usable() error {
	if d.closed.Load() {
		return fmt.Errorf("gpu: device %s: %w", d.info.ID, ErrClosed)
	}
	if err := d.lost.Load(); err != nil {
		return fmt.Errorf("gpu: device %s: %w", d.info.ID, *err)
	}
	return nil
}
