package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A launcher passes on what its chooser has said: that there is no kernel, or that the operation is composed of others. A switch over
// the chooser's kernels, or over a type that it has let through, ends so.
var passedOn = regexp.MustCompile(`^(default: |if \(.*(_NONE|_COMPOSED|linear_packed_bytes\(.*\) == 0|cut\.blocks == 0)\) )return VB_UNSUPPORTED;$`)

// refusals names the lines of kernel files that return VB_UNSUPPORTED for a reason of their own.
func refusals(files map[string]string) (all []string) {
	for path, text := range files {
		for at, line := range strings.Split(text, "\n") {
			code, _, _ := strings.Cut(line, "//")
			code = strings.TrimSpace(code)
			if strings.Contains(code, "VB_UNSUPPORTED") && !passedOn.MatchString(code) {
				all = append(all, fmt.Sprintf("%s:%d: %s", path, at+1, code))
			}
		}
	}
	return all
}

// TestLaunchersRefuseNothing holds the files below cuda/ to it. runtime/ is not of launchers, and absent.cu has those that no chooser names.
func TestLaunchersRefuseNothing(t *testing.T) {
	files := map[string]string{}
	err := filepath.WalkDir("../../../cuda", func(path string, entry os.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(path, "../../../"))
		if err != nil || entry.IsDir() || strings.HasPrefix(name, "cuda/runtime/") || name == "cuda/absent.cu" {
			return err
		}
		if ext := filepath.Ext(path); ext != ".cu" && ext != ".cuh" {
			return nil
		}
		text, err := os.ReadFile(path)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("%d files below cuda/", len(files))
	}
	for _, line := range refusals(files) {
		t.Errorf("%s\n\tthe chooser should say so (cuda/runtime/chooser.h)", line)
	}
	for _, bad := range []string{"    if (blocks > INT32_MAX) return VB_UNSUPPORTED;", "    return VB_UNSUPPORTED; // no room",
		"    if (status != VB_UNSUPPORTED) return status;"} {
		if len(refusals(map[string]string{"cuda/rows/bad.cu": bad})) != 1 {
			t.Errorf("allowed: %s", bad)
		}
	}
}
