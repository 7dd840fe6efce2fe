package kernel

import "fmt"

// Owner hands a library's requests for a stream's memory on to Go. A nil Owner is that of a stream that asks its device.
type Owner struct {
	Memory Allocator
	Handle uintptr // by which the library knows it
	err    error   // why the newest request failed, which the library only knows as a status
}

// Alloc is the memory's, and keeps its error for Explain.
func (o *Owner) Alloc(bytes int64) (Ptr, Status) {
	p, err := o.Memory.Alloc(bytes)
	o.err = err
	return p, statusOf(err)
}

// Explain adds to the error of a call why memory was refused to it.
func (o *Owner) Explain(err error) error {
	if err == nil || o == nil || o.err == nil {
		return err
	}
	why := o.err
	o.err = nil
	return fmt.Errorf("%w: %w", err, why)
}
