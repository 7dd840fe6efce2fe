package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

func chatCommand() *cobra.Command {
	var m modelFlags
	var g generationFlags
	var in inputFlags
	var conversation conversationFlags
	var once, commands bool
	c := &cobra.Command{
		Use:   "chat [FILE]",
		Short: "Chat with a model; piped input is one turn a line",
		Example: "  vibrant chat -m qwen2.5-3b-instruct-q4_k_m.gguf\n" +
			"  vibrant chat llama3.2:1b --device cuda --ctx 8192\n" +
			"  vibrant chat -m model.gguf --session notes.json --system \"Answer briefly.\"",
		Args: cobra.MaximumNArgs(1),

		ValidArgsFunction: completeModels,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.modelArgument(args); err != nil {
				return err
			}
			first, err := in.read(cmd, nil)
			if err != nil {
				return err
			}
			chat := &chat{cmd: cmd, flags: &m, verbose: m.verbose, once: once, first: first, file: conversation.file}
			if err := chat.begin(&g, &conversation); err != nil {
				return err
			}
			if isTerminal(cmd.InOrStdin()) && isTerminal(cmd.OutOrStdout()) {
				lines, err := newLineReader(terminalFile(cmd.InOrStdin()), terminalFile(cmd.OutOrStdout()))
				if err != nil {
					return chat.end(err)
				}
				defer lines.close()
				return chat.end(chat.interactive(lines))
			}
			return chat.end(chat.piped(commands))
		},
	}
	c.Flags().BoolVar(&once, "single-turn", false, "leave after one answer")
	m.add(c)
	m.addRanks(c)
	g.add(c)
	in.add(c)
	conversation.add(c)
	c.Flags().BoolVar(&commands, "commands", false, `obey / commands and """ in piped input too`)
	m.addForeign(c.Flags())
	return c
}

// conversationFlags say how a conversation begins and what becomes of it.
type conversationFlags struct {
	system, file, full string
}

func (f *conversationFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.system, "system", "", "system message")
	c.Flags().StringVar(&f.file, "session", "", "file that keeps the conversation: read if it is there, written after each answer")
	c.Flags().StringVar(&f.full, "context-full", string(vibrant.ContextDrop), "when the context is full: drop the oldest turns, or stop")
	complete(c, "context-full", func() []string { return []string{"drop", "stop"} })
}

// chat is one conversation of the command.
type chat struct {
	cmd     *cobra.Command
	flags   *modelFlags
	model   *vibrant.Model
	session *vibrant.Session
	verbose bool
	once    bool   // leave after an answer
	first   string // message that was given on the command line
	file    string // of --session
	lines   terminalReader
	editing bool // the next line takes the place of the newest question

	progress *progress
}

// begin opens the model and the conversation.
func (c *chat) begin(g *generationFlags, f *conversationFlags) error {
	generation, err := g.generation()
	if err != nil {
		return err
	}
	full, err := vibrant.ParseContextFull(f.full)
	if err != nil {
		return usageError{err}
	}
	saved := &savedConversation{}
	if f.file != "" {
		if saved, err = loadConversation(f.file); errors.Is(err, os.ErrNotExist) {
			_, err = os.Stat(filepath.Dir(f.file)) // where the first answer is to be written
		}
		if err != nil {
			return fmt.Errorf("--session: %w", err)
		}
	}
	if f.system != "" || saved == nil {
		saved = &savedConversation{System: f.system, Messages: saved.messages()}
	}
	if err := c.open(generation, full, saved); err != nil {
		return err
	}
	if f.file != "" {
		if err := c.loadCache(f.file); err != nil {
			c.close()
			return err
		}
	}
	return nil
}

// end writes the cache of --session, which costs too much to be written after each answer, and closes all.
func (c *chat) end(err error) error {
	if c.file != "" && c.session != nil && err == nil && c.session.Stats().ContextUsed > 0 {
		err = c.saveCache(c.file)
	}
	c.close()
	return err
}

// open opens the model as the flags say, and a session that goes on with a conversation.
func (c *chat) open(g vibrant.Generation, full vibrant.ContextFull, saved *savedConversation) (err error) {
	if c.model, err = c.flags.open(c.cmd); err != nil {
		return err
	}
	c.progress = newProgress(c.cmd.ErrOrStderr())
	c.session, err = c.model.NewSession(vibrant.WithSystem(saved.System), vibrant.WithGeneration(g), vibrant.WithContextFull(full),
		vibrant.WithPromptProgress(c.progress.prompt()))
	if err == nil {
		err = c.session.SetHistory(saved.Messages)
	}
	if err != nil {
		c.close()
	}
	return err
}

func (c *chat) close() {
	if c.session != nil {
		c.session.Close()
	}
	if c.model != nil {
		c.model.Close()
	}
}

// setContext opens the model again with another context. The conversation goes on.
func (c *chat) setContext(tokens int) error {
	if tokens < 1 {
		return fmt.Errorf("num_ctx is %d, want 1 or more", tokens)
	}
	if c.flags.ranks.config != nil { // which end when the model closes
		return errors.New("num_ctx cannot change while several processes compute the model: start them with another -c")
	}
	saved := &savedConversation{System: c.session.System(), Messages: c.session.History()}
	generation, full, before := c.session.Generation(), c.session.ContextFull(), c.model.Info().Context
	c.close() // two models at a time might not fit
	c.flags.context = tokens
	err := c.open(generation, full, saved)
	if err != nil {
		c.flags.context = before
		if again := c.open(generation, full, saved); again != nil {
			return &lostModel{errors.Join(err, again)}
		}
	}
	return err
}

