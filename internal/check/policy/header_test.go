package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestStructsOfArgumentsBeginWithTheirSize holds the header to its promise that fields can be added to arguments.
func TestStructsOfArgumentsBeginWithTheirSize(t *testing.T) {
	header, err := os.ReadFile(filepath.Join("..", "..", "..", "csrc", "vibrant.h"))
	if err != nil {
		t.Skipf("the sources are not here: %v", err)
	}
	fixed := []string{
		"vb_view", "vb_step", "vb_weight", // parts of other structs, or an array's elements
		"vb_device_info", "vb_ptx_launch_size", // results
	}
	structs := regexp.MustCompile(`(?m)^typedef struct (\w+) \{\n(.*)`).FindAllSubmatch(header, -1)
	if len(structs) < 30 {
		t.Fatalf("only %d structs were found in vibrant.h", len(structs))
	}
	for _, s := range structs {
		name, first := string(s[1]), string(s[2])
		if slices.Contains(fixed, name) == (first == "    size_t size;") {
			t.Errorf("%s begins with %q: arguments begin with their size, other structs have none", name, first)
		}
	}
}
