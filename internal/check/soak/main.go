// Soak runs the long forms of what the tests sample, one after the other, and prints a line of figures for each: what make soak runs.
//
//	go run ./internal/check/soak [-executions 1000000] [-draws 20000] [-limit 70m] [-only PATTERN]
//
// Executions is what each fuzz target gets, and how many round trips the tokenizers make. Limit bounds each line.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// soak is a test binary with its arguments, and what of its output is a figure.
type soak struct {
	name, pkg string
	fuzz      string // the target, "" for tests
	args      []string
	env       []string
	figures   string // of the last line that matches
}

func main() {
	executions := flag.Int("executions", 1_000_000, "executions of each fuzz target, and round trips of the tokenizers")
	draws := flag.Int("draws", 20_000, "random draws of operations a backend")
	limit := flag.Duration("limit", 70*time.Minute, "of each line")
	only := flag.String("only", "", "run the lines whose name matches")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	dir, err := os.MkdirTemp("", "soak")
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	defer os.RemoveAll(dir)
	fuzz := func(name, target, pkg string) soak {
		return soak{name: name, pkg: pkg, fuzz: target, figures: "execs: [0-9]*.*", args: []string{"-test.run", "^$", "-test.fuzz", "^" + target + "$",
			"-test.fuzztime", fmt.Sprint(*executions, "x"), "-test.fuzzminimizetime", "0s", "-test.fuzzcachedir", filepath.Join(dir, "found")}}
	}
	const language = "internal/language/"
	failed := false
	for _, s := range []soak{
		fuzz("GGUF", "FuzzParse", language+"gguf"),
		fuzz("templates", "FuzzTemplates", language+"chat/jinja"),
		fuzz("conversations", "FuzzConversations", language+"chat"),
		fuzz("texts", "FuzzEncode", language+"tokenizer"),
		fuzz("tokenizers", "FuzzTokenizer", language+"tokenizer"),
		fuzz("safetensors", "FuzzReader", "tensor/safetensors"),
		fuzz("indices", "FuzzIndex", "tensor/safetensors"),
		fuzz("npy", "FuzzRead", "tensor/npy"),
		fuzz("npz", "FuzzArchive", "tensor/npy"),
		fuzz("DLPack", "FuzzDLPack", "tensor"),
		fuzz("parts", "FuzzParts", language+"gguf"),
		fuzz("models", "FuzzModels", language+"engine"),
		fuzz("adapters", "FuzzAdapters", language+"engine"),
		fuzz("PEFT", "FuzzPEFT", language+"model"),
		fuzz("caches", "FuzzReadCache", "."),
		fuzz("greetings", "FuzzGreet", "internal/ranks"),
		fuzz("manifests", "FuzzList", language+"hub"),
		{name: "round trips", pkg: language + "tokenizer", args: []string{"-test.run", "RoundTrips", "-test.v", "-roundtrips", fmt.Sprint(*executions)}, figures: "[0-9]+ round trips"},
		{name: "draws", pkg: "tensor", args: []string{"-test.run", "RandomDraws", "-test.v"}, env: []string{fmt.Sprint("VIBRANT_DRAWS=", *draws)}, figures: "[0-9]+ draws: .*"},
		{name: "memory", pkg: "tensor", args: []string{"-test.run", "EveryCycle|DroppedTensors", "-test.v"}, figures: "[0-9,]+ (cycles|sums).*"},
		{name: "handles", pkg: "gpu", args: []string{"-test.run", "Reclaimed", "-test.v"}, figures: "[0-9]+ streams.*reclaimed"},
		{name: "loads", pkg: ".", args: []string{"-test.run", "AgainAndAgain", "-test.v"}, figures: "[0-9]+ loads: .*"},
		{name: "turns", pkg: ".", args: []string{"-test.run", "StaysFlat", "-test.v"}, figures: "[0-9]+ turns: .*"},
		{name: "chats", pkg: ".", args: []string{"-test.run", "TestChatsLeaveNothing/cpu", "-test.v", "-chats", "1h"}, figures: "[0-9]+ chats.*"},
		{name: "chats, fake GPU", pkg: ".", args: []string{"-test.run", "TestChatsLeaveNothing/fake", "-test.v", "-chats", "1h"}, figures: "[0-9]+ chats.*"},
	} {
		if pattern.MatchString(s.name) && ctx.Err() == nil {
			failed = s.run(ctx, dir, *limit) != nil || failed
		}
	}
	if failed || ctx.Err() != nil {
		os.RemoveAll(dir)
		os.Exit(1)
	}
}

// run prints the figures of one line, and the end of its output where it failed.
func (s soak) run(ctx context.Context, dir string, limit time.Duration) error {
	binary := filepath.Join(dir, strings.NewReplacer("/", "-", ".", "root").Replace(s.pkg)+s.fuzz+".test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "./"+s.pkg)
	if s.fuzz != "" {
		build.Args = append(build.Args[:3], append([]string{"-fuzz", s.fuzz}, build.Args[3:]...)...)
	}
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Printf("%-16s does not compile: %v\n%s", s.name, err, out)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append(s.args, "-test.timeout", "0")...)
	cmd.Dir, cmd.Env = s.pkg, append(os.Environ(), s.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // a fuzzer then ends its workers
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	err := cmd.Run()
	figure := "no figure"
	if all := regexp.MustCompile(s.figures).FindAllString(out.String(), -1); len(all) > 0 {
		figure = strings.TrimSpace(all[len(all)-1])
	}
	state := "ok"
	if ctx.Err() != nil {
		state, err = "cut", nil // what was done until the limit counts
	} else if err != nil {
		state = "FAILED"
		os.Stderr.Write(out.Bytes()[max(0, out.Len()-4000):])
	}
	fmt.Printf("%-16s %-6s %s; %.0f s%s\n", s.name, state, figure, time.Since(start).Seconds(), peak(cmd.ProcessState))
	return err
}