// lostModel says that a chat has no model any more.
type lostModel struct{ error }

// answer sends one turn and prints the answer as it comes.
func (c *chat) answer(ctx context.Context, text string) error {
	out := newTokenWriter(c.cmd.OutOrStdout())
	out.first = func() {
		if n := c.session.Dropped(); n > 0 {
			fmt.Fprintf(c.cmd.ErrOrStderr(), "vibrant: the context of %d tokens is full: the oldest %d messages left the conversation\n", c.model.Info().Context, n)
		}
	}
	err := out.writeAll(c.session.Send(ctx, text))
	c.progress.done()
	if shown := out.text.String(); c.lines != nil && errors.Is(err, context.Canceled) && (shown == "" || strings.HasSuffix(shown, "\n")) {
		fmt.Fprintln(c.cmd.OutOrStdout()) // behind the ^C that the terminal shows
	}
	if errors.Is(err, vibrant.ErrContextFull) {
		return fmt.Errorf("%w; /clear forgets the conversation, a larger -c (/set num_ctx) holds more", err)
	}
	if err != nil {
		return err
	}
	reportCut(c.cmd, c.model, c.session, "/clear forgets the conversation, a larger -c (/set num_ctx) holds more")
	if c.file != "" {
		if err := c.save(c.file); err != nil {
			return err
		}
	}
	if c.verbose {
		reportStats(c.cmd, c.model, c.session)
	}
	return nil
}

// piped answers each line of stdin, or each message and command where these are obeyed. Empty lines are skipped.
func (c *chat) piped(commands bool) error {
	if c.first != "" {
		if err := c.answer(c.cmd.Context(), c.first); err != nil || c.once {
			return err
		}
	}
	lines := newPipedReader(c.cmd.Context(), c.cmd.InOrStdin())
	told := commands
	for {
		var text string
		var err error
		if commands {
			text, err = readTurn(lines)
		} else {
			text, err = lines.line("")
			text = strings.TrimSpace(text)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if !told && (strings.HasPrefix(text, "/") || strings.HasPrefix(text, fence)) {
			told = true
			fmt.Fprintf(c.cmd.ErrOrStderr(), "vibrant: note: %s is taken as text; --commands has / commands and %s obeyed\n", shorten(oneLine(strings.Fields(text)[0]), 40), fence)
		}
		switch {
		case text == "":
		case commands && isCommand(text):
			if leave, err := c.command(c.cmd.Context(), text); leave || err != nil {
				return err
			}
		default:
			if err := c.answer(c.cmd.Context(), text); err != nil || c.once {
				return err
			}
		}
	}
}

// reactionTime is how soon after the first prompt nobody interrupts because of it.
const reactionTime = 200 * time.Millisecond

// interactive reads turns from a terminal. Ctrl-C stops an answer and Ctrl-D leaves; errors of a turn do not end the chat.
func (c *chat) interactive(lines terminalReader) error {
	fmt.Fprintln(c.cmd.OutOrStdout(), banner(c.model.Info(), c.flags.model == ""))
	if c.first == "" {
		lines.begin()
	}
	// Until the first prompt Ctrl-C ends the command; from then on it is for the answer alone.
	var begun atomic.Bool // something was read
	start := time.Now()
	early := func() bool { return !begun.Load() && time.Since(start) < reactionTime }
	interrupts := make(chan struct{}, 1)
	giveBack, err := takeInterrupts(c.cmd.Context(), func() {
		if early() { // it comes late from before the prompt, which waits already
			endBy(os.Interrupt)
			return
		}
		select {
		case interrupts <- struct{}{}:
		default:
		}
	})
	defer giveBack()
	if err != nil {
		return err
	}
	base := context.WithoutCancel(c.cmd.Context())
	c.lines = lines
	for {
		text := c.first
		c.first = ""
		var err error
		if text == "" {
			text, err = readTurn(lines)
		}
		editing := c.editing
		c.editing = false
		if errors.Is(err, errLineInterrupted) && early() {
			return context.Canceled
		}
		begun.Store(true)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
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
		leave := false
		err = interruptible(base, interrupts, func(ctx context.Context) (err error) {
			if isCommand(text) {
				leave, err = c.command(ctx, text)
				return err
			}
			if editing {
				return c.askAgain(ctx, true, text)
			}
			leave = c.once
			return c.answer(ctx, text)
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintf(c.cmd.ErrOrStderr(), "vibrant: %s\n", errorLine(err))
			if lost := (*lostModel)(nil); errors.Is(err, vibrant.ErrDeviceLost) || errors.As(err, &lost) {
				return err
			}
		}
		if leave {
			return nil
		}
	}
}

// banner says what one chats with.
func banner(info vibrant.Info, embedded bool) string {
	if embedded {
		return fmt.Sprintf("Vibrant demo (%.0fM parameters, knows Vibrant and arithmetic; -m FILE for a real model) on %s. /help lists the commands.",
			float64(info.Parameters)/1e6, info.Device.ID)
	}
	return fmt.Sprintf("%s on %s. /help lists the commands.", oneLine(info.Name), info.Device.ID)
}

// interruptible runs f until an interrupt comes.
func interruptible(ctx context.Context, interrupts <-chan struct{}, f func(context.Context) error) error {
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
	return f(ctx)
}
