package vibrant_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

func TestFilesThatHoldNoModelSayWhatTheyAre(t *testing.T) {
	for _, c := range []struct{ kind, arch, want string }{
		{"adapter", "llama", "adapter (LoRA)"}, {"mmproj", "clip", "image part"}, {"", "clip", "image part"},
		{"imatrix", "imatrix", "importance matrix"}, {"", "controlvector", "control vector"}, {"model", "llama", "a vocabulary and no weights"},
	} {
		w := &gguf.Writer{}
		w.Set("general.architecture", c.arch)
		if c.kind != "" {
			w.Set("general.type", c.kind)
		}
		w.Set("tokenizer.ggml.model", "no_vocab")
		var b bytes.Buffer
		if _, err := w.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		_, err := vibrant.OpenBytes(t.Context(), b.Bytes(), vibrant.WithDevice("cpu"))
		if !errors.Is(err, vibrant.ErrNotAModel) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
		path := filepath.Join(t.TempDir(), "file.gguf")
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		if f, err := vibrant.Inspect(path); err != nil || !strings.Contains(f.Unsupported, c.want) {
			t.Errorf("inspect %+v: %+v, %v", c, f, err)
		}
	}
}
