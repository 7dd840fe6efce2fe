package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
)

// TestForgedFilesAreOneLine has the command read files with forged counts, lengths, types and offsets, as those of published
// vulnerabilities of GGUF readers: every fifth word of the first 4 KiB is set to the greatest, to the greatest positive and to 0. A file
// that is refused costs less than 16 MiB and 100 ms (of a processor; the test allows a second), and says so in one line that names the file.
func TestForgedFilesAreOneLine(t *testing.T) {
	good := testmodel.Reciter("▁one", "▁two")
	path := write(t, "forged.gguf", good)
	refused, slowest, most := 0, time.Duration(0), uint64(0)
	for at := 4; at+8 <= min(len(good), 4096); at += 20 {
		for _, forged := range [][]byte{{255, 255, 255, 255, 255, 255, 255, 255}, {255, 255, 255, 255, 255, 255, 255, 127}, make([]byte, 8)} {
			b := bytes.Clone(good)
			copy(b[at:], forged)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := busy.Processor()
			status, _, errs := command(t, "", "inspect", path)
			took := busy.Processor() - start
			runtime.ReadMemStats(&after)
			if status == 0 { // what was forged was a text
				continue
			}
			refused++
			slowest, most = max(slowest, took), max(most, after.TotalAlloc-before.TotalAlloc)
			if status != 1 || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, path) || strings.Contains(errs, "internal error") {
				t.Fatalf("byte %d, % x: exit %d, %q", at, forged[7], status, errs)
			}
		}
	}
	what := fmt.Sprintf("%d forged files were refused, each within %v and %d KiB", refused, slowest.Round(time.Microsecond), most>>10)
	t.Log(what)
	if refused < 40 || slowest > time.Second || most > 16<<20 {
		t.Error(what)
	}
}
