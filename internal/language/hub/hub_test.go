package hub

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// home makes an empty home folder with these files.
func home(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"VIBRANT_MODELS", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "OLLAMA_MODELS", "XDG_CACHE_HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", dir)
	t.Setenv("USERPROFILE", dir)
	t.Setenv("LocalAppData", filepath.Join(dir, ".cache"))
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestModelsAreFoundInTheFoldersOfOtherPrograms(t *testing.T) {
	const hf = ".cache/huggingface/hub/models--owner--Model-GGUF/"
	dir := home(t, map[string]string{
		".ollama/models/manifests/registry.ollama.ai/library/llama3.2/1b":     `{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:aa"}]}`,
		".ollama/models/manifests/registry.ollama.ai/library/llama3.2/latest": `{"layers": [{"mediaType": "x"}, {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:bb"}]}`,
		".ollama/models/manifests/hf.co/someone/thing/Q8_0":                   `{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:aa"}]}`,
		".ollama/models/manifests/registry.ollama.ai/library/evil/latest":     `{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "../../../x"}]}`,
		".ollama/models/manifests/registry.ollama.ai/library/gone/latest":     `{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:cc"}]}`,
		".ollama/models/blobs/sha256-aa":                                      "1b",
		".ollama/models/blobs/sha256-bb":                                      "latest",
		hf + "refs/main":                                                      "abc\n",
		hf + "snapshots/abc/model-Q4_K_M.gguf":                                "1",
		hf + "snapshots/abc/model-Q8_0.gguf":                                  "2",
		hf + "snapshots/abc/mmproj-model-f16.gguf":                            "3",
		hf + "snapshots/abc/model-mmproj-Q4_K_M.gguf":                         "3",
		hf + "snapshots/abc/model-imatrix.gguf":                               "3",
		hf + "snapshots/old/model-Q2_K.gguf":                                  "4",
		".lmstudio/models/them/Big-GGUF/big-Q6_K-00001-of-00002.gguf":         "12",
		".lmstudio/models/them/Big-GGUF/big-Q6_K-00002-of-00002.gguf":         "345",
		".cache/vibrant/models/mine.gguf":                                     "5",
	})
	for name, want := range map[string]string{
		"llama3.2": "blobs/sha256-bb", "llama3.2:1b": "blobs/sha256-aa", "hf.co/someone/thing:Q8_0": "blobs/sha256-aa",
		"owner/Model-GGUF": "model-Q4_K_M.gguf", "owner/model-gguf:Q8_0": "model-Q8_0.gguf", "model-Q8_0": "model-Q8_0.gguf",
		"them/Big-GGUF:Q6_K": "big-Q6_K-00001-of-00002.gguf", "big-Q6_K": "big-Q6_K-00001-of-00002.gguf", "mine": "mine.gguf",
	} {
		if path, err := Find(name); err != nil || !strings.HasSuffix(filepath.ToSlash(path), want) {
			t.Errorf("%s: %q, %v; want %s", name, path, err, want)
		}
	}
	for _, name := range []string{"evil", "gone", "model-Q2_K", "nothing", "mmproj-model-f16", ""} {
		if path, err := Find(name); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %q, %v", name, path, err)
		}
	}
	if path, err := Find(filepath.Join(dir, ".cache/vibrant/models/mine.gguf")); err != nil || filepath.Base(path) != "mine.gguf" {
		t.Errorf("a path: %q, %v", path, err)
	}
	sizes := map[string]int64{}
	for _, m := range List() {
		sizes[m.Name] = m.Size
	}
	if len(sizes) != 7 || sizes["them/Big-GGUF:Q6_K"] != 5 {
		t.Errorf("%v", sizes)
	}
}

