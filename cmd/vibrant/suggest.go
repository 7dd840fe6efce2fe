package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says what is wrong with a flag, and which one may have been meant.
func flagError(cmd *cobra.Command, err error) error {
	unknown, invalid, number := (*pflag.NotExistError)(nil), (*pflag.InvalidValueError)(nil), (*strconv.NumError)(nil)
	lacking := (*pflag.ValueRequiredError)(nil)
	switch {
	case errors.As(err, &lacking) && lacking.GetSpecifiedShortnames() != "":
		return usagef("-%s wants a value", lacking.GetSpecifiedName())
	case errors.As(err, &lacking):
		return usagef("--%s wants a value", lacking.GetSpecifiedName())
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		return unknownFlag(cmd, "--"+unknown.GetSpecifiedName())
	case errors.As(err, &unknown):
		return unknownFlag(cmd, "-"+unknown.GetSpecifiedName())
	case errors.As(err, &invalid) && errors.As(err, &number):
		want := "a number"
		if errors.Is(number, strconv.ErrRange) {
			want = "a smaller number"
		} else if _, e := strconv.ParseFloat(invalid.GetValue(), 64); e == nil {
			want = "a whole number"
		}
		return usagef("--%s is %q, want %s", invalid.GetFlag().Name, invalid.GetValue(), want)
	}
	return usageError{err}
}

// unknownFlag is the error of a word that begins with a dash.
func unknownFlag(cmd *cobra.Command, word string) error {
	if strings.ContainsAny(word, " \n") {
		return usagef("unknown flag %s of %s: put -- before words that begin with a dash and are none", word, cmd.Name())
	}
	var words []string
	known := func(name string) bool {
		f := cmd.Flags().Lookup(name)
		return f != nil && !f.Hidden
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			words = append(words, "--"+f.Name)
		}
	})
	for name, ours := range foreignNames {
		if known(ours) {
			words = append(words, "--"+name)
		}
	}
	if !strings.HasPrefix(word, "--") {
		for name, long := range foreignWords {
			if known(string(normalize(nil, long))) {
				words = append(words, "-"+name)
			}
		}
	}
	meant := nearest(word, words)
	if word == "-V" || nearest(word, []string{"version"}) != "" { // which is no command's own
		meant = "--version"
	}
	if meant != "" {
		return usagef("unknown flag %s of %s: did you mean %s?", word, cmd.Name(), meant)
	}
	return usagef("unknown flag %s of %s (--help lists them)", word, cmd.Name())
}

// unknownCommand is the error of a word that is no command.
func unknownCommand(root *cobra.Command, name string) error {
	if instead, ok := elsewhere[name]; ok {
		return usagef("unknown command %q: %s", name, instead)
	}
	if near := root.SuggestionsFor(name); len(near) > 0 {
		return usagef("unknown command %q: did you mean %s?", name, strings.Join(near, ", "))
	}
	if meant := nearest(name, []string{"help", "completion"}); meant != "" { // of the package cobra, which adds them later
		return usagef("unknown command %q: did you mean %s?", name, meant)
	}
	return usagef("unknown command %q (vibrant --help lists them)", name)
}

// nearest returns the word of a list that was meant by a typo: of three letters one may be wrong, missing, too many or swapped with
// its neighbour, two of six or more. Dashes before a word do not count. It returns "" where no word is that near.
func nearest(typed string, words []string) string {
	bare := func(word string) string { return strings.TrimLeft(word, "-/") }
	slices.Sort(words)
	best, least := "", min(2, len(bare(typed))/3)+1
	for _, w := range words {
		if d := edits(bare(typed), bare(w)); d < least {
			best, least = w, d
		}
	}
	return best
}

// edits counts the letters to insert, delete, replace or swap with a neighbour that turn a into b (optimal string alignment).
func edits(a, b string) int {
	before, above := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range a {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range b {
			differs := 1
			if a[i] == b[j] {
				differs = 0
			}
			row[j+1] = min(above[j+1]+1, row[j]+1, above[j]+differs)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}
