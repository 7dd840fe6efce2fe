package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

func chatCommand() *cobra.Command {
	var m modelFlags
	var g generationFlags
	var system string
	c := &cobra.Command{
		Use:   "chat",
		Short: "Chat with a model; piped input is one turn a line",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withSession(cmd, &m, &g, system, func(model *vibrant.Model, session *vibrant.Session) error {
				chat := &chat{cmd: cmd, model: model, session: session, verbose: m.verbose}
				if isTerminal(cmd.InOrStdin()) && isTerminal(cmd.OutOrStdout()) {
					lines, err := newLineReader(terminalFile(cmd.InOrStdin()), terminalFile(cmd.OutOrStdout()), historyPath())
					if err != nil {
						return err
					}
					defer lines.close()
					return chat.interactive(lines)
				}
				return chat.piped()
			})
		},
	}
	m.add(c)
	g.add(c)
	c.Flags().StringVar(&system, "system", "", "system message")
	return c
}

// chat is one conversation of the command.
type chat struct {
	cmd     *cobra.Command
	model   *vibrant.Model
	session *vibrant.Session
	verbose bool
}

// answer sends one turn and prints the answer as it comes.
func (c *chat) answer(ctx context.Context, text string) error {
	if err := newTokenWriter(c.cmd.OutOrStdout()).writeAll(c.session.Send(ctx, text)); err != nil {
		return err
	}
	if c.session.Finish() == vibrant.FinishContext {
		fmt.Fprintf(c.cmd.ErrOrStderr(), "vibrant: the context of %d tokens is full; start with a larger --ctx, or /clear\n", c.model.Info().Context)
	}
	if c.verbose {
		reportStats(c.cmd, c.model, c.session)
	}
	return nil
}

// piped answers each line of stdin; empty lines are skipped.
func (c *chat) piped() error {
	r := bufio.NewReader(c.cmd.InOrStdin())
	for {
		line, err := r.ReadString('\n')
		if text := strings.TrimSpace(line); text != "" {
			if err := c.answer(c.cmd.Context(), text); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// interactive reads turns from a terminal. Ctrl-C stops an answer and Ctrl-D leaves; errors of a turn do not end the chat.
func (c *chat) interactive(lines lineReader) error {
	// Until here Ctrl-C ended the command; from here on it is for the answer alone.
	base := context.WithoutCancel(c.cmd.Context())
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	fmt.Fprintf(c.cmd.OutOrStdout(), "%s on %s. /help lists the commands.\n", oneLine(c.model.Info().Name), c.model.Info().Device.ID)
	for {
		text, err := readTurn(lines)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errLineInterrupted):
			fmt.Fprintln(c.cmd.OutOrStdout(), "Ctrl-D or /bye leaves.")
			continue
		case err != nil:
			return err
		}
		if strings.TrimSpace(text) == "" {
			continue
		}
		if strings.HasPrefix(text, "/") {
			leave, err := c.command(text)
			if err != nil {
				fmt.Fprintf(c.cmd.ErrOrStderr(), "vibrant: %s\n", errorLine(err))
			}
			if leave {
				return nil
			}
			continue
		}
		err = c.interruptible(base, interrupts, text)
		if err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintf(c.cmd.ErrOrStderr(), "vibrant: %s\n", errorLine(err))
			if errors.Is(err, vibrant.ErrDeviceLost) {
				return err
			}
		}
	}
}

// interruptible answers until an interrupt comes.
func (c *chat) interruptible(ctx context.Context, interrupts <-chan os.Signal, text string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case <-interrupts: // of earlier, when there was nothing to stop
	default:
	}
	go func() {
		select {
		case <-interrupts:
			cancel()
		case <-ctx.Done():
		}
	}()
	return c.answer(ctx, text)
}
