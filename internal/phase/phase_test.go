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

// TestAge holds the age of this process to be positive and no more than a test may take, and to grow as time does.
func TestAge(t *testing.T) {
	first, now := age(), time.Now()
	time.Sleep(20 * time.Millisecond)
	grown, passed := age()-first, time.Since(now)
	if first < 0 || first > time.Hour {
		t.Errorf("the process is %v old", first)
	}
	if difference := grown - passed; difference < -5*time.Millisecond || difference > 5*time.Millisecond {
		t.Errorf("grew by %v in %v", grown, passed)
	}
}
