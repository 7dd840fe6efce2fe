//go:build linux || darwin

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFewOpenFilesAreOneLine has commands open files where the system lets them open few.
func TestFewOpenFilesAreOneLine(t *testing.T) {
	m := reciter(t)
	for limit := 8; limit <= 32; limit += 3 {
		c := exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$1"`, limit), os.Args[0], asCommand)
		c.Env = append(os.Environ(), commandEnv("chat", "-m", m, "--device", "cpu", "-p", "Hi", "--single-turn", "--session", filepath.Join(t.TempDir(), "s")))
		out, err := c.CombinedOutput()
		refused := strings.Contains(string(out), "(ulimit -n): at least 12 are needed\n") && strings.Count(string(out), "\n") == 1
		if err == nil && strings.Contains(string(out), "recite") || err != nil && refused {
			continue
		}
		t.Errorf("%d files: %v\n%.2000s", limit, err, out)
	}
}

func TestPipesAndDevicesAreNoModels(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.gguf")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	adapter := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(adapter, "adapter_config.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: "not a regular file", "/dev/zero": "not a regular file", dir: "is a folder"} {
		status, _, errs := command(t, "", "inspect", path)
		if status != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %q", path, status, errs)
		}
	}
	for _, args := range [][]string{
		{"ask", "-f", pipe}, {"complete", "-f", pipe}, {"perplexity", "-f", pipe}, {"chat", "-f", pipe}, {"chat", "--session", pipe, "-p", "x"},
		{"ask", "--lora", pipe, "hi"}, {"render", "--messages", pipe}, {"render", "--messages", "/dev/null", "--template", pipe}, {"bench", "--compare", pipe, pipe},
		{"logits", "-p", "hi", "-o", pipe}, {"bench", "--trace", pipe}, {"ask", "-f", "/dev/zero"}, {"perplexity", "-f", "/dev/zero"}, {"render", "--messages", "/dev/zero"},
		{"chat", "--session", "/dev/zero", "-p", "x"}, {"ask", "--lora", "/dev/zero", "hi"},
		{"ask", "--lora", adapter, "hi"},
	} {
		if args[0] != "bench" {
			args = append(args, "-m", reciter(t))
		}
		if status, _, errs := command(t, "", args...); status != 1 || !strings.Contains(errs, "pipe") && !strings.Contains(errs, "device") && !strings.Contains(errs, "regular") {
			t.Errorf("%q: exit %d, %q", args, status, errs)
		}
	}
	// A pipe with a writer, as that of a shell's <(...), is read.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w.WriteString("hi")
	w.Close()
	if status, out, errs := command(t, "", "ask", "-m", reciter(t), "--device", "cpu", "--temp", "0", "-f", fmt.Sprintf("/dev/fd/%d", r.Fd())); status != 0 || out != " Hello, I recite.\n" {
		t.Errorf("a pipe: exit %d, %q, %q", status, out, errs)
	}
	// A history that is a pipe is left alone, and nothing waits for its other end.
	if h := openHistory(pipe); len(h.lines) > 0 {
		t.Errorf("%q", h.lines)
	}
}

func TestOutputsDestroyNothing(t *testing.T) {
	m := reciter(t)
	model, err := os.ReadFile(m)
	if err != nil {
		t.Fatal(err)
	}
	logits := func(out string, ids string) (int, string) {
		status, _, errs := command(t, "", "logits", "-m", m, "--device", "cpu", "--ids", ids, "-o", out)
		return status, errs
	}
	alias := filepath.Join(t.TempDir(), "alias")
	if err := os.Symlink(m, alias); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	inFolder := filepath.Join(folder, "adapter_model.safetensors")
	if err := os.WriteFile(inFolder, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"logits", "--ids", "1,2", "-o", m}, {"logits", "--ids", "1,2", "-o", alias}, {"bench", "--trace", m}, {"bench", "--trace", alias},
		{"logits", "--ids", "1,2", "--lora", folder, "-o", inFolder}, {"bench", "--lora", inFolder + ":0.5", "--trace", inFolder},
	} {
		if status, _, errs := command(t, "", append(args, "-m", m, "--device", "cpu")...); status != 2 || !strings.Contains(errs, "model's own file") {
			t.Errorf("%q: exit %d, %q", args, status, errs)
		}
	}
	if b, _ := os.ReadFile(inFolder); string(b) != "precious" {
		t.Error("the adapter was changed")
	}
	if b, _ := os.ReadFile(m); string(b) != string(model) {
		t.Fatal("the model was changed")
	}
	kept := write(t, "kept.npy", []byte("precious"))
	if status, errs := logits(kept, "99999"); status != 1 {
		t.Errorf("exit %d, %q", status, errs)
	}
	if b, _ := os.ReadFile(kept); string(b) != "precious" {
		t.Errorf("a failure left %q", b)
	}
	full := exec.Command("sh", "-c", `ulimit -f 1; exec "$0" "$1"`, os.Args[0], asCommand) // a file has no room for the array
	full.Env = append(os.Environ(), commandEnv("logits", "-m", m, "--device", "cpu", "--ids", "1,2,3,4,5,6,7,8", "-o", kept))
	if out, err := full.CombinedOutput(); err == nil || err.Error() != "exit status 1" || strings.Count(string(out), "\n") != 1 {
		t.Errorf("a full disk: %v, %q", err, out)
	}
	if b, _ := os.ReadFile(kept); string(b) != "precious" {
		t.Errorf("a full disk left %q", b)
	}
	if status, errs := logits(kept, "1,2"); status != 0 {
		t.Errorf("exit %d, %q", status, errs)
	}
	if b, _ := os.ReadFile(kept); !strings.HasPrefix(string(b), "\x93NUMPY") {
		t.Errorf("%.20q", b)
	}
	entries, _ := os.ReadDir(filepath.Dir(kept))
	if len(entries) != 1 {
		t.Errorf("files were left behind: %v", entries)
	}
	if status, errs := logits("/dev/null", "1,2"); status != 0 {
		t.Errorf("/dev/null: exit %d, %q", status, errs)
	}
	if st, err := os.Stat("/dev/null"); err != nil || st.Mode().IsRegular() {
		t.Fatal("/dev/null is gone")
	}
	if full := "/dev/full"; exists(full) {
		if status, errs := logits(full, "1,2"); status != 1 || !strings.Contains(errs, "no space") || !exists(full) {
			t.Errorf("%s: exit %d, %q", full, status, errs)
		}
	}
	// A link stays, and what it names is written, be it there or not.
	link, target := filepath.Join(t.TempDir(), "link"), filepath.Join(t.TempDir(), "target.npy")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		status, errs := logits(link, "1,2")
		if to, _ := os.Readlink(link); status != 0 || to != target || !exists(target) {
			t.Errorf("a link: exit %d, %q, it names %q", status, errs, to)
		}
	}
	for _, out := range []string{filepath.Dir(kept), "/nowhere/x.npy"} {
		if status, errs := logits(out, "1,2"); status != 1 || strings.Contains(errs, ".tmp") {
			t.Errorf("%s: exit %d, %q", out, status, errs)
		}
	}
	status, out, errs := command(t, "", "logits", "-m", m, "--device", "cpu", "--ids", "1", "-o", "-")
	if status != 0 || !strings.HasPrefix(out, "\x93NUMPY") {
		t.Errorf("stdout: exit %d, %.20q, %q", status, out, errs)
	}
}

