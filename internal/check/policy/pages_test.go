package policy

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/check/pages"
)

// root is the repository, as seen from this package.
const root = "../../.."

func readPages(t *testing.T) map[string]string {
	texts, err := pages.Read(root)
	if err != nil || texts["README.md"] == "" {
		t.Skipf("the sources are not here: %v", err)
	}
	return texts
}

func exists(path string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(path)))
	return err == nil
}

var (
	pageLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	pagePath = regexp.MustCompile("`((?:\\.ci|cmd|compat|csrc|cuda|demo|docs|dtype|examples|gguf|gpu|internal|ptx|scripts|tensor)/[\\w./-]+)`")
)

// anchor is what a heading is linked by.
func anchor(heading string) string {
	return strings.ReplaceAll(regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// deadEnds names the links and paths of the pages that lead nowhere.
func deadEnds(texts map[string]string) (all []string) {
	for _, page := range slices.Sorted(maps.Keys(texts)) {
		for _, m := range pageLink.FindAllStringSubmatch(texts[page], -1) {
			to, part, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			target := page
			if to != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(page), to))
			}
			var anchors []string
			for _, h := range heading.FindAllStringSubmatch(texts[target], -1) {
				anchors = append(anchors, anchor(h[1]))
			}
			if !exists(target) || part != "" && !slices.Contains(anchors, part) {
				all = append(all, fmt.Sprintf("%s links to %s, which is not there", page, m[1]))
			}
		}
		for _, m := range pagePath.FindAllStringSubmatch(texts[page], -1) {
			placeholder := regexp.MustCompile(`[A-Z]{4}`).MatchString(m[1]) // cuda/FAMILY/norm.cu
			if !placeholder && page != "docs/newcomer.md" && !exists(m[1]) {
				all = append(all, fmt.Sprintf("%s names %s, which is not there", page, m[1]))
			}
		}
	}
	return all
}

// TestPagesLeadSomewhere holds links, and paths between backquotes. docs/newcomer.md names files that its reader makes.
func TestPagesLeadSomewhere(t *testing.T) {
	for _, wrong := range deadEnds(readPages(t)) {
		t.Error(wrong)
	}
	for _, bad := range []string{"[a](b.md)", "[a](#b)", "`tensor/nothing.go`"} {
		if len(deadEnds(map[string]string{"README.md": "# A\n" + bad})) != 1 {
			t.Errorf("not found: %s", bad)
		}
	}
}

// mistakes names what is wrong in a command of a page: targets and variables of make, scripts and their flags, packages and tests of go.
func mistakes(c pages.Command, makefile string) (all []string) {
	wrong := func(format string, args ...any) {
		all = append(all, fmt.Sprintf("%s: %q: ", c.Page, strings.Join(c.Words, " "))+fmt.Sprintf(format, args...))
	}
	words := c.Words[1:]
	if c.Words[0] == "python3" && len(words) > 0 || strings.HasPrefix(c.Words[0], "scripts/") {
		script := c.Words[0]
		if script == "python3" {
			script, words = words[0], words[1:]
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(script)))
		if strings.HasPrefix(script, "-") {
			return nil // python3 -m
		}
		if err != nil && !exists(script) {
			wrong("there is no %s", script)
			return all
		}
		for _, word := range words {
			flag := regexp.MustCompile(`^--?[a-z][a-z0-9-]*`).FindString(word)
			if flag != "" && err == nil && !strings.Contains(string(text), `"`+flag+`"`) && !strings.Contains(string(text), flag+")") {
				wrong("%s has no %s", script, flag)
			}
		}
	}
	switch c.Words[0] {
	case "make":
		for _, word := range words {
			name, _, variable := strings.Cut(word, "=")
			switch {
			case variable && !strings.Contains(makefile, name) && !strings.HasPrefix(name, "EMULATOR_"): // those the emulator reads
				wrong("the Makefile does not read %s", name)
			case !variable && regexp.MustCompile(`^[a-z][a-z/.-]*$`).MatchString(word) &&
				!regexp.MustCompile(`(?m)^([\w /.-]* )?`+regexp.QuoteMeta(word)+`:`).MatchString(makefile):
				wrong("the Makefile has no target %s", word)
			}
		}
	case "go":
		run := ""
		for i, word := range words {
			if word == "-run" && i+1 < len(words) {
				run = words[i+1]
			}
			at := strings.TrimSuffix(strings.TrimSuffix(word, "..."), "/")
			if !strings.HasPrefix(word, "./") {
				continue
			}
			if !exists(at) {
				wrong("there is no %s", word)
			} else if run != "" && run != "^$" && !testsMatch(at, strings.HasSuffix(word, "..."), run) {
				wrong("no test of %s matches %s", word, run)
			}
		}
	}
	return all
}

// testsMatch says whether each alternative of a pattern for go test matches a test of a folder.
func testsMatch(folder string, below bool, pattern string) bool {
	var names []string
	filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() && !below && path != filepath.Join(root, folder) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") {
			text, _ := os.ReadFile(path)
			for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`).FindAllSubmatch(text, -1) {
				names = append(names, string(m[1]))
			}
		}
		return nil
	})
	first := regexp.MustCompile(`/.*`).ReplaceAllString(pattern, "")
	for _, alternative := range strings.Split(first, "|") {
		p, err := regexp.Compile(alternative)
		if err != nil || !slices.ContainsFunc(names, p.MatchString) {
			return false
		}
	}
	return true
}

// TestCommandsOfThePagesExist holds the commands that pages show, but for those of vibrant: package main of cmd/vibrant does that.
func TestCommandsOfThePagesExist(t *testing.T) {
	texts := readPages(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range slices.Sorted(maps.Keys(texts)) {
		for _, c := range pages.Commands(page, texts[page]) {
			found++
			for _, wrong := range mistakes(c, string(makefile)) {
				t.Error(wrong)
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d commands were found", found)
	}
	for _, bad := range []string{"make nothing", "make test NOTHING=1", "scripts/nothing.py", "python3 scripts/bench_all.py --nothing",
		"go test ./nothing", "go test -run TestNothing ./tensor", "go run ./scripts/nothing && echo"} {
		if c := pages.Commands("README.md", "    "+bad+" # a comment\n"); len(c) != 1 || len(mistakes(c[0], string(makefile))) != 1 {
			t.Errorf("%q: %v", bad, c)
		}
	}
}

// TestScriptsAreNamed holds that each script is named where somebody finds it: by a page, the Makefile, CI or another script, which may
// import it.
func TestScriptsAreNamed(t *testing.T) {
	var named strings.Builder
	for _, text := range readPages(t) {
		named.WriteString(text)
	}
	scripts, err := filepath.Glob(filepath.Join(root, "scripts", "*.*"))
	if err != nil || len(scripts) < 20 {
		t.Fatal(scripts, err)
	}
	for _, path := range append(scripts, filepath.Join(root, "Makefile"), filepath.Join(root, ".ci", "run")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		named.WriteString(strings.ReplaceAll(string(text), filepath.Base(path), "")) // others name it
	}
	for _, path := range scripts {
		module := strings.TrimSuffix(filepath.Base(path), ".py")
		imported := regexp.MustCompile(`(?m)^(import|from) ` + regexp.QuoteMeta(module) + `\b`).MatchString(named.String())
		if !strings.Contains(named.String(), filepath.Base(path)) && !imported {
			t.Errorf("nothing names scripts/%s", filepath.Base(path))
		}
	}
}
