package safetensors_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
	"github.com/vibrant-ml/vibrant/tensor/safetensors"
)

func Example() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "model.safetensors")
	err = safetensors.Write(path, map[string]*tensor.Tensor{
		"weight": tensor.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3),
		"bias":   tensor.Convert(tensor.FromSlice([]float32{0.5, -0.5}), tensor.BF16),
	}, map[string]string{"format": "pt"})
	if err != nil {
		panic(err)
	}

	f, err := safetensors.Open(path) // or a folder of the hub, whose weights may be in several files
	if err != nil {
		panic(err)
	}
	defer f.Close() // tensors stay
	for _, t := range f.Tensors() {
		fmt.Println(t.Name, t.Type, t.Shape)
	}
	w, err := f.Tensor(gpu.CPU(), "weight") // reads this tensor alone
	if err != nil {
		panic(err)
	}
	fmt.Println(w)
	bias, err := f.TensorAs(gpu.CPU(), "bias", tensor.F32)
	fmt.Println(bias, err)
	// Output:
	// weight F32 [2 3]
	// bias BF16 [2]
	// [[1. 2. 3.]
	//  [4. 5. 6.]]
	// [ 0.5 -0.5] <nil>
}
