package vibrant

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/check/testdata"
)

// TestCachesAreExactWhereRoundingIsCoarse holds what KVAuto means: a cache in F16 would move the logits of a BitNet model by six times
// what its golden data allow.
func TestCachesAreExactWhereRoundingIsCoarse(t *testing.T) {
	for name, want := range map[string]KVType{"tiny-bitnet-tq2_0": KVF32, "tiny-llama": KVF32, "stories260K-q8_0": KVF16} {
		m, err := Open(context.Background(), filepath.Join(testdata.Path(t, "models"), name+".gguf"), WithDevice("cpu"))
		if err != nil {
			t.Fatal(err)
		}
		if kv := m.Info().KVType; kv != want {
			t.Errorf("%s: %s, want %s", name, kv, want)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestPagesListEveryArchitecture(t *testing.T) {
	var want strings.Builder
	want.WriteString("| architecture | models | tested against |\n|---|---|---|\n")
	for _, a := range Architectures() {
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", a.Name, a.Example, a.Tested)
	}
	for _, path := range []string{"README.md", "docs/models.md"} {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), want.String()+"\n") {
			t.Errorf("%s lacks this table:\n%s", path, want.String())
		}
	}
}
