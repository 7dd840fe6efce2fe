package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:generate go run . docs facts ../../scripts/demo_model/command.json

// commandFacts is what the embedded model learns about the command: scripts/demo_model/corpus.py makes sentences of it. It comes
// from the commands themselves, so that the model knows them as they are.
type commandFacts struct {
	Commands []factOfCommand
	Flags    []*factOfFlag
	Slashes  []factOfWord // of the chat
	Foreign  []factOfFlag // flags of other programs that change nothing here
	Missing  []factOfWord // commands of other programs, and what to type instead
}

type factOfCommand struct {
	Name  string `json:"name"`
	Use   string `json:"use"`
	Short string `json:"short"`
}

type factOfWord struct {
	Name string `json:"name"`
	Help string `json:"help"`
}

// factOfFlag is a flag by all of its names, ours first, and what it means to which commands.
type factOfFlag struct {
	Names []string     `json:"names"`
	Help  []factOfHelp `json:"help"`
}

type factOfHelp struct {
	Text     string   `json:"text"`
	Commands []string `json:"commands,omitempty"`
}

func factsOf(root *cobra.Command) commandFacts {
	var facts commandFacts
	flags := map[string]*factOfFlag{}
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		facts.Commands = append(facts.Commands, factOfCommand{c.Name(), c.Use, c.Short})
		for _, f := range visible(c.Flags()) {
			if f.Name == "help" {
				continue
			}
			fact := flags[f.Name]
			if fact == nil {
				fact = &factOfFlag{}
				flags[f.Name] = fact
			}
			for _, name := range namesOf(f) {
				if !slices.Contains(fact.Names, name) {
					fact.Names = append(fact.Names, name)
				}
			}
			text := usageOf(f)
			at := slices.IndexFunc(fact.Help, func(h factOfHelp) bool { return h.Text == text })
			if at < 0 {
				at = len(fact.Help)
				fact.Help = append(fact.Help, factOfHelp{Text: text})
			}
			fact.Help[at].Commands = append(fact.Help[at].Commands, c.Name())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		fact := flags[name]
		slices.SortStableFunc(fact.Help, func(a, b factOfHelp) int { return cmp.Compare(len(b.Commands), len(a.Commands)) })
		facts.Flags = append(facts.Flags, fact)
	}
	for _, c := range chatCommands {
		facts.Slashes = append(facts.Slashes, factOfWord{c.name, c.help})
	}
	for _, f := range foreignFlags { // a name each
		if slices.ContainsFunc(facts.Flags, func(own *factOfFlag) bool { return slices.Contains(own.Names, "--"+f.names) }) {
			continue // of some commands it is a flag like others
		}
		facts.Foreign = append(facts.Foreign, factOfFlag{otherNames("--"+f.names, f.names), []factOfHelp{{Text: f.note}}})
	}
	for _, name := range slices.Sorted(maps.Keys(elsewhere)) {
		facts.Missing = append(facts.Missing, factOfWord{name, elsewhere[name]})
	}
	return facts
}

// namesOf lists a flag's letter, its name, and what users of other programs call it.
func namesOf(f *pflag.Flag) []string {
	own := "--" + f.Name
	if f.Shorthand != "" {
		return append([]string{"-" + f.Shorthand}, otherNames(own, f.Name)...)
	}
	return otherNames(own, f.Name)
}

// otherNames appends to a name those that other programs have for the flag of ours.
func otherNames(own, name string) []string {
	names := []string{own}
	for _, long := range slices.Sorted(maps.Keys(foreignNames)) {
		if foreignNames[long] == name {
			names = append(names, "--"+long)
		}
	}
	for _, word := range slices.Sorted(maps.Keys(foreignWords)) {
		if long := foreignWords[word]; long == name || foreignNames[long] == name {
			names = append(names, "-"+word)
		}
	}
	return names
}

// usageOf is a flag's help as --help has it, with the default that it shows.
func usageOf(f *pflag.Flag) string {
	if d := strings.Trim(f.DefValue, "[]"); d != "" && d != "0" && d != "false" {
		return f.Usage + " (default " + d + ")"
	}
	return f.Usage
}

// factsJSON is the file that the scripts read, a fact a line.
func factsJSON(root *cobra.Command) ([]byte, error) {
	facts := factsOf(root)
	var out bytes.Buffer
	var err error
	write := func(name string, list []any) {
		fmt.Fprintf(&out, "%q: [", name)
		for i, fact := range list {
			var line bytes.Buffer
			e := json.NewEncoder(&line)
			e.SetEscapeHTML(false)
			err = errors.Join(err, e.Encode(fact))
			out.WriteString(map[bool]string{true: "\n", false: ",\n"}[i == 0] + strings.TrimSpace(line.String()))
		}
		out.WriteString("\n]")
	}
	out.WriteString("{")
	write("commands", anys(facts.Commands))
	out.WriteString(",\n")
	write("flags", anys(facts.Flags))
	out.WriteString(",\n")
	write("slashes", anys(facts.Slashes))
	out.WriteString(",\n")
	write("foreign", anys(facts.Foreign))
	out.WriteString(",\n")
	write("elsewhere", anys(facts.Missing))
	out.WriteString("}\n")
	return out.Bytes(), err
}

func anys[T any](list []T) []any {
	all := make([]any, len(list))
	for i, x := range list {
		all[i] = x
	}
	return all
}
