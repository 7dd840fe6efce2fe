package gguf_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/gguf"
)

func Example() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "model.gguf")
	var w gguf.Writer
	w.Set("general.architecture", "llama")
	w.Set("llama.block_count", uint32(2))
	w.Add("output.weight", dtype.F16, []int{2, 3}, make([]byte, 12))
	if err := w.WriteFile(path); err != nil {
		panic(err)
	}

	f, err := gguf.Open(path)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	architecture, _ := f.String("general.architecture")
	blocks, _ := f.Uint(architecture + ".block_count")
	_, err = f.Float("llama.rope.freq_base")
	fmt.Println(architecture, blocks, err)
	for _, t := range f.Tensors() {
		fmt.Println(t.Name, t.Type, t.Shape, t.Bytes)
	}
	// Output:
	// llama 2 gguf: key "llama.rope.freq_base": missing from the metadata
	// output.weight F16 [2 3] 12
}
