package tensor_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vibrant-ml/vibrant/gguf"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Weights become blocks of 32 codes with a scale, an eighth of F32's size in Q4_0.
func ExampleQuantize() {
	w := tensor.RandN(gpu.CPU().Stream(), 1, tensor.F32, 2, 256)
	for _, t := range []tensor.DType{tensor.Q8_0, tensor.Q4_0, tensor.Q6_K, tensor.Q4_K} {
		q := tensor.Quantize(w, t)
		worst := tensor.Max(tensor.Abs(tensor.Sub(tensor.Convert(q, tensor.F32), w)))
		fmt.Println(q.DType(), q.Bytes(), worst.At() < 0.5)
	}
	// Output:
	// Q8_0 544 true
	// Q4_0 288 true
	// Q6_K 420 true
	// Q4_K 288 true
}

// A quantized tensor goes to a file and comes back.
func ExampleFromGGUF() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "weights.gguf")
	q := tensor.Quantize(tensor.Full(gpu.CPU().Stream(), 0.5, tensor.F32, 2, 32), tensor.Q8_0)
	data := make([]byte, q.Bytes())
	if err := q.ReadBytes(data); err != nil {
		panic(err)
	}
	var w gguf.Writer
	w.Set("general.architecture", "example")
	w.Add("weight", q.DType(), q.Shape(), data)
	if err := w.WriteFile(path); err != nil {
		panic(err)
	}

	f, err := gguf.Open(path)
	if err != nil {
		panic(err)
	}
	defer f.Close() // the tensor stays
	weight, err := tensor.FromGGUF(gpu.CPU(), f, "weight")
	if err != nil {
		panic(err)
	}
	fmt.Println(weight.DType(), weight.Shape())
	fmt.Printf("%.3f\n", tensor.Convert(weight, tensor.F32).At(1, 31)) // dequantized
	// Output:
	// Q8_0 [2 32]
	// 0.500
}
