package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// A model is pulled, listed, and used by its name.
func TestModelsArePulledListedAndNamed(t *testing.T) {
	data := testmodel.Reciter("▁Hello", ",", "▁I", "▁recite", ".")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/models/owner/reciter/tree/main":
			fmt.Fprintf(w, `[{"type": "file", "path": "reciter-F32.gguf", "size": %d, "lfs": {"oid": "%x"}}]`, len(data), sha256.Sum256(data))
		case "/owner/reciter/resolve/main/reciter-F32.gguf":
			w.Write(data)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	for name, value := range map[string]string{"HF_ENDPOINT": server.URL, "HF_TOKEN": "", "HOME": dir, "USERPROFILE": dir, "VIBRANT_MODELS": dir,
		"HF_HOME": dir, "HF_HUB_CACHE": "", "OLLAMA_MODELS": dir} {
		t.Setenv(name, value)
	}
	if status, out, errs := command(t, "", "list", "--device", "cpu"); status != 0 || out != "" || !strings.Contains(errs, "vibrant pull") {
		t.Errorf("no models: exit %d, %q, %q", status, out, errs)
	}
	file := filepath.Join(dir, "owner", "reciter", "reciter-F32.gguf")
	status, out, errs := command(t, "", "ask", "-hf", "owner/reciter", "--device", "cpu", "--temp", "0", "hi")
	if status != 0 || out != " Hello, I recite.\n" {
		t.Fatalf("exit %d, %q, %q", status, out, errs)
	}
	if status, out, errs = command(t, "", "pull", "hf:owner/reciter:F32"); status != 0 || out != file+"\n" {
		t.Errorf("exit %d, %q, %q", status, out, errs)
	}
	for _, name := range []string{"owner/reciter", "reciter-F32", file} {
		if status, out, errs = command(t, "", "ask", "-m", name, "--device", "cpu", "--temp", "0", "hi"); out != " Hello, I recite.\n" {
			t.Errorf("%s: exit %d, %q, %q", name, status, out, errs)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "broken.gguf"), []byte("GGUF"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, out, errs = command(t, "", "list", "--device", "cpu")
	for _, want := range []string{"NAME", "owner/reciter:F32", "llama", "F32", "yes", "broken", "no: "} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d, %q lacks %q; %q", status, out, want, errs)
		}
	}
	var w gguf.Writer
	w.Set("general.architecture", "llama")
	w.Set("general.file_type", uint32(15))
	w.AddTensor("token_embd.weight", gguf.Q8_0, []int{32}, make([]byte, 34))
	mixture := filepath.Join(dir, "mixture.gguf")
	if err := w.WriteFile(mixture); err != nil {
		t.Fatal(err)
	}
	if _, out, _ = command(t, "", "list", "--device", "cpu"); !strings.Contains(out, "Q4_K_M") || strings.Contains(out, "Q8_0") {
		t.Errorf("a file of the mixture Q4_K_M: %q", out)
	}
	if err := os.Remove(mixture); err != nil {
		t.Fatal(err)
	}
	var models []vibrant.LocalModel
	if _, out, _ = command(t, "", "list", "--json"); json.Unmarshal([]byte(out), &models) != nil || len(models) != 2 || !models[1].Fits {
		t.Errorf("%s", out)
	}
	t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1")
	status, out, errs = command(t, "", "ask", "-hf", "owner/reciter", "--device", "cpu", "--temp", "0", "hi")
	if status != 0 || out != " Hello, I recite.\n" || !strings.Contains(errs, "warning: ") || !strings.Contains(errs, file) {
		t.Errorf("without a hub: exit %d, %q, %q", status, out, errs)
	}
	t.Setenv("HF_ENDPOINT", server.URL)
	for line, want := range map[string]string{"pull owner/other": "no such model", "ask -m nothing hi": "vibrant list", "ask -m " + dir + " hi": "is a folder"} {
		if status, _, errs := command(t, "", strings.Fields(line)...); status != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %q", line, status, errs)
		}
	}
}
