package policy

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestDebugBuildsAreNotOptimized holds the flags of C that csrc states: they come after those of CGO_CFLAGS and would outdo the -O0 of
// make debug.
func TestDebugBuildsAreNotOptimized(t *testing.T) {
	for tags, want := range map[string]bool{"": true, "debug": false, "cuda": true, "cuda,debug": false} {
		list := exec.Command("go", "list", "-tags", tags, "-f", `{{join .CgoCFLAGS " "}}`, "./csrc")
		list.Dir = "../../.."
		list.Env = append(list.Environ(), "CGO_ENABLED=1")
		out, err := list.Output()
		if err != nil {
			t.Skipf("the sources are not listed here: %v", err)
		}
		flags := strings.Fields(string(out))
		if !slices.Contains(flags, "-std=c11") {
			t.Fatalf("tags %q: no flags of C in %q", tags, out)
		}
		if optimized := slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, "-O") }); optimized != want {
			t.Errorf("tags %q: flags %q, optimization %v", tags, flags, want)
		}
	}
}
