//go:build unix

package hub

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
)

// Pipes and devices in place of small files neither hold up the list nor fill memory.
func TestPipesInFoldersOfOtherProgramsArePassedOver(t *testing.T) {
	const ollama = ".ollama/models/manifests/registry.ollama.ai/library/pipe"
	dir := home(t, map[string]string{".cache/vibrant/models/mine.gguf": "5"})
	for _, path := range []string{".cache/huggingface/hub/models--a--b/refs/main", ollama + "/latest", ".cache/huggingface/token"} {
		path = filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Skip(err)
		}
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, filepath.FromSlash(ollama), "zero")); err != nil {
		t.Fatal(err)
	}
	done := make(chan []Model, 1)
	go func() {
		if token := tokenOfFile(); token != "" {
			t.Errorf("a token of %d bytes", len(token))
		}
		done <- List()
	}()
	select {
	case all := <-done:
		if len(all) != 1 || all[0].Name != "mine" {
			t.Errorf("%v", all)
		}
	case <-time.After(busy.Limit):
		t.Fatal("the list waits for a pipe")
	}
}
