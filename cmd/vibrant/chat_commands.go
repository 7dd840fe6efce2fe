package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/vibrant-ml/vibrant"
)

type slashCommand struct{ name, help string }

// chatCommands are what a line that starts with a slash can say. Their names are Ollama's.
var chatCommands = []slashCommand{
	{"/help", "this list"},
	{"/clear", "forget the conversation"},
	{"/regenerate", "answer the newest question again"},
	{"/edit", "/edit TEXT asks TEXT instead of the newest question; /edit alone has it edited"},
	{"/copy", "copy the newest answer to the clipboard, where the terminal allows it"},
	{"/save", "/save FILE keeps the conversation"},
	{"/load", "/load FILE goes on with a kept one"},
	{"/set", "/set PARAMETER VALUE (temperature, top_k, num_ctx, ...), /set system TEXT, /set verbose, /set quiet"},
	{"/show", "/show info, parameters, system or history"},
	{"/bye", "leave"},
}

// isCommand reports whether a message is a command. Several lines that begin with a slash are none, as a comment or a path of pasted
// text, unless a command's name is in front.
func isCommand(text string) bool {
	if !strings.HasPrefix(text, "/") {
		return false
	}
	name, _, _ := strings.Cut(text, " ")
	return !strings.Contains(text, "\n") || slices.ContainsFunc(chatCommands, func(k slashCommand) bool { return k.name == name })
}

// command runs one of them and reports whether the chat shall end.
func (c *chat) command(ctx context.Context, line string) (leave bool, err error) {
	out := c.cmd.OutOrStdout()
	name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	rest = strings.TrimSpace(rest)
	switch name {
	case "/help", "/?":
		for _, k := range chatCommands {
			fmt.Fprintf(out, "  %-11s %s\n", k.name, k.help)
		}
		fmt.Fprintf(out, "  %-11s begins and ends a message of several lines\n", fence)
		fmt.Fprintln(out, "  Ctrl-C stops an answer, Ctrl-D leaves")
	case "/clear":
		if err := c.session.Reset(); err != nil {
			return false, err
		}
		fmt.Fprintln(out, "The conversation is forgotten.")
	case "/regenerate", "/edit":
		return false, c.askAgain(ctx, name == "/edit", rest)
	case "/copy":
		return false, c.copy()
	case "/save":
		rest = atHome(rest)
		if err = c.save(rest); err == nil {
			err = c.saveCache(rest)
		}
		if err == nil {
			fmt.Fprintf(out, "The conversation is in %s.\n", oneLine(rest))
		}
		return false, err
	case "/load":
		if err = c.load(atHome(rest)); err == nil {
			fmt.Fprintf(out, "The conversation of %d messages goes on.\n", len(c.session.History()))
		}
		return false, err
	case "/set":
		return false, c.set(rest)
	case "/show":
		return false, c.show(out, rest)
	case "/bye", "/exit", "/quit":
		return true, nil
	default:
		words := []string{"/exit", "/quit"}
		for _, k := range chatCommands {
			words = append(words, k.name)
		}
		if meant := nearest(name, words); meant != "" {
			return false, fmt.Errorf("unknown command %s: did you mean %s?", name, meant)
		}
		return false, fmt.Errorf("unknown command %s: /help lists them", name)
	}
	return false, nil
}

// askAgain answers the newest question again, or another instead of it.
func (c *chat) askAgain(ctx context.Context, edit bool, text string) error {
	question, restore, err := c.takeBack()
	if err != nil {
		return err
	}
	if edit && text == "" {
		restore() // until the edited one comes
		editor, ok := c.lines.(interface{ prefill(text string) })
		if !ok {
			return errors.New("/edit TEXT: this terminal cannot edit the question, give another")
		}
		editor.prefill(question)
		c.editing = true
		return nil
	}
	if edit {
		question = text
	}
	if err = c.answer(ctx, question); err != nil && !errors.Is(err, context.Canceled) {
		restore()
	}
	return err
}

// copy hands the newest answer to the terminal for its clipboard, by the control sequence OSC 52.
func (c *chat) copy() error {
	text, err := c.lastAnswer()
	if err != nil {
		return err
	}
	out := c.cmd.OutOrStdout()
	if !isTerminal(out) {
		return errors.New("/copy needs a terminal")
	}
	fmt.Fprintf(raw(out), "\x1b]52;c;%s\a", base64.StdEncoding.EncodeToString([]byte(strings.TrimSpace(text))))
	fmt.Fprintln(out, "The answer was handed to the terminal's clipboard.")
	return nil
}

