package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/internal/environment"
)

//go:generate go run . docs flags ../../docs/command.md

// docsCommand writes what is said about the commands elsewhere: man pages for make install, flags and variables for docs.
func docsCommand() *cobra.Command {
	c := &cobra.Command{Use: "docs", Short: "Write man pages, or the flags and variables into docs/command.md", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.AddCommand(&cobra.Command{
		Use:   "man DIR",
		Short: "Write man pages into a folder",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			root.Long = root.Short + ".\n\n" + root.Long + "\n\nEnvironment, where an empty variable counts as not set:\n\n" + environmentList()
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Vibrant " + vibrant.Version, Manual: "Vibrant"}, args[0])
		},
	}, &cobra.Command{
		Use:   "flags FILE",
		Short: "Renew the lists of flags and the table of the environment in a file",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			text, err = renewLists(text, cmd.Root())
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

// renewLists puts the flags of all commands and the variables of the environment between the marks of a text.
func renewLists(text []byte, root *cobra.Command) ([]byte, error) {
	for _, list := range []struct{ begin, end, text string }{
		{"<!-- Flags: go generate ./cmd/vibrant -->\n", "<!-- End of flags -->\n", flagsMarkdown(root)},
		{"<!-- Environment: go generate ./cmd/vibrant -->\n", "<!-- End of environment -->\n", environment.Markdown()},
	} {
		before, rest, begins := bytes.Cut(text, []byte(list.begin))
		_, after, ends := bytes.Cut(rest, []byte(list.end))
		if !begins || !ends {
			return nil, fmt.Errorf("the file lacks the lines %q and %q", list.begin, list.end)
		}
		text = []byte(string(before) + list.begin + list.text + list.end + string(after))
	}
	return text, nil
}

// environmentList lists the variables of the environment for the man page, without the links of the documents.
func environmentList() string {
	var out strings.Builder
	link := regexp.MustCompile(` \(\[[^]]*\]\([^)]*\)\)`)
	for _, v := range environment.All {
		fmt.Fprintf(&out, "- %s: %s\n", strings.Join(v.Names, ", "), link.ReplaceAllString(v.About, ""))
	}
	return out.String()
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
