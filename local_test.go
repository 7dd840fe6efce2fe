package vibrant_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

func TestFilesThatHoldNoModelSayWhatTheyAre(t *testing.T) {
	for kind, want := range map[string]string{"adapter": "adapter (LoRA)", "mmproj": "image part", "model": "a vocabulary and no weights"} {
		w := &gguf.Writer{}
		w.Set("general.architecture", "llama")
		w.Set("general.type", kind)
		w.Set("tokenizer.ggml.model", "no_vocab")
		var b bytes.Buffer
		if _, err := w.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		_, err := vibrant.OpenBytes(t.Context(), b.Bytes(), vibrant.WithDevice("cpu"))
		if !errors.Is(err, vibrant.ErrNotAModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
