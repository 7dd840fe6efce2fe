package npy_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vibrant-ml/vibrant/tensor"
	"github.com/vibrant-ml/vibrant/tensor/npy"
)

func Example() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "x.npy")
	if err := npy.Save(path, tensor.FromSlice([]float32{1, 2, 3, 4}, 2, 2)); err != nil { // numpy.load reads it
		panic(err)
	}
	x, err := npy.Load(path) // as numpy.save wrote it
	if err != nil {
		panic(err)
	}
	fmt.Println(x)
	// Output:
	// [[1. 2.]
	//  [3. 4.]]
}

func ExampleArchive() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "data.npz")
	err = npy.SaveArchive(path, map[string]*tensor.Tensor{
		"points": tensor.Zeros(2, 3), "labels": tensor.FromInt32s([]int32{7, 8}),
	}, true)
	if err != nil {
		panic(err)
	}
	a, err := npy.OpenArchive(path)
	if err != nil {
		panic(err)
	}
	defer a.Close()
	for _, name := range a.Names() {
		h, err := a.Header(name)
		fmt.Println(name, h.Type, h.Shape, err)
	}
	labels, err := a.Tensor("labels")
	fmt.Println(labels, err)
	// Output:
	// labels <i4 [2] <nil>
	// points <f4 [2 3] <nil>
	// [7 8] <nil>
}