// TestLostOutputIsAnError has every command print to a device that is always full.
func TestLostOutputIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	defer full.Close()
	m, onCPU := reciter(t), func(args ...string) []string { return append(args, "-m", reciter(t), "--device", "cpu") }
	lines := map[string][][]string{
		"": {{}, {"--help"}, {"--version"}}, "help": {{"help", "chat"}}, "version": {{"version"}, {"version", "--json"}},
		"completion": {{"completion", "bash"}, {"completion", "zsh"}, {"completion", "fish"}}, "__complete": {{"__complete", "as"}},
		"docs": {{"docs"}}, "devices": {{"devices"}, {"devices", "--json"}}, "list": {{"list", "--json", "--device", "cpu"}},
		"ptx": {{"ptx", "softmax"}}, "inspect": {{"inspect", m}, {"inspect", m, "--json"}, {"inspect", m, "--fit", "--device", "cpu"}},
		"tokenize": {{"tokenize", "-m", m, "hi"}, {"tokenize", "-m", m, "--json", "hi"}}, "render": {{"render", "--messages", "-"}},
		"ask":      {{"ask", "--help"}, onCPU("ask", "hi"), onCPU("ask", "--json", "hi")},
		"complete": {onCPU("complete", "-p", "hi"), onCPU("complete", "-p", "hi", "--json")}, "chat": {onCPU("chat", "-p", "hi"), onCPU("chat", "--commands")},
		"logits": {onCPU("logits", "--ids", "1", "-o", "-")}, "perplexity": {onCPU("perplexity", "-f", "-", "-c", "8")},
		"bench": {onCPU("bench", "-p", "4", "-n", "2", "-r", "1"), {"bench", "--device", "cpu", "--ops", "^Argmax/7b_", "-r", "1"}},
	}
	stdin := map[string]string{"render": `[{"role": "user", "content": "hi"}]`, "perplexity": strings.Repeat("I recite. ", 20), "chat": "/help\n"}
	if !emits() {
		lines["ptx"] = [][]string{{"ptx", "--help"}}
	}
	root, tried := rootCommand(), 0
	for _, c := range root.Commands() {
		if len(lines[c.Name()]) == 0 && c.Name() != "pull" { // whose path TestModelsArePulledListedAndNamed reads
			t.Errorf("no line of %s", c.Name())
		}
	}
	for name, all := range lines {
		for _, args := range all {
			var errs strings.Builder
			status := run(args, strings.NewReader(stdin[name]), full, &errs)
			tried++
			said := strings.Split(strings.TrimSpace(errs.String()), "\n")
			if last := said[len(said)-1]; status != 1 || !strings.HasPrefix(last, "vibrant: ") || !strings.Contains(last, "no space left") {
				t.Errorf("%q: exit %d, %q", args, status, errs.String())
			}
		}
	}
	t.Logf("%d command lines", tried)
}

// lostOutput runs a command whose stdout is a pipe without a reader, or what a shell makes of it, and returns how it ended and what it said.
func lostOutput(t *testing.T, redirect string) (status syscall.WaitStatus, said string) {
	t.Helper()
	p := exec.Command("sh", "-c", `exec "$0" "$1" `+redirect, os.Args[0], asCommand)
	p.Env = append(os.Environ(), commandEnv("version"))
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	defer writer.Close()
	var errs strings.Builder
	p.Stdout, p.Stderr = writer, &errs
	p.Run()
	return p.ProcessState.Sys().(syscall.WaitStatus), errs.String()
}

func TestAPipeThatNobodyReadsEndsACommandQuietly(t *testing.T) {
	if status, said := lostOutput(t, ""); status.Signal() != syscall.SIGPIPE || said != "" {
		t.Errorf("%#x, %q", status, said)
	}
}
