package policy

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cudaRules states which folders below cuda/ the files of each folder may include, besides their own folder and headers of csrc. A name
// with a dot is one header, which the folder may include where the rest of that header's folder is not for it. arch has what a GPU can
// do, runtime what every kernel file needs, and the families above them share pieces in one direction.
const cudaRules = `
runtime         < arch/unaligned.cuh, collective/exchange.cuh
arch            < runtime
rows            < runtime, arch, linear/linear.cuh, linear/quant.cuh, linear/packed/packed.cuh
strided         < runtime, rows
gemm            < runtime, arch
attention       < runtime, arch, gemm/tf32_parts.cuh, linear/linear.cuh
linear          < runtime, arch, gemm/choose.h, linear/packed/formats.h, attention/attention.cuh
linear/stored   < runtime, arch, linear, gemm
linear/packed   < runtime, arch, linear, rows/cache_slot.cuh, rows/choose.h, collective/choose.h, collective/exchange.cuh, collective/rounded.cuh
adapter         < runtime, arch, gemm/sm90_product.cuh
moe             < runtime, arch, rows, linear, linear/stored, linear/packed
collective      < runtime, linear/linear.cuh, linear/packed/half_rows.cuh
delta           < runtime
ternary         < runtime, arch
`

var includeLine = regexp.MustCompile(`(?m)^#\s*include "([^"]+)"`)

// cudaIncludes reads which files below cuda/ each file there includes, by their paths from cuda/.
func cudaIncludes(root string) (map[string][]string, error) {
	includes := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !slices.Contains([]string{".h", ".cu", ".cuh"}, filepath.Ext(name)) || strings.HasSuffix(name, "_test.h") {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		from := filepath.ToSlash(rel)
		includes[from] = []string{}
		for _, match := range includeLine.FindAllStringSubmatch(string(text), -1) {
			for _, to := range []string{match[1], path.Join(path.Dir(from), match[1])} {
				if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(to))); err == nil {
					includes[from] = append(includes[from], to)
					break
				}
			}
		}
		return nil
	})
	return includes, err
}

// cudaViolations names the includes that cudaRules do not allow, and the headers that include themselves by way of others.
func cudaViolations(includes map[string][]string) (all []string) {
	allowed := map[string][]string{}
	for line := range strings.Lines(cudaRules) {
		if from, to, ok := strings.Cut(line, "<"); ok {
			for _, name := range strings.Split(to, ",") {
				allowed[strings.TrimSpace(from)] = append(allowed[strings.TrimSpace(from)], strings.TrimSpace(name))
			}
		}
	}
	var circle func(from string, chain []string) []string
	done := map[string]bool{}
	circle = func(from string, chain []string) []string {
		if at := slices.Index(chain, from); at >= 0 {
			return append(slices.Clone(chain[at:]), from)
		}
		if done[from] {
			return nil
		}
		for _, to := range includes[from] {
			if found := circle(to, append(slices.Clone(chain), from)); found != nil {
				return found
			}
		}
		done[from] = true
		return nil
	}
	files := []string{}
	for from := range includes {
		files = append(files, from)
	}
	slices.Sort(files)
	for _, from := range files {
		folder := path.Dir(from)
		if _, known := allowed[folder]; !known && folder != "." {
			all = append(all, from+": no rule says what "+folder+" may include")
			continue
		}
		for _, to := range includes[from] {
			if of := path.Dir(to); folder != "." && of != folder && !slices.Contains(allowed[folder], of) && !slices.Contains(allowed[folder], to) {
				all = append(all, from+" may not include "+to)
			}
		}
		if found := circle(from, nil); found != nil {
			all = append(all, "headers include each other: "+strings.Join(found, " -> "))
			break
		}
	}
	return all
}

// TestCUDAIncludesGoOneWay holds the folders of cuda/ to cudaRules. Tests of choosers are free.
func TestCUDAIncludesGoOneWay(t *testing.T) {
	includes, err := cudaIncludes("../../../cuda")
	if err != nil {
		t.Skipf("the sources are not here: %v", err)
	}
	if len(includes["gemm/matmul.cu"]) == 0 || len(includes) < 100 {
		t.Fatalf("%d files, and gemm/matmul.cu includes %v", len(includes), includes["gemm/matmul.cu"])
	}
	for _, v := range cudaViolations(includes) {
		t.Error(v)
	}
	for _, bad := range []map[string][]string{
		{"arch/mma.cuh": {"gemm/matmul.cuh"}},
		{"gemm/matmul.cu": {"linear/linear.cuh"}},
		{"rows/norm.cu": {"linear/packed/many.cuh"}},
		{"newcomer/add.cu": {"runtime/common.cuh"}},
		{"gemm/a.cuh": {"gemm/b.cuh"}, "gemm/b.cuh": {"gemm/a.cuh"}},
	} {
		if v := cudaViolations(bad); len(v) != 1 {
			t.Errorf("%v: %v", bad, v)
		}
	}
}
