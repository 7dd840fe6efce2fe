// Package testmodel builds small GGUF models in memory, for tests and examples only.
package testmodel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// Shape is the shape of a model with random weights.
type Shape struct {
	Architecture                                                         string // "llama" where empty
	Hidden, Layers, Heads, KVHeads, HeadDim, FeedForward, Vocab, Context int
}

// Tiny is a shape that computes a token in microseconds.
var Tiny = Shape{Hidden: 32, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 8, FeedForward: 48, Vocab: 64, Context: 256}

// Writer returns a file with the metadata and the F32 tensors of a shape, for the caller to add to or to spoil; weight gives
// the value of each element.
func Writer(s Shape, weight func(name string, row, col int) float32) *gguf.Writer {
	if s.Architecture == "" {
		s.Architecture = "llama"
	}
	w := &gguf.Writer{}
	p := s.Architecture + "."
	w.Set("general.architecture", s.Architecture)
	w.Set("general.name", "test")
	for key, n := range map[string]int{
		"context_length": s.Context, "embedding_length": s.Hidden, "block_count": s.Layers, "feed_forward_length": s.FeedForward,
		"attention.head_count": s.Heads, "attention.head_count_kv": s.KVHeads, "attention.key_length": s.HeadDim,
		"attention.value_length": s.HeadDim, "rope.dimension_count": s.HeadDim,
	} {
		w.Set(p+key, uint32(n))
	}
	w.Set(p+"attention.layer_norm_rms_epsilon", float32(1e-5))
	add := func(name string, rows, cols int) {
		dims := []int{cols, rows}
		if rows == 0 {
			dims, rows = []int{cols}, 1
		}
		var b bytes.Buffer
		values := make([]float32, rows*cols)
		for i := range values {
			values[i] = weight(name, i/cols, i%cols)
		}
		binary.Write(&b, binary.LittleEndian, values)
		w.AddTensor(name, gguf.F32, dims, b.Bytes())
	}
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	add("token_embd.weight", s.Vocab, s.Hidden)
	for i := range s.Layers {
		p := fmt.Sprintf("blk.%d.", i)
		add(p+"attn_norm.weight", 0, s.Hidden)
		add(p+"attn_q.weight", q, s.Hidden)
		add(p+"attn_k.weight", kv, s.Hidden)
		add(p+"attn_v.weight", kv, s.Hidden)
		switch s.Architecture {
		case "qwen2":
			add(p+"attn_q.bias", 0, q)
			add(p+"attn_k.bias", 0, kv)
			add(p+"attn_v.bias", 0, kv)
		case "qwen3":
			add(p+"attn_q_norm.weight", 0, s.HeadDim)
			add(p+"attn_k_norm.weight", 0, s.HeadDim)
		}
		add(p+"attn_output.weight", s.Hidden, q)
		add(p+"ffn_norm.weight", 0, s.Hidden)
		add(p+"ffn_gate.weight", s.FeedForward, s.Hidden)
		add(p+"ffn_up.weight", s.FeedForward, s.Hidden)
		add(p+"ffn_down.weight", s.Hidden, s.FeedForward)
	}
	add("output_norm.weight", 0, s.Hidden)
	add("output.weight", s.Vocab, s.Hidden)
	return w
}

// Random returns a model with random weights and no tokenizer.
func Random(s Shape) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	w := Writer(s, func(string, int, int) float32 { return float32(r.NormFloat64() / 4) })
	w.Set("tokenizer.ggml.model", "no_vocab")
	return Bytes(w)
}

