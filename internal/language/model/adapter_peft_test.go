package model

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/tensor/safetensors"
)

// peftFile returns a file of tensors for a head, whose data are zeros.
func peftFile(head any, data int) []byte {
	text, err := json.Marshal(head)
	if err != nil {
		panic(err)
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), make([]byte, data)...)
}

// writePEFT writes a folder of PEFT.
func writePEFT(t *testing.T, folder string, config, tensors []byte) {
	t.Helper()
	err := errors.Join(os.WriteFile(filepath.Join(folder, "adapter_config.json"), config, 0o600),
		os.WriteFile(filepath.Join(folder, "adapter_model.safetensors"), tensors, 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzPEFT reads the two files of a folder of PEFT. It wants a short error that says so, or matrices with all their values.
func FuzzPEFT(f *testing.F) {
	const layer = "base_model.model.model.layers."
	tensors := func(dtype string, size int) []byte {
		return peftFile(map[string]any{
			layer + "0.self_attn.q_proj.lora_A.weight": map[string]any{"dtype": dtype, "shape": []int{2, 8}, "data_offsets": []int{0, 16 * size}},
			layer + "0.self_attn.q_proj.lora_B.weight": map[string]any{"dtype": dtype, "shape": []int{16, 2}, "data_offsets": []int{16 * size, 48 * size}},
		}, 48*size)
	}
	config := []byte(`{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none"}`)
	f.Add(config, tensors("F32", 4))
	f.Add(config, tensors("BF16", 2))
	f.Add([]byte(`{"peft_type": "LORA", "use_rslora": true, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {}}`), tensors("F16", 2))
	c := &Config{Architecture: "llama", HeadDim: 4}
	folder := f.TempDir()
	f.Fuzz(func(t *testing.T, config, tensors []byte) {
		writePEFT(t, folder, config, tensors)
		files, err := c.readAdapters([]string{folder})
		defer closeAll(files)
		if err != nil {
			if message := strings.ReplaceAll(err.Error(), folder, ""); !errors.Is(err, ErrAdapter) || len(message) > 1000 {
				t.Fatal(err)
			}
			return
		}
		for weight, p := range files[0].pairs {
			for _, half := range []*matrixHalf{p.a, p.b} {
				if half == nil {
					continue
				}
				values, err := half.values()
				if err != nil && !errors.Is(err, safetensors.ErrInvalid) || err == nil && len(values) != half.rows*half.cols {
					t.Fatalf("%s: %d values of %d x %d: %v", weight, len(values), half.rows, half.cols, err)
				}
			}
			if p.a != nil && p.b != nil {
				_ = p.check()
			}
		}
	})
}
