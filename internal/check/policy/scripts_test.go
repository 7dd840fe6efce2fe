package policy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestScriptsPrintTheirHelpWithoutPyTorch has each script of Python print its help where neither PyTorch nor numpy is: modules of these
// names that fail when they are imported come before any that are installed. Modules that scripts share print nothing.
func TestScriptsPrintTheirHelpWithoutPyTorch(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	absent := t.TempDir()
	for _, name := range []string{"torch", "numpy"} {
		text := "raise ModuleNotFoundError(\"No module named '" + name + "'\", name='" + name + "')\n"
		if err := os.WriteFile(filepath.Join(absent, name+".py"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	scripts, err := filepath.Glob(filepath.Join(root, "scripts", "*.py"))
	if err != nil || len(scripts) < 20 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	run := func(script string, args ...string) (string, error) {
		command := exec.Command(python, append([]string{"-B", script}, args...)...)
		command.Env = append(os.Environ(), "PYTHONPATH="+absent)
		out, err := command.CombinedOutput()
		return string(out), err
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		out, err := run(script, "--help")
		if program := strings.HasPrefix(string(text), "#!"); err != nil || program != strings.HasPrefix(out, "usage: "+filepath.Base(script)) {
			t.Errorf("%s --help: %v: %.300s", script, err, out)
		}
	}
	out, err := run(filepath.Join(root, "scripts", "bench_quantize.py"), "absent.so", "absent.so")
	if err == nil || !strings.Contains(out, "absent.so") {
		t.Errorf("a library that is not there: %v: %.300s", err, out)
	}
	if out, err := run(filepath.Join(root, "scripts", "bench_dense.py")); err == nil || out != "bench_dense: torch is missing: python3 -m pip install torch\n" {
		t.Errorf("without PyTorch: %v: %.300s", err, out)
	}
}
