package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const commandMD = "../../docs/command.md"

func TestListsOfTheDocsAreCurrent(t *testing.T) {
	text, err := os.ReadFile(commandMD)
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := renewLists(text, rootCommand())
	if err != nil {
		t.Fatal(err)
	}
	if string(renewed) != string(text) {
		t.Error("docs/command.md is older than the commands: go generate ./cmd/vibrant")
	}
}

func TestFactsOfTheEmbeddedModelAreCurrent(t *testing.T) {
	const path = "../../scripts/demo_model/command.json"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := factsJSON(rootCommand())
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != string(want) {
		t.Error(path + " is older than the commands: go generate ./cmd/vibrant, then make demo-model")
	}
}

func TestManPagesOfAllCommands(t *testing.T) {
	dir := t.TempDir()
	if status, _, errs := command(t, "", "docs", "man", dir); status != 0 {
		t.Fatal(errs)
	}
	for _, name := range []string{"vibrant", "vibrant-chat", "vibrant-ask", "vibrant-bench"} {
		if b, err := os.ReadFile(filepath.Join(dir, name+".1")); err != nil || !strings.Contains(string(b), ".SH OPTIONS") {
			t.Errorf("%s: %v, %.80q", name, err, b)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "vibrant.1")); !strings.Contains(string(b), `VIBRANT_CUDA_CAPABILITY`) || strings.Contains(string(b), ".md") {
		t.Errorf("the page of the command lacks the environment, or has links: %s", b)
	}
	if exists(filepath.Join(dir, "vibrant-docs.1")) {
		t.Error("hidden commands have pages")
	}
}

// TestJSONIsAsDocumented holds the keys that commands print against those that docs/command.md lists.
func TestJSONIsAsDocumented(t *testing.T) {
	text, err := os.ReadFile(commandMD)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.ReplaceAll(string(text), "\n  ", " ") // an item in one line
	documented := func(command string) []string {
		for line := range strings.Lines(lines) {
			if rest, ok := strings.CutPrefix(line, "- `"+command+" --json`"); ok {
				rest, _, _ = strings.Cut(rest, "; ")
				rest = regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(rest, "")
				var keys []string
				for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(rest, -1) {
					keys = append(keys, m[1])
				}
				return keys
			}
		}
		t.Fatalf("the docs do not mention %s --json", command)
		return nil
	}
	m := reciter(t)
	t.Setenv("VIBRANT_MODELS", filepath.Dir(m))
	t.Setenv("OLLAMA_MODELS", t.TempDir())
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	words := write(t, "t", []byte(strings.Repeat("some text ", 20)))
	for _, c := range []struct {
		args     []string
		optional []string // left out where they do not apply
	}{
		{args: []string{"ask", "-m", m, "--device", "cpu", "hi"}},
		{args: []string{"complete", "-m", m, "--device", "cpu", "-p", "x"}},
		{args: []string{"devices"}, optional: []string{"compute_capability", "features"}},
		{args: []string{"inspect", m}},
		{args: []string{"perplexity", "-m", m, "--device", "cpu", "-f", words, "--ctx", "64"}},
		{args: []string{"bench", "-m", m, "--device", "cpu", "-p", "8", "-n", "0", "-r", "1"}, optional: []string{"note"}},
		{args: []string{"list", "--device", "cpu"}, optional: []string{"problem", "architecture", "quantization"}},
		{args: []string{"version"}},
	} {
		status, out, errs := command(t, "", append(c.args, "--json")...)
		if status != 0 {
			t.Fatalf("%q: exit %d: %s", c.args, status, errs)
		}
		var list []map[string]any
		if !strings.HasPrefix(out, "[") {
			out = "[" + out + "]"
		}
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			t.Fatalf("%q: %v: %s", c.args, err, out)
		}
		optional := func(key string) bool { return slices.Contains(c.optional, key) }
		got := slices.DeleteFunc(slices.Sorted(maps.Keys(list[0])), optional)
		want := slices.DeleteFunc(documented(c.args[0]), optional)
		if !slices.Equal(got, want) {
			t.Errorf("%s --json has %v, documented are %v", c.args[0], got, want)
		}
	}
	var inspected struct{ Fit map[string]any }
	decode(t, &inspected, "", "inspect", m, "--fit", "--json", "--device", "cpu")
	_, nested, _ := strings.Cut(lines, "with `--fit` also `fit` (")
	nested, _, _ = strings.Cut(nested, ")")
	nested, _, _ = strings.Cut(nested, ";") // what is there of several devices
	if want := strings.Split(strings.ReplaceAll(nested, "`", ""), ", "); !slices.Equal(slices.Sorted(maps.Keys(inspected.Fit)), want) {
		t.Errorf("inspect --fit --json has %v, documented are %v", slices.Sorted(maps.Keys(inspected.Fit)), want)
	}
}
