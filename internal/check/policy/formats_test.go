package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// formatsOf returns the formats that the first column of a table names, sorted. The table begins with the given head.
func formatsOf(page, head string) (all []string) {
	_, table, _ := strings.Cut(page, "\n"+head)
	table, _, _ = strings.Cut(table, "\n\n")
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]*) \|`).FindAllStringSubmatch(table, -1) {
		all = append(all, regexp.MustCompile(`\b(?:I?T?Q\d\w*|MXFP4|NVFP4|B?F16|F32)\b`).FindAllString(m[1], -1)...)
	}
	slices.Sort(all)
	return all
}

// TestPagesListEveryFormat holds the table of formats, and their number in README, to the types of vibrant.h.
func TestPagesListEveryFormat(t *testing.T) {
	texts := readPages(t)
	header, err := os.ReadFile(filepath.Join(root, "csrc", "vibrant.h"))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string // formats of more than one element a block
	for _, m := range regexp.MustCompile(`(?m)^    VB_(\w+) = \d+,? +/\* (\d+) elements in`).FindAllStringSubmatch(string(header), -1) {
		blocks = append(blocks, m[1])
	}
	all := slices.Sorted(slices.Values(append([]string{"BF16", "F16", "F32"}, blocks...)))
	if got := formatsOf(texts["docs/models.md"], "| format |"); !slices.Equal(got, all) {
		t.Errorf("docs/models.md has %v, vibrant.h %v", got, all)
	}
	if number := fmt.Sprintf("[%d formats]", len(all)); !strings.Contains(texts["README.md"], number) {
		t.Errorf("README.md lacks %q", number)
	}
}
