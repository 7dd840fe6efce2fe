package main

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vibrant-ml/vibrant/internal/check/pages"
)

// mistakeOf says what no command line like this one can have: a command or a flag that is not there.
func mistakeOf(words []string) error {
	root, line := rootCommand(), slices.Clone(words)
	for i, word := range line {
		switch word {
		case "COMMAND":
			line[i] = "chat"
		case "FILE":
			line[i] = "model.gguf"
		}
	}
	args, err := translate(root, line)
	if err != nil {
		return err
	}
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	c.InitDefaultHelpFlag()
	var unknown *pflag.NotExistError
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return err })
	if err := c.ParseFlags(rest); errors.As(err, &unknown) {
		return err
	}
	return nil
}

// TestCommandLinesOfThePages holds the command lines of vibrant that pages show.
func TestCommandLinesOfThePages(t *testing.T) {
	texts, err := pages.Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range slices.Sorted(maps.Keys(texts)) {
		for _, c := range pages.Commands(page, texts[page]) {
			if c.Words[0] != "vibrant" && c.Words[0] != "bin/vibrant" {
				continue
			}
			found++
			if err := mistakeOf(c.Words[1:]); err != nil {
				t.Errorf("%s: %q: %v", page, strings.Join(c.Words, " "), err)
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d command lines were found", found)
	}
	for _, bad := range []string{"chta", "chat --nothing", "bench --opps x"} {
		if mistakeOf(strings.Fields(bad)) == nil {
			t.Errorf("allowed: vibrant %s", bad)
		}
	}
}

// TestCommandsShowExamples holds that help shows command lines, and that these are right.
func TestCommandsShowExamples(t *testing.T) {
	for _, c := range rootCommand().Commands() {
		if c.Hidden || c.Name() == "version" {
			continue
		}
		lines := strings.Split(c.Example, "\n")
		found := pages.Commands(c.Name(), "    "+strings.Join(lines, "\n    "))
		if c.Example == "" || len(found) != len(lines) {
			t.Errorf("%s has %d examples in %d lines", c.Name(), len(found), len(lines))
		}
		for _, example := range found {
			if err := mistakeOf(example.Words[1:]); err != nil || example.Words[1] != c.Name() {
				t.Errorf("%q: %v", example.Words, err)
			}
		}
	}
}
