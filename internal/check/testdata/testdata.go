// Package testdata finds the golden data made by other engines, for tests only.
//
// The data is not part of the repository. It lies in the folder that the environment variable VIBRANT_TESTDATA names,
// or in shared/data beside the repository. A test that needs it is skipped where it is absent, and fails where the
// environment says CI=true, so that a missing fixture is never counted as a pass there.
package testdata

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Folder returns the folder of golden data, which may be absent.
func Folder() string {
	if dir := os.Getenv("VIBRANT_TESTDATA"); dir != "" {
		return dir
	}
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..", "..", "shared", "data")
}

// Dir returns the folder of golden data, or skips (fails, under CI) the test.
func Dir(t testing.TB) string {
	t.Helper()
	dir := Folder()
	if _, err := os.Stat(dir); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("golden data is absent: %v (set VIBRANT_TESTDATA)", err)
		}
		t.Skipf("golden data is absent: %v (set VIBRANT_TESTDATA)", err)
	}
	return dir
}

// Path returns the path of one golden file below Dir.
func Path(t testing.TB, elem ...string) string {
	t.Helper()
	return filepath.Join(append([]string{Dir(t)}, elem...)...)
}