// Reciter returns a model with a SentencePiece tokenizer that answers everything with the same words, which must differ,
// and then ends. Its layers add nothing: an embedding is a row of the unit matrix, and the output matrix maps each token
// to the one that follows it.
func Reciter(words ...string) []byte {
	const bos, eos = 1, 2
	tokens := []string{"<unk>", "<s>", "</s>"}
	types := []int32{2, 3, 3}
	for b := range 256 {
		tokens, types = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(types, 6)
	}
	first := len(tokens)
	for _, w := range words {
		tokens, types = append(tokens, w), append(types, 1)
	}
	n := len(tokens)
	s := Shape{Hidden: (n + 7) / 8 * 8, Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 8, FeedForward: 8, Vocab: n, Context: 512}
	next := func(id int) int {
		switch {
		case id < first:
			return first
		case id+1 < n:
			return id + 1
		}
		return eos
	}
	w := Writer(s, func(name string, row, col int) float32 {
		one := false
		switch name {
		case "token_embd.weight":
			one = row == col
		case "output.weight":
			one = col < n && next(col) == row
		case "output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight":
			one = true
		}
		if one {
			return 1
		}
		return 0
	})
	w.Set("tokenizer.ggml.model", "llama")
	w.Set("tokenizer.ggml.tokens", tokens)
	w.Set("tokenizer.ggml.token_type", types)
	w.Set("tokenizer.ggml.scores", make([]float32, n))
	w.Set("tokenizer.ggml.bos_token_id", uint32(bos))
	w.Set("tokenizer.ggml.eos_token_id", uint32(eos))
	w.Set("tokenizer.ggml.add_bos_token", true)
	return Bytes(w)
}

// ReciterAdapter returns a low-rank adapter with which a Reciter of so many words leaves out each word after an even one: one
// rank for each that it skips.
func ReciterAdapter(words int) []byte {
	const first = 3 + 256
	n := first + words
	hidden := (n + 7) / 8 * 8
	var skipped []int // the words before those that are left out
	for i := 0; i+2 < words; i += 2 {
		skipped = append(skipped, first+i)
	}
	a, b := make([]float32, len(skipped)*hidden), make([]float32, n*len(skipped))
	for rank, id := range skipped {
		a[rank*hidden+id] = 1
		b[(id+1)*len(skipped)+rank], b[(id+2)*len(skipped)+rank] = -2, 2
	}
	w := &gguf.Writer{}
	w.Set("general.type", "adapter")
	w.Set("general.architecture", "llama")
	w.Set("adapter.type", "lora")
	w.Set("adapter.lora.alpha", float32(len(skipped)))
	for half, values := range map[string][]float32{"a": a, "b": b} {
		dims := []int{hidden, len(skipped)}
		if half == "b" {
			dims = []int{len(skipped), n}
		}
		var data bytes.Buffer
		binary.Write(&data, binary.LittleEndian, values)
		w.AddTensor("output.weight.lora_"+half, gguf.F32, dims, data.Bytes())
	}
	return Bytes(w)
}

// Edit says how Copy changes a file. Its zero value changes nothing.
type Edit struct {
	Key    func(key string) string                           // returns a key's new name, or "" to leave the key out
	Tensor func(w *gguf.Writer, t *gguf.Tensor, data []byte) // adds to w what stands for a tensor
}

// Without leaves keys and tensors of these names out.
func Without(names ...string) Edit {
	return Edit{
		Key: func(key string) string {
			if slices.Contains(names, key) {
				return ""
			}
			return key
		},
		Tensor: func(w *gguf.Writer, t *gguf.Tensor, data []byte) {
			if !slices.Contains(names, t.Name) {
				w.AddTensor(t.Name, t.Type, t.Dims, data)
			}
		},
	}
}

// Copy returns a copy of a file, for the caller to add to. It shares the memory of the file's tensors.
func Copy(f *gguf.File, edit Edit) *gguf.Writer {
	w := &gguf.Writer{}
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		if edit.Key != nil {
			key = edit.Key(key)
		}
		if key != "" {
			w.Set(key, v.Any())
		}
	}
	for i := range f.Tensors() {
		t := &f.Tensors()[i]
		data, err := f.Data(t)
		if err != nil {
			panic(err)
		}
		if edit.Tensor != nil {
			edit.Tensor(w, t, data)
		} else {
			w.AddTensor(t.Name, t.Type, t.Dims, data)
		}
	}
	return w
}

// Retype returns a copy of a file in which change has replaced types and data of tensors.
func Retype(f *gguf.File, change func(t *gguf.Tensor, data []byte) (gguf.Type, []byte)) []byte {
	return Bytes(Copy(f, Edit{Tensor: func(w *gguf.Writer, t *gguf.Tensor, data []byte) {
		typ, data := change(t, data)
		w.AddTensor(t.Name, typ, t.Dims, data)
	}}))
}

// Bytes returns the file, or panics where the writer refuses it.
func Bytes(w *gguf.Writer) []byte {
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		panic(err)
	}
	return b.Bytes()
}
