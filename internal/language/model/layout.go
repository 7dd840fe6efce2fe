package model

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// spec is one tensor that a model has: a matrix [rows][cols], or a vector of cols elements (rows 0).
type spec struct {
	name       string
	rows, cols int
	need       need
}

// dims returns the shape as GGUF writes it.
func (s spec) dims() []int {
	if s.rows == 0 {
		return []int{s.cols}
	}
	return []int{s.cols, s.rows}
}

// layerSpecs lists the tensors of layer i without their prefix "blk.i.".
func (c *Config) layerSpecs() []spec {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	return []spec{
		{"attn_norm.weight", 0, c.Hidden, required},
		{"attn_q.weight", q, c.Hidden, required},
		{"attn_k.weight", kv, c.Hidden, required},
		{"attn_v.weight", kv, c.Hidden, required},
		{"attn_q.bias", 0, q, c.arch.qkvBias},
		{"attn_k.bias", 0, kv, c.arch.qkvBias},
		{"attn_v.bias", 0, kv, c.arch.qkvBias},
		{"attn_q_norm.weight", 0, c.HeadDim, c.arch.qkNorm},
		{"attn_k_norm.weight", 0, c.HeadDim, c.arch.qkNorm},
		{"attn_output.weight", c.Hidden, q, required},
		{"attn_output.bias", 0, c.Hidden, c.arch.qkvBias.atMostOptional()},
		{"ffn_norm.weight", 0, c.Hidden, required},
		{"ffn_gate.weight", c.FeedForward, c.Hidden, required},
		{"ffn_up.weight", c.FeedForward, c.Hidden, required},
		{"ffn_down.weight", c.Hidden, c.FeedForward, required},
	}
}

func (n need) atMostOptional() need { return min(n, optional) }

// specs lists all tensors of the model, in the order of computation.
func (c *Config) specs() []spec {
	all := []spec{{"token_embd.weight", c.Vocab, c.Hidden, required}}
	for i := range c.Layers {
		for _, s := range c.layerSpecs() {
			s.name = fmt.Sprintf("blk.%d.%s", i, s.name)
			all = append(all, s)
		}
	}
	all = append(all, spec{"output_norm.weight", 0, c.Hidden, required})
	if !c.Tied {
		all = append(all, spec{"output.weight", c.Vocab, c.Hidden, required})
	}
	return all
}

// find returns the file's tensors by the specs of the model, absent ones nil, after checking names, shapes and types.
// A tensor that the architecture does not know is an error too: a model computed without it would be another model.
func (c *Config) find(f *gguf.File) (map[string]*gguf.Tensor, []spec, error) {
	specs := c.specs()
	known := map[string]bool{"rope_freqs.weight": true} // read by readRoPE
	found := map[string]*gguf.Tensor{}
	present := specs[:0:0]
	for _, s := range specs {
		t, err := f.Tensor(s.name)
		if errors.Is(err, gguf.ErrNoTensor) && s.need != required {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if s.need == absent {
			return nil, nil, fmt.Errorf("tensor %s is not part of architecture %s", s.name, c.Architecture)
		}
		if err := s.check(t); err != nil {
			return nil, nil, err
		}
		known[s.name], found[s.name] = true, t
		present = append(present, s)
	}
	for _, t := range f.Tensors() {
		if !known[t.Name] && !ignored(t.Name) {
			return nil, nil, fmt.Errorf("tensor %s is not part of architecture %s with %d layers", t.Name, c.Architecture, c.Layers)
		}
	}
	return found, present, nil
}

// ignored tells tensors that old converters wrote though they follow from the metadata.
func ignored(name string) bool {
	return strings.HasSuffix(name, "attn_rot_embd.weight") || strings.HasSuffix(name, "rotary_emb.inv_freq") || strings.HasSuffix(name, "rope_freqs.weight")
}

func (s spec) check(t *gguf.Tensor) error {
	want := s.dims()
	same := len(want) == len(t.Dims)
	for i := 0; same && i < len(want); i++ {
		same = want[i] == t.Dims[i]
	}
	if !same {
		return fmt.Errorf("tensor %s has shape %v (contiguous dimension first), want %v", s.name, t.Dims, want)
	}
	d := kernel.DType(t.Type)
	if s.rows == 0 {
		if d != kernel.F32 && d != kernel.F16 && d != kernel.BF16 {
			return fmt.Errorf("tensor %s is of type %s: not supported (a vector must be F32, F16 or BF16)", s.name, t.Type)
		}
		return nil
	}
	if !d.Known() || d == kernel.I32 {
		return fmt.Errorf("tensor %s is of type %s: not supported", s.name, t.Type)
	}
	if s.cols%d.BlockSize() != 0 {
		return fmt.Errorf("tensor %s: rows of %d elements are no whole blocks of %s", s.name, s.cols, t.Type)
	}
	return nil
}

// float32s decodes little-endian F32.
func float32s(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(uint32(b[4*i]) | uint32(b[4*i+1])<<8 | uint32(b[4*i+2])<<16 | uint32(b[4*i+3])<<24)
	}
	return v
}
