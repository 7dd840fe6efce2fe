//go:build cgo && linux

// Command dlpack is a shared library whose function takes an array of numpy, PyTorch or any other library that speaks DLPack, and
// gives one back, without a copy of either: examples/python/dlpack.py calls it.
//
//	go build -buildmode=c-shared -o libnormalize.so ./examples/go/dlpack
//	python3 examples/python/dlpack.py libnormalize.so
package main

// #include <stdint.h>
import "C"

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// normalize returns the rows of a matrix less their mean, divided by their deviation, and adds 1 to the matrix in place. The matrix is
// the function's then. NULL, and a line on stderr, after an error: the matrix stays the caller's. Both are DLManagedTensors, or, by the
// flags, DLManagedTensorVersioneds.
//
//export normalize
func normalize(managed unsafe.Pointer, versioned, resultVersioned C.int) (result unsafe.Pointer) {
	a, err := tensor.FromDLPack(gpu.CPU().Stream(), managed, versioned != 0)
	if err == nil {
		defer a.Free() // calls the deleter
		var b *tensor.Tensor
		err = tensor.Try(func() {
			centered := tensor.Sub(a, tensor.Keep(tensor.Mean(a, 1), a, 1))
			b = tensor.Div(centered, tensor.Sqrt(tensor.Keep(tensor.Var(a, 0, 1), a, 1)))
			tensor.AddInto(a, a, tensor.Ones(a.Stream(), a.DType()))
		})
		if err == nil {
			defer b.Free() // the memory stays until whoever takes the result calls its deleter
			result, err = b.ToDLPack(resultVersioned != 0)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return result
}

func main() {}
