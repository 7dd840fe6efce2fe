package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/vibrant-ml/vibrant"
)

//go:generate go run . docs flags ../../docs/command.md

// docsCommand writes what is said about the commands elsewhere: man pages for make install, lists of flags for docs.
func docsCommand() *cobra.Command {
	c := &cobra.Command{Use: "docs", Short: "Write man pages, or the flags into docs/command.md", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.AddCommand(&cobra.Command{
		Use:   "man DIR",
		Short: "Write man pages into a folder",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Vibrant " + vibrant.Version, Manual: "Vibrant"}, args[0])
		},
	}, &cobra.Command{
		Use:   "flags FILE",
		Short: "Renew the lists of flags in a file",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			text, err = renewFlags(text, cmd.Root())
			if err != nil {
				return err
			}
			return os.WriteFile(args[0], text, 0o644)
		},
	}, &cobra.Command{
		Use:   "facts FILE",
		Short: "Write what the embedded model learns about the commands",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := factsJSON(cmd.Root())
			if err != nil {
				return err
			}
			return os.WriteFile(args[0], text, 0o644)
		},
	})
	return c
}

// Between these lines of docs/command.md the flags are.
const (
	flagsBegin = "<!-- Flags: go generate ./cmd/vibrant -->\n"
	flagsEnd   = "<!-- End of flags -->\n"
)

// renewFlags puts the flags of all commands between the marks of a text.
func renewFlags(text []byte, root *cobra.Command) ([]byte, error) {
	before, rest, begins := bytes.Cut(text, []byte(flagsBegin))
	_, after, ends := bytes.Cut(rest, []byte(flagsEnd))
	if !begins || !ends {
		return nil, fmt.Errorf("the file lacks the lines %q and %q", flagsBegin, flagsEnd)
	}
	return []byte(string(before) + flagsBegin + flagsMarkdown(root) + flagsEnd + string(after)), nil
}

// flagsMarkdown lists the flags that are not hidden: the ones of most commands once, then each command's own.
func flagsMarkdown(root *cobra.Command) string {
	var out strings.Builder
	shared := map[string]bool{}
	section := func(title string, flags []*pflag.Flag) {
		fmt.Fprintf(&out, "\n### %s\n\n", title)
		for _, f := range flags {
			out.WriteString(item(flagMarkdown(f)))
		}
	}
	group := func(title string, add func(c *cobra.Command)) {
		c := &cobra.Command{}
		add(c)
		flags := visible(c.Flags())
		for _, f := range flags {
			shared[title+f.Name] = true
		}
		section(title, flags)
	}
	const model, generation = "Model and device", "Generation"
	group(model, func(c *cobra.Command) { new(modelFlags).add(c) })
	group(generation, func(c *cobra.Command) { new(generationFlags).add(c) })
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		flags := visible(c.Flags())
		has := func(name string) bool { f := c.Flags().Lookup(name); return f != nil }
		var own []*pflag.Flag
		for _, f := range flags {
			if !(has("device") && shared[model+f.Name] || has("top-k") && shared[generation+f.Name]) && f.Name != "help" {
				own = append(own, f)
			}
		}
		title := "`vibrant " + c.Use + "`"
		switch {
		case has("top-k"):
			title += ", those of the model and of generation, and"
		case has("device"):
			title += ", those of the model, and"
		}
		if len(own) == 0 {
			title = strings.TrimSuffix(title, ", and")
		}
		section(title, own)
	}
	return out.String() + "\n"
}

func visible(set *pflag.FlagSet) (flags []*pflag.Flag) {
	set.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags = append(flags, f)
		}
	})
	return flags
}

// item returns a text as an item of a list, in lines of up to 140 bytes.
func item(text string) string {
	var out strings.Builder
	line := "-"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > 140 {
			out.WriteString(line + "\n")
			line = " "
		}
		line += " " + word
	}
	return out.String() + line + "\n"
}

func flagMarkdown(f *pflag.Flag) string {
	name := "`--" + f.Name + "`"
	if f.Shorthand != "" {
		name = "`-" + f.Shorthand + "`, " + name
	}
	return name + ": " + strings.NewReplacer("<", "&lt;", "|", "\\|").Replace(usageOf(f))
}
