package policy

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/environment"
)

// variablesRead matches a variable of the environment where a source reads it, or names it for others that do.
var variablesRead = regexp.MustCompile(`(?:getenv|Getenv|LookupEnv)\("(\w+)"\)|"((?:VIBRANT|CUDA)_[A-Z_]+)"`)

// TestVariablesOfTheEnvironmentAreListed holds the list of internal/environment to the sources of the programs, both ways, and its values to
// the sources in C that read them. The documents are made from the list (TestListsOfTheDocsAreCurrent).
func TestVariablesOfTheEnvironmentAreListed(t *testing.T) {
	read := map[string]bool{}       // of each variable of the list, whether a source reads it
	values := map[string][]string{} // its values that a source in C, or C++, names
	for _, v := range environment.All {
		for _, name := range v.Names {
			read[name] = false
			values[name] = v.Values
		}
	}
	sources := written(t, root)
	for path, source := range sources {
		if strings.HasPrefix(path, "internal/check/") || strings.HasPrefix(path, "internal/environment/") {
			continue
		}
		for _, m := range variablesRead.FindAllSubmatch(source, -1) {
			name := string(m[1]) + string(m[2])
			if _, listed := read[name]; !listed && name != "HOME" {
				t.Errorf("%s reads %s, which internal/environment does not list", path, name)
			}
			read[name] = true
			// A value that C compares stands there; trace.c looks for a word that its callers give it.
			if strings.HasPrefix(path, "csrc/") && strings.Contains(string(m[0]), "getenv") && path != "csrc/trace.c" {
				for _, value := range values[name] {
					if !bytes.Contains(source, []byte(`"`+value+`"`)) {
						t.Errorf("%s reads %s, and does not know its value %q", path, name, value)
					}
				}
			}
		}
		for _, m := range regexp.MustCompile(`vb_trace_asks\("(\w+)"\)`).FindAllSubmatch(source, -1) {
			if !slices.Contains(values["VIBRANT_TRACE"], string(m[1])) {
				t.Errorf("%s asks VIBRANT_TRACE for %q, which internal/environment does not list", path, m[1])
			}
		}
	}
	if len(read) < 20 || len(values["VIBRANT_TRACE"]) == 0 {
		t.Errorf("only %d variables were found", len(read))
	}
	for _, name := range slices.Sorted(maps.Keys(read)) {
		if !read[name] {
			t.Errorf("internal/environment lists %s, which no source reads", name)
		}
	}
}