// parameters maps the names of /set to the fields that they change.
var parameters = map[string]func(*vibrant.Generation) any{
	"temperature":       func(g *vibrant.Generation) any { return &g.Temperature },
	"top_k":             func(g *vibrant.Generation) any { return &g.TopK },
	"top_p":             func(g *vibrant.Generation) any { return &g.TopP },
	"min_p":             func(g *vibrant.Generation) any { return &g.MinP },
	"repeat_penalty":    func(g *vibrant.Generation) any { return &g.RepeatPenalty },
	"repeat_last_n":     func(g *vibrant.Generation) any { return &g.RepeatLastN },
	"presence_penalty":  func(g *vibrant.Generation) any { return &g.PresencePenalty },
	"frequency_penalty": func(g *vibrant.Generation) any { return &g.FrequencyPenalty },
	"num_predict":       func(g *vibrant.Generation) any { return &g.MaxTokens },
	"num_ctx":           nil, // of the model: see setContext
	"seed":              func(g *vibrant.Generation) any { return &g.Seed },
	"stop":              func(g *vibrant.Generation) any { return &g.Stop },
}

func (c *chat) set(args string) error {
	name, value, _ := strings.Cut(args, " ")
	if name == "parameter" { // as Ollama writes it
		name, value, _ = strings.Cut(strings.TrimSpace(value), " ")
	}
	value = strings.TrimSpace(value)
	switch name {
	case "":
		return fmt.Errorf("/set PARAMETER VALUE: the parameters are %s", strings.Join(parameterNames(), ", "))
	case "verbose", "quiet":
		c.verbose = name == "verbose"
		fmt.Fprintf(c.cmd.OutOrStdout(), "%s.\n", map[bool]string{true: "Speed and memory are reported after each answer", false: "Answers alone are shown"}[c.verbose])
		return nil
	case "system":
		c.session.SetSystem(strings.Trim(value, `"`))
		fmt.Fprintln(c.cmd.OutOrStdout(), "The system message is set.")
		return nil
	case "num_ctx", "ctx":
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("num_ctx: %q is no number for it", value)
		}
		if err := c.setContext(n); err != nil {
			return err
		}
		fmt.Fprintf(c.cmd.OutOrStdout(), "num_ctx is %d.\n", c.model.Info().Context)
		return nil
	case "temp":
		name = "temperature"
	}
	field, ok := parameters[name]
	if !ok {
		return fmt.Errorf("unknown parameter %q: the parameters are %s", name, strings.Join(parameterNames(), ", "))
	}
	g := c.session.Generation()
	var err error
	switch p := field(&g).(type) {
	case *float64:
		*p, err = strconv.ParseFloat(value, 64)
	case *int:
		*p, err = strconv.Atoi(value)
	case **uint64:
		*p, err = parseSeed(value)
	case *[]string:
		*p = nil
		if value != "" {
			*p = []string{strings.Trim(value, `"`)}
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %q is no number for it", name, value)
	}
	g.MaxTokens = tokenLimit(g.MaxTokens)
	if err := c.session.SetGeneration(g); err != nil {
		return err
	}
	fmt.Fprintf(c.cmd.OutOrStdout(), "%s is %s.\n", name, parameterText(field(&g)))
	return nil
}

// parameterText formats the field of a parameter.
func parameterText(field any) string {
	switch p := field.(type) {
	case *float64:
		return fmt.Sprint(*p)
	case *int:
		return fmt.Sprint(*p)
	case **uint64:
		if *p == nil {
			return "random"
		}
		return fmt.Sprint(**p)
	case *[]string:
		if len(*p) == 0 {
			return "none"
		}
		return fmt.Sprintf("%q", *p)
	}
	return ""
}

func (c *chat) show(out io.Writer, what string) error {
	switch what {
	case "", "info":
		i := c.model.Info()
		fmt.Fprintf(out, "  model    %s (%s, %s parameters)\n", oneLine(i.Name), oneLine(i.Architecture), quantity(float64(i.Parameters)))
		fmt.Fprintf(out, "  context  %d tokens, %d used\n", i.Context, c.session.Stats().ContextUsed)
		fmt.Fprintf(out, "  device   %s, %s\n", i.Device.ID, i.Device.Name)
	case "parameters":
		g := c.session.Generation()
		for _, name := range parameterNames() {
			if field := parameters[name]; field != nil {
				fmt.Fprintf(out, "  %-18s %s\n", name, parameterText(field(&g)))
			} else {
				fmt.Fprintf(out, "  %-18s %d\n", name, c.model.Info().Context)
			}
		}
	case "system":
		fmt.Fprintln(out, c.session.System())
	case "history":
		for _, m := range c.session.History() {
			fmt.Fprintf(out, "%s: %s\n", m.Role, m.Content)
		}
	default:
		return fmt.Errorf("/show %s: want info, parameters, system or history", what)
	}
	return nil
}

func parameterNames() []string {
	var names []string
	for name := range parameters {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
