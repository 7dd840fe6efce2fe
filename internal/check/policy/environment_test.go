package policy

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// variablesRead matches a variable of the environment where a source reads it, or names it for others that do.
var variablesRead = regexp.MustCompile(`(?:getenv|Getenv|LookupEnv)\("(\w+)"\)|"((?:VIBRANT|CUDA)_[A-Z_]+)"`)

// TestVariablesOfTheEnvironmentAreDocumented holds the table of docs/command.md to the sources of the programs, both ways.
func TestVariablesOfTheEnvironmentAreDocumented(t *testing.T) {
	_, table, _ := strings.Cut(readPages(t)["docs/command.md"], "## Environment\n")
	table, _, _ = strings.Cut(table, "\n## ")
	read := map[string]bool{} // of each variable of the table, whether a source reads it
	for _, m := range regexp.MustCompile(`(?m)^\|([^|]*)\|`).FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(m[1], -1) {
			read[name[1]] = false
		}
	}
	for path, source := range written(t, root) {
		if strings.HasPrefix(path, "internal/check/") {
			continue
		}
		for _, m := range variablesRead.FindAllSubmatch(source, -1) {
			name := string(m[1]) + string(m[2])
			if _, documented := read[name]; !documented && name != "HOME" {
				t.Errorf("%s reads %s, which docs/command.md does not list", path, name)
			}
			read[name] = true
		}
	}
	if len(read) < 20 {
		t.Errorf("only %d variables were found", len(read))
	}
	for _, name := range slices.Sorted(maps.Keys(read)) {
		if !read[name] {
			t.Errorf("docs/command.md lists %s, which no source reads", name)
		}
	}
}
