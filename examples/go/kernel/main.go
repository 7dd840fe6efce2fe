//go:build cgo && linux

// Command kernel runs an operation of its own on tensors: a kernel in C on the CPU, and one in CUDA on a GPU.
//
//	go run ./examples/go/kernel
//	nvcc -O2 -shared -Xcompiler -fPIC -o libkernel.so examples/go/kernel/kernel.cu
//	go run ./examples/go/kernel -device cuda -library ./libkernel.so
package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

#include "kernel.h"

typedef int (*scale_add_function)(float *, const float *, float, int64_t, int, void *);

static int call(void *f, void *out, void *in, float scale, int64_t n, int device, void *stream) {
    return ((scale_add_function)f)(out, in, scale, n, device, stream);
}

static void *own(void) { return (void *)scale_add; }
*/
import "C"

import (
	"flag"
	"fmt"
	"log"
	"slices"
	"unsafe"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

func main() {
	log.SetFlags(0)
	device := flag.String("device", "cpu", "cpu, cuda or cuda:N")
	library := flag.String("library", "", "the shared library of kernel.cu")
	flag.Parse()

	d, err := gpu.Open(*device)
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	if err := run(d, *library); err != nil {
		log.Fatal(err)
	}
}

// kernel returns the address of scale_add: this program's, or that of a library.
func kernel(library string) (unsafe.Pointer, error) {
	if library == "" {
		return C.own(), nil
	}
	path, name := C.CString(library), C.CString("scale_add")
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(name))
	handle := C.dlopen(path, C.RTLD_NOW)
	if handle == nil {
		return nil, fmt.Errorf("%s", C.GoString(C.dlerror()))
	}
	f := C.dlsym(handle, name)
	if f == nil {
		return nil, fmt.Errorf("%s has no scale_add", library)
	}
	return f, nil
}

// scaleAddInto adds scale * in to out. What an operation checks, it checks here: types, shapes, and that rows are without gaps.
func scaleAddInto(f unsafe.Pointer, out, in *tensor.Tensor, scale float32) error {
	if out.DType() != tensor.F32 || in.DType() != tensor.F32 || !slices.Equal(out.Shape(), in.Shape()) || !out.Contiguous() || !in.Contiguous() {
		return fmt.Errorf("scale add: %v %v and %v %v: want F32 of one shape, without gaps", out.DType(), out.Shape(), in.DType(), in.Shape())
	}
	return tensor.Enqueue("scale add", out.Stream(), func(l tensor.Launch) error {
		index := out.Device().Info().Index
		if status := C.call(f, l.At[0], l.At[1], C.float(scale), C.int64_t(out.Len()), C.int(index), l.Stream); status != 0 {
			return fmt.Errorf("CUDA error %d", status)
		}
		return nil
	}, out, in)
}

func run(d *gpu.Device, library string) error {
	if !d.Info().HostMemory && library == "" {
		return fmt.Errorf("%s needs -library: see kernel.cu", d)
	}
	f, err := kernel(library)
	if err != nil {
		return err
	}
	a := tensor.Arange(d.Stream(), 0, 1, 6, tensor.F32)
	b := tensor.Add(a, a) // in stream order: no wait before the kernel, nor behind it
	if err := scaleAddInto(f, b, a, 10); err != nil {
		return err
	}
	fmt.Println(tensor.Mul(b, b))

	// Memory of C's own, as a tensor: Free gives it back to C.
	if d.Info().HostMemory {
		memory := C.malloc(6 * 4)
		c, err := tensor.FromPointer(d.Stream(), tensor.Memory{Pointer: memory, Bytes: 6 * 4, DType: tensor.F32, Shape: []int{2, 3}, Release: func() { C.free(memory) }})
		if err != nil {
			C.free(memory)
			return err
		}
		defer c.Free()
		tensor.CopyInto(c, b.Reshape(2, 3))
		fmt.Println(tensor.Sum(c.T(), 0))
	}
	return nil
}
