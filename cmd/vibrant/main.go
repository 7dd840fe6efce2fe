// Command vibrant chats with GGUF language models on the GPU or the CPU, and measures and inspects them.
//
// Results go to stdout, everything else to stderr. A failure is one line "vibrant: ..." on stderr and exit status 1, or 2
// where the command line was wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
	_ "github.com/vibrant-ml/vibrant/demo" // the model of commands without -m
	"github.com/vibrant-ml/vibrant/internal/phase"
)

func main() {
	for _, s := range terminations {
		if !signal.Ignored(s) { // as nohup has it
			signal.Notify(deadly, s)
		}
	}
	go func() { die(<-deadly) }()
	phase.Done("command begun")
	var stdout io.Writer = os.Stdout
	if stdoutWasClosed() {
		stdout = closedStdout{}
	}
	status := run(os.Args[1:], os.Stdin, stdout, os.Stderr)
	phase.Done("command ended")
	os.Exit(status)
}

// run executes one command line and returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) (status int) {
	// Reading a mapped model file that somebody truncates meanwhile faults; this makes it a panic, and so a message.
	debug.SetPanicOnFault(true)
	if err := checkOpenFiles(); err != nil {
		return report(stderr, err)
	}
	ctx, stop := withInterrupts(context.Background())
	defer stop()
	ctx = withStopper(ctx)
	defer func() {
		if p := recover(); p != nil {
			status = report(stderr, fmt.Errorf("internal error: %v", p))
		}
	}()
	root := rootCommand()
	args, err := translate(root, args)
	if err != nil {
		return report(stderr, err)
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	out := &resultWriter{Writer: onScreen(stdout)}
	root.SetOut(out)
	root.SetErr(onScreen(stderr))
	if err = root.ExecuteContext(ctx); err == nil {
		err = out.lost()
	}
	return report(stderr, lost(ctx, err))
}

// usageError marks a mistake on the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// report prints an error in one line and returns the exit status that it means.
func report(stderr io.Writer, err error) int {
	if err == nil || err == errFollowed {
		return 0
	}
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(stderr, "vibrant: interrupted")
		return 130 // 128 + SIGINT, as shells report it
	}
	fmt.Fprintln(stderr, "vibrant: "+errorLine(err))
	if usage := (usageError{}); errors.As(err, &usage) || errors.Is(err, vibrant.ErrUnknownDevice) || errors.Is(err, vibrant.ErrModelReference) {
		return 2
	}
	return 1
}

// errorLine returns an error's text as one line of bounded length, whatever names of files and keys are in it.
func errorLine(err error) string {
	words := strings.Fields(err.Error())
	for i, w := range words {
		words[i] = shorten(oneLine(w), 200)
	}
	return shorten(strings.Join(words, " "), 600)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "vibrant [FILE] | vibrant COMMAND",
		Short:         "Chat with GGUF language models on the GPU or the CPU",
		Version:       vibrant.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetVersionTemplate("vibrant {{.Version}}\n")
	root.SetGlobalNormalizationFunc(normalize)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(chatCommand(), askCommand(), completeCommand(), devicesCommand(), ptxCommand(), listCommand(), pullCommand(), inspectCommand(), tokenizeCommand(),
		renderCommand(), logitsCommand(), perplexityCommand(), benchCommand(), versionCommand(), docsCommand())
	for _, c := range root.Commands() {
		if check := c.Args; check != nil {
			c.Args = func(cmd *cobra.Command, args []string) error {
				err := check(cmd, args)
				if err == nil {
					return nil
				}
				if usage := (usageError{}); len(args) == 0 && errors.As(err, &usage) {
					return err
				}
				if len(args) == 0 {
					return usagef("%s: a word is missing: want vibrant %s", cmd.Name(), cmd.Use)
				}
				return usagef("%s: %q is one word too many: want vibrant %s", cmd.Name(), args[len(args)-1], cmd.Use)
			}
		}
	}
	return root
}
