package gpu_test

import (
	"errors"
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
)

// The CPU is a device like any other; "cuda" is the first GPU.
func ExampleOpen() {
	d, err := gpu.Open("cpu", gpu.WithThreads(2), gpu.WithPoolFraction(0.5))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	fmt.Println(d, d.Info().HostMemory)

	if _, err := gpu.Open("cpu:7"); errors.Is(err, gpu.ErrInvalid) {
		fmt.Println(err)
	}
	// Output:
	// cpu true
	// gpu: device "cpu:7": invalid argument: want cpu, cuda or cuda:N
}

// Copies follow the order of the buffer's stream; only copies to the host wait.
func ExampleBuffer() {
	d, err := gpu.Open("cpu")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	b, err := d.Alloc(4)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Free()
	got := make([]byte, 4)
	if err := errors.Join(b.CopyFromHost([]byte{1, 2, 3, 4}), b.CopyToHost(got)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(got)
	fmt.Println(b.CopyFromHost(make([]byte, 5)))
	// Output:
	// [1 2 3 4]
	// gpu: copy from host: 5 bytes at offset 0 of a buffer of 4: invalid argument
}

// A freed block serves the next request of its size class without a call to the device.
func ExamplePool_Stats() {
	d, err := gpu.Open("cpu")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	for range 3 {
		b, err := d.Alloc(1 << 20)
		if err != nil {
			fmt.Println(err)
			return
		}
		b.Free()
	}
	s := d.Pool().Stats()
	fmt.Println(s.Misses, s.Hits, s.Cached, d.Pool().Trim())
	// Output: 1 2 1048576 1048576
}
