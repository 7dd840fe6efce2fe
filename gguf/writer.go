package gguf

import (
	"fmt"
	"io"
	"slices"

	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/wholefile"
)

// Writer collects keys and tensors, and writes them as a file of version 3. The tensors' data is held in memory until then. The first
// mistake is kept, and returned when the file is written. The zero Writer is ready.
type Writer struct{ w gguf.Writer }

// Set adds a key: a bool, string, sized integer (most keys are uint32), float32, float64, or a slice of one of these or of such
// slices. "general.alignment" sets the file's alignment.
func (w *Writer) Set(key string, value any) { w.w.Set(key, value) }

// Add adds a tensor of a shape, outermost dimension first. data is as the type stores it, of exactly the size that type and shape imply; it
// is not copied.
func (w *Writer) Add(name string, t dtype.Type, shape []int, data []byte) {
	dims := slices.Clone(shape)
	slices.Reverse(dims)
	w.w.AddTensor(name, gguf.Type(t), dims, data)
}

// WriteTo writes the file and returns its size in bytes.
func (w *Writer) WriteTo(out io.Writer) (int64, error) { return w.w.WriteTo(out) }

// WriteFile writes the file at path, whole or not at all.
func (w *Writer) WriteFile(path string) error {
	err := wholefile.Write(path, func(out io.Writer) error {
		_, err := w.w.WriteTo(out)
		return err
	})
	if err != nil {
		return fmt.Errorf("gguf: %s: %w", path, err)
	}
	return nil
}
