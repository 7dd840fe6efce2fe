//go:build unix

package hub

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A disk that is full, for which a limit of a process stands here, ends the pull with an error; the next one goes on.
func TestPullGoesOnAfterAFullDisk(t *testing.T) {
	if dir := os.Getenv("VIBRANT_TEST_FULL_DISK"); dir != "" {
		o := oneFile().start(t)
		o.Dir = dir
		_, err := Pull(t.Context(), "owner/model", o)
		t.Log(err)
		return
	}
	dir := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	full := exec.Command("sh", "-c", `ulimit -f 512; exec "$0" -test.run "^$1\$" -test.v`, program, t.Name()) // blocks of 512 bytes or more
	full.Env = append(os.Environ(), "VIBRANT_TEST_FULL_DISK="+dir)
	out, err := full.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "what came before is kept") {
		t.Fatalf("%v: %s", err, out)
	}
	parts, _ := filepath.Glob(filepath.Join(dir, "owner", "model", "*.part"))
	if len(parts) != 1 {
		t.Fatalf("parts: %q", parts)
	}
	info, err := os.Stat(parts[0])
	if err != nil || info.Size() == 0 {
		t.Fatalf("%v, %v", info, err)
	}
	h := oneFile()
	o := h.start(t)
	o.Dir = dir
	first := int64(0)
	o.Progress = func(_ string, done, _ int64) {
		if first == 0 {
			first = done
		}
	}
	if _, err := Pull(t.Context(), "owner/model", o); err != nil || first <= info.Size() {
		t.Errorf("%v; %d bytes at first, %d were there", err, first, info.Size())
	}
}
