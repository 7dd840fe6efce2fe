package vibrant

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
)

// Architecture describes a family of models that this package computes.
type Architecture struct {
	Name    string `json:"name"`    // general.architecture of its files
	Example string `json:"example"` // models that people run
	Tested  string `json:"tested"`  // engines whose logits and greedy ids hold the tests
}

// Architectures lists what is supported, by name.
func Architectures() []Architecture {
	var all []Architecture
	for _, a := range model.Architectures() {
		all = append(all, Architecture(a))
	}
	return all
}

// File describes a GGUF file.
type File struct {
	Version    int          `json:"version"`
	Bytes      int64        `json:"bytes"`
	Parameters int64        `json:"parameters"`
	Types      []TypeCount  `json:"types"` // the largest first
	Metadata   []KeyValue   `json:"metadata"`
	Tensors    []TensorInfo `json:"tensors"`
	// Unsupported says why no model can be computed from the file, "" where one can.
	Unsupported string `json:"unsupported,omitempty"`
}

// TypeCount says how much of a file is of one type.
type TypeCount struct {
	Type    string `json:"type"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// TensorInfo describes a tensor of a file. The contiguous dimension is the last.
type TensorInfo struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
	Bytes int64  `json:"bytes"`
}

// KeyValue is a metadata entry. Long arrays, such as vocabularies, have no Value but their Len.
type KeyValue struct {
	Key   string `json:"key"`
	Type  string `json:"type"` // "u32", "string", "array of string", ...
	Value any    `json:"value,omitempty"`
	Len   int    `json:"len,omitempty"` // of an array
}

// maxListed is the longest array that KeyValue spells out.
const maxListed = 64

// Short returns the value in one line.
func (kv KeyValue) Short() string {
	if kv.Value == nil {
		return fmt.Sprintf("%s, %d", kv.Type, kv.Len)
	}
	text := fmt.Sprint(kv.Value)
	if s, ok := kv.Value.(string); ok {
		text = fmt.Sprintf("%q", s)
	}
	if r := []rune(text); len(r) > 100 {
		text = string(r[:100]) + "..."
	}
	return text
}

// Inspect reads what a GGUF file says of itself, "" for that of RegisterDefault.
func Inspect(path string) (*File, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := &File{Version: int(f.Version), Bytes: f.Bytes(), Metadata: metadata(f)}
	err = isModel(f)
	if err == nil {
		err = model.Supported(f)
	}
	if err != nil {
		out.Unsupported = err.Error()
	}
	types := map[string]*TypeCount{}
	for _, t := range f.Tensors() {
		shape := slices.Clone(t.Dims)
		slices.Reverse(shape)
		name := t.Type.String()
		out.Tensors = append(out.Tensors, TensorInfo{Name: t.Name, Type: name, Shape: shape, Bytes: t.Bytes})
		out.Parameters += int64(t.Elements())
		if types[name] == nil {
			types[name] = &TypeCount{Type: name}
		}
		types[name].Tensors++
		types[name].Bytes += t.Bytes
	}
	for _, c := range types {
		out.Types = append(out.Types, *c)
	}
	slices.SortFunc(out.Types, func(a, b TypeCount) int {
		if a.Bytes != b.Bytes {
			return int(min(max(b.Bytes-a.Bytes, -1), 1))
		}
		return strings.Compare(a.Type, b.Type)
	})
	return out, nil
}

func metadata(f *gguf.File) []KeyValue {
	var list []KeyValue
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		kv := KeyValue{Key: key, Type: v.TypeString()}
		if v.Type == gguf.TypeArray {
			kv.Len = v.Len
		}
		if v.Type != gguf.TypeArray || v.Len <= maxListed {
			kv.Value = v.Any()
		}
		list = append(list, kv)
	}
	return list
}
