package gguf_test

import (
	"bytes"
	"fmt"

	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

func Example() {
	var w gguf.Writer
	w.Set("general.architecture", "llama")
	w.Set("llama.block_count", uint32(2))
	w.AddTensor("output.weight", gguf.F32, []int{3, 2}, make([]byte, 24)) // [2][3]: the contiguous dimension is the first
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		panic(err)
	}

	f, err := gguf.FromBytes(b.Bytes()) // Open(path) maps a file instead
	if err != nil {
		panic(err)
	}
	defer f.Close()
	arch, _ := f.String("general.architecture")
	blocks, _ := f.Uint(arch + ".block_count")
	_, err = f.Float("llama.block_count")
	fmt.Println(arch, blocks, err)
	for _, t := range f.Tensors() {
		data, _ := f.Data(&t)
		fmt.Println(t.Name, t.Type, t.Dims, len(data))
	}
	// Output:
	// llama 2 gguf: key "llama.block_count" is of type u32, not f32 or f64
	// output.weight F32 [3 2] 24
}
