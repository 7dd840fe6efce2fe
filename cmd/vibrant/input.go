package main

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

var errEmptyPrompt = errors.New("the prompt is empty")

// inputFlags say what a prompt is made of, besides the words of the command line.
type inputFlags struct {
	prompt string
	files  []string
}

func (f *inputFlags) add(c *cobra.Command) {
	c.Flags().StringVarP(&f.prompt, "prompt", "p", "", "the first message")
	c.Flags().StringArrayVarP(&f.files, "file", "f", nil, "file whose text follows the prompt, - for stdin (may be repeated)")
	c.MarkFlagFilename("file")
}

// read joins the prompt: words by spaces, and texts of files and of stdin ("-") as paragraphs of their own. Nothing given
// is an empty prompt and no error; something given that is empty is one.
func (f *inputFlags) read(cmd *cobra.Command, words []string) (string, error) {
	given := len(words) > 0 || len(f.files) > 0 || cmd.Flags().Changed("prompt")
	var paragraphs, line []string
	end := func() {
		if len(line) > 0 {
			paragraphs = append(paragraphs, strings.Join(line, " "))
			line = nil
		}
	}
	add := func(path string) error {
		b, err := readFile(path, cmd.InOrStdin())
		if err != nil {
			return err
		}
		end()
		if text := strings.Trim(string(b), "\r\n"); text != "" {
			paragraphs = append(paragraphs, text)
		}
		return nil
	}
	if cmd.Flags().Changed("prompt") {
		words = append([]string{f.prompt}, words...)
	}
	for _, w := range words {
		if w != "-" {
			line = append(line, w)
		} else if err := add("-"); err != nil {
			return "", err
		}
	}
	for _, path := range f.files {
		if err := add(path); err != nil {
			return "", err
		}
	}
	end()
	text := strings.Join(paragraphs, "\n\n")
	if given && strings.TrimSpace(text) == "" {
		return "", usageError{errEmptyPrompt}
	}
	return text, nil
}

// usesStdin reports whether stdin was asked for by "-".
func (f *inputFlags) usesStdin(words []string) bool {
	for _, w := range append(append([]string(nil), words...), f.files...) {
		if w == "-" {
			return true
		}
	}
	return false
}

// isPiped reports whether a text may come from stdin: a pipe, a file or, in tests, a reader.
func isPiped(stdin io.Reader) bool {
	f, ok := stdin.(*os.File)
	if !ok {
		return true
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&(fs.ModeCharDevice|fs.ModeDir) == 0
}

// pipedReader reads lines of stdin, without prompts.
type pipedReader struct{ r *bufio.Reader }

func newPipedReader(r io.Reader) *pipedReader { return &pipedReader{bufio.NewReader(r)} }

func (p *pipedReader) line(string) (string, error) {
	text, err := p.r.ReadString('\n')
	if err == io.EOF && text != "" {
		err = nil
	}
	return strings.TrimRight(text, "\r\n"), err
}

func (p *pipedReader) close() {}