func TestAmbiguousNamesAreNotGuessed(t *testing.T) {
	home(t, map[string]string{
		".cache/vibrant/models/a/m/m-Q5_K_M.gguf": "", ".cache/vibrant/models/a/m/m-Q6_K.gguf": "",
	})
	if _, err := Find("a/m"); !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), "a/m:Q5_K_M, a/m:Q6_K") {
		t.Errorf("%v", err)
	}
	home(t, map[string]string{
		".cache/vibrant/models/a/m/base-Q4_K_M.gguf": "", ".cache/vibrant/models/a/m/chat-Q4_K_M.gguf": "", ".cache/vibrant/models/a/m/chat-Q8_0.gguf": "",
		".lmstudio/models/a/m/chat-Q8_0.gguf": "",
	})
	for _, name := range []string{"a/m", "a/m:Q4_K_M"} {
		if _, err := Find(name); !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), "base-Q4_K_M.gguf, chat-Q4_K_M.gguf") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if path, err := Find("a/m:Q8_0"); err != nil || filepath.Base(path) != "chat-Q8_0.gguf" {
		t.Errorf("the same file in two folders: %q, %v", path, err)
	}
}

// TestNamesMayLackTheirOwner finds models by what stands behind the slash, where nothing has the name itself.
func TestNamesMayLackTheirOwner(t *testing.T) {
	home(t, map[string]string{
		".lmstudio/models/a/m/m-Q8_0.gguf": "", ".lmstudio/models/b/n/n-Q8_0.gguf": "", ".lmstudio/models/c/n/n-Q8_0.gguf": "",
		".lmstudio/models/d/m-base/m-base-Q8_0.gguf": "",
	})
	for name, want := range map[string]string{"m": "a/m", "M:q8_0": "a/m", "m-base": "d/m-base", "hf:a/m": "a/m", "hf:a/m:Q8_0": "a/m"} {
		if path, err := Find(name); err != nil || !strings.Contains(filepath.ToSlash(path), "/"+want+"/") {
			t.Errorf("%s: %q, %v", name, path, err)
		}
	}
	if _, err := Find("n"); !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), "b/n:Q8_0, c/n:Q8_0") {
		t.Errorf("models of two owners: %v", err)
	}
	for name, want := range map[string]string{"a/m:Q4_0": "is not there, but a/m:Q8_0", "hf:a/x": "no such model", "x/m": "no such model", ":": "no such model"} {
		if _, err := Find(name); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// TestTheOnlySnapshotOfHuggingFacesCacheIsFound has a file that was asked for by its revision, so that the cache has no main.
func TestTheOnlySnapshotOfHuggingFacesCacheIsFound(t *testing.T) {
	const repo = ".cache/huggingface/hub/models--owner--model/"
	home(t, map[string]string{repo + "snapshots/abc/m-Q8_0.gguf": ""})
	if path, err := Find("owner/model"); err != nil || filepath.Base(path) != "m-Q8_0.gguf" {
		t.Errorf("%q, %v", path, err)
	}
	home(t, map[string]string{repo + "snapshots/abc/m-Q8_0.gguf": "", repo + "snapshots/abd/m-Q8_0.gguf": ""})
	if _, err := Find("owner/model"); !errors.Is(err, ErrNotFound) {
		t.Errorf("one of two snapshots was guessed: %v", err)
	}
}

func TestHuggingFacesCacheIsWhereItsProgramsHaveIt(t *testing.T) {
	const file = "/models--owner--model/"
	dir := home(t, map[string]string{
		"xdg/huggingface/hub" + file + "refs/main": "abc", "xdg/huggingface/hub" + file + "snapshots/abc/xdg-Q8_0.gguf": "",
		"old" + file + "refs/main": "abc", "old" + file + "snapshots/abc/old-Q8_0.gguf": "",
	})
	for variable, want := range map[string]string{"XDG_CACHE_HOME": "xdg", "HUGGINGFACE_HUB_CACHE": "old"} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, filepath.Join(dir, want))
			if path, err := Find("owner/model"); err != nil || filepath.Base(path) != want+"-Q8_0.gguf" {
				t.Errorf("%q, %v", path, err)
			}
		})
	}
}

func TestFoldersOfOtherFormatsSayWhatTheyAre(t *testing.T) {
	for file, want := range map[string]string{
		"model.safetensors": "convert_hf_to_gguf.py", "adapter_config.json": "adapter", "m.gguf": "name one of the GGUF files", "x": "is a folder",
	} {
		dir := home(t, map[string]string{"d/" + file: ""})
		if _, err := Find(filepath.Join(dir, "d")); !errors.Is(err, ErrNotGGUF) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
