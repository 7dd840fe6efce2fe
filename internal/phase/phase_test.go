package phase

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestDone has processes of their own say a phase: with the word among others, and without it.
func TestDone(t *testing.T) {
	if os.Getenv("VIBRANT_TEST_PHASE") != "" {
		Done("test begun")
		return
	}
	for value, want := range map[string]bool{"start": true, "ptx,start": true, "": false, "starts": false, "kernels": false} {
		child := exec.Command(os.Args[0], "-test.run", "^TestDone$")
		child.Env = append(os.Environ(), "VIBRANT_TEST_PHASE=1", "VIBRANT_TRACE="+value)
		out, err := child.CombinedOutput()
		if said := strings.Contains(string(out), " ms: test begun\n"); err != nil || said != want {
			t.Errorf("VIBRANT_TRACE=%s: %v, %q", value, err, out)
		}
	}
}

// TestAge holds the age of this process to be positive and no more than a test may take, and to grow as time does: by no less than
// what passes between two calls, and no more than what passes from before the first to behind the second, however late they come.
func TestAge(t *testing.T) {
	before := time.Now()
	first := age()
	begun := time.Now()
	time.Sleep(20 * time.Millisecond)
	ended := time.Now()
	grown := age() - first
	most := time.Since(before)
	if first < 0 || first > time.Hour {
		t.Errorf("the process is %v old", first)
	}
	const clocks = time.Millisecond // that two clocks of a system differ by
	if least := ended.Sub(begun); grown < least-clocks || grown > most+clocks {
		t.Errorf("grew by %v in %v to %v", grown, least, most)
	}
}
