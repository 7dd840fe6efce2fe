package policy

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// written returns the texts, by path below root, of what is written by hand and ships: no generated files, no tests.
func written(t *testing.T, root string) map[string][]byte {
	texts := map[string][]byte{}
	for _, folder := range []string{"cmd", "csrc", "cuda", "internal", "tensor", "gpu", "gguf", "dtype", "ptx"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.Name() == "testdata" {
				return fs.SkipDir
			}
			base, test := filepath.Base(path), regexp.MustCompile(`_test\.\w+$`)
			if d.IsDir() || test.MatchString(base) || !regexp.MustCompile(`\.(c|h|cu|cuh|go|cpp)$`).MatchString(base) {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if head, _, _ := bytes.Cut(text, []byte("\n")); !bytes.Contains(head, []byte("DO NOT EDIT")) {
				relative, _ := filepath.Rel(root, path)
				texts[filepath.ToSlash(relative)] = text
			}
			return nil
		})
		if err != nil {
			t.Skipf("the sources are not here: %v", err)
		}
	}
	return texts
}

// steps returns the numbered steps of a page and its whole text.
func steps(t *testing.T, root, page string) (numbered []string, text string) {
	data, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Skipf("the sources are not here: %v", err)
	}
	return regexp.MustCompile(`(?m)^\d+\. `).FindAllString(string(data), -1), string(data)
}

// lists are the files that have words of three quarters of the groups: whoever adds a group has to look into each of them.
func lists(texts map[string][]byte, groups [][]string) (paths []string) {
	for path, text := range texts {
		words := map[string]bool{}
		for word := range bytes.FieldsFuncSeq(text, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			words[string(word)] = true
		}
		named := 0
		for _, group := range groups {
			if slices.ContainsFunc(group, func(word string) bool { return words[word] }) {
				named++
			}
		}
		if named*4 >= len(groups)*3 {
			paths = append(paths, path)
		}
	}
	return paths
}

// operationNames returns the names of all operations in C, and the same names in Go.
func operationNames(t *testing.T, root string) (inC, inGo []string) {
	header, err := os.ReadFile(filepath.Join(root, "csrc", "operations.h"))
	if err != nil {
		t.Skipf("the sources are not here: %v", err)
	}
	catalogue, err := os.ReadFile(filepath.Join(root, "internal", "backend", "kernel", "operations.go"))
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+)\(.*\) .*error\)?$`).FindAllSubmatch(catalogue, -1) {
		methods[strings.ToLower(string(m[1]))] = string(m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^    X\((\w+)\)`).FindAllSubmatch(header, -1) {
		name := string(m[1])
		if method := methods[strings.ReplaceAll(strings.TrimSuffix(name, "_batched"), "_", "")]; method != "" {
			inC, inGo = append(inC, name), append(inGo, method)
		}
	}
	if len(inC) < 54 || len(inC) != len(methods) {
		t.Fatalf("%d operations in C, %d in Go", len(inC), len(methods))
	}
	return inC, inGo
}

// TestAnOperationIsWrittenInSevenFiles holds docs/adding-an-op.md to its number. An operation's contract, its checks, its kernels for
// GPUs, for CPUs and in Go have one file each; its public operation and its row of the table are the others. No file beside the header
// lists operations, so that no eighth file has to be told of a new operation.
func TestAnOperationIsWrittenInSevenFiles(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	texts := written(t, root)
	if numbered, _ := steps(t, root, "adding-an-op.md"); len(numbered) > 7 {
		t.Errorf("docs/adding-an-op.md names %d files, at most 7 are promised", len(numbered))
	}
	defined := map[string][]string{} // the files, by the name in C or in Go
	definition := regexp.MustCompile(`(?m)^vb_status vb_(?:cpu_|cuda_)?(\w+)\(|^func \(\w+ \*?stream\) (\w+)\(`)
	for path, text := range texts {
		for _, m := range definition.FindAllSubmatch(text, -1) {
			name := string(m[1]) + string(m[2])
			if !slices.Contains(defined[name], path) {
				defined[name] = append(defined[name], path)
			}
		}
	}
	more := map[string]int{
		"weight_pack": 2, // the fake device counts what it packs; absent.cu stands in for old compilers
		"copy":        4, // streams copy memory by methods of this name
	}
	inC, inGo := operationNames(t, root)
	var groups [][]string
	for i, name := range inC {
		groups = append(groups, []string{"vb_" + name, "vb_cpu_" + name, "vb_cuda_" + name, "vb_jit_" + name, inGo[i], inGo[i] + "Into"})
		files := append(defined[name], defined[inGo[i]]...)
		if len(files) < 3 || len(files) > 5+more[name] {
			t.Errorf("%s is declared or defined in %d files, 3 to 5 of the 7 are for that: %v", name, len(files), files)
		}
	}
	for _, path := range lists(texts, groups) {
		if path != "csrc/vibrant.h" {
			t.Errorf("%s names most operations: generate it from csrc/vibrant.h", path)
		}
	}
}

// TestAWeightFormatIsWrittenInSixFiles holds docs/adding-a-format.md to its number: a file that lists formats is one of its steps, or the
// page says what the file is for where a format needs none of it.
func TestAWeightFormatIsWrittenInSixFiles(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	texts := written(t, root)
	numbered, page := steps(t, root, "adding-a-format.md")
	if len(numbered) > 6 {
		t.Errorf("docs/adding-a-format.md names %d files, at most 6 are promised", len(numbered))
	}
	var groups [][]string
	for _, m := range regexp.MustCompile(`(?m)^    VB_(\w+) = \d+,? +/\* (\d+) elements in`).FindAllSubmatch(texts["csrc/vibrant.h"], -1) {
		name := string(m[1])
		block := "block_" + strings.ToLower(name)
		groups = append(groups, []string{name, "VB_" + name, block, "vb_" + block, strings.ReplaceAll(name, "_", "")})
	}
	if len(groups) < 25 {
		t.Fatalf("only %d block formats were found in vibrant.h", len(groups))
	}
	for _, path := range lists(texts, groups) {
		base := filepath.Base(path)
		if !strings.Contains(page, "`"+path+"`") && !strings.Contains(page, "`"+base+"`") && !strings.Contains(page, base+"`)") {
			t.Errorf("%s names most formats, and docs/adding-a-format.md does not name it", path)
		}
	}
}
