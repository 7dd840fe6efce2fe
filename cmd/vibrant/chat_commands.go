package main

import (
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"github.com/vibrant-ml/vibrant"
)

// chatCommands are what a line that starts with a slash can say. Their names are Ollama's.
var chatCommands = []struct{ name, help string }{
	{"/help", "this list"},
	{"/clear", "forget the conversation"},
	{"/set", "/set PARAMETER VALUE (temperature, top_k, ...), /set system TEXT, /set verbose, /set quiet"},
	{"/show", "/show info, parameters, system or history"},
	{"/bye", "leave"},
}

// command runs one of them and reports whether the chat shall end.
func (c *chat) command(line string) (leave bool, err error) {
	out := c.cmd.OutOrStdout()
	name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	rest = strings.TrimSpace(rest)
	switch name {
	case "/help", "/?":
		for _, k := range chatCommands {
			fmt.Fprintf(out, "  %-7s %s\n", k.name, k.help)
		}
		fmt.Fprintf(out, "  %-7s begins and ends a message of several lines\n", fence)
		fmt.Fprintln(out, "  Ctrl-C stops an answer, Ctrl-D leaves")
	case "/clear":
		if err := c.session.Reset(); err != nil {
			return false, err
		}
		fmt.Fprintln(out, "The conversation is forgotten.")
	case "/set":
		return false, c.set(rest)
	case "/show":
		return false, c.show(out, rest)
	case "/bye", "/exit", "/quit":
		return true, nil
	default:
		return false, fmt.Errorf("unknown command %s: /help lists them", name)
	}
	return false, nil
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
		return nil
	case "system":
		c.session.SetSystem(strings.Trim(value, `"`))
		return nil
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
	return c.session.SetGeneration(g)
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
			switch p := parameters[name](&g).(type) {
			case *float64:
				fmt.Fprintf(out, "  %-18s %v\n", name, *p)
			case *int:
				fmt.Fprintf(out, "  %-18s %v\n", name, *p)
			case **uint64:
				if *p != nil {
					fmt.Fprintf(out, "  %-18s %v\n", name, **p)
				}
			case *[]string:
				if len(*p) > 0 {
					fmt.Fprintf(out, "  %-18s %q\n", name, *p)
				}
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
