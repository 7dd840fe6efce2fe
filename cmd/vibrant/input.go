package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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
		b, err := readText(cmd.Context(), path, cmd.InOrStdin())
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

// maxText is how long a text may be: more than any context holds, and less than any memory.
const maxText = 1 << 30

// readText reads a file, or stdin where the path is "-". A pipe that nobody writes to is not waited for, and a device without an end,
// as /dev/zero, is not read.
func readText(ctx context.Context, path string, stdin io.Reader) ([]byte, error) {
	in, isPipe := stdin, false
	if path != "-" {
		f, err := os.OpenFile(path, os.O_RDONLY|openNonBlock, 0)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	if f, ok := in.(*os.File); ok {
		st, err := f.Stat()
		if err != nil {
			return nil, err
		}
		null, _ := os.Stat(os.DevNull)
		if st.Mode()&fs.ModeDevice != 0 && !isTerminal(f) && !os.SameFile(st, null) {
			return nil, fmt.Errorf("%s is a device", f.Name())
		}
		isPipe = path != "-" && st.Mode()&fs.ModeNamedPipe != 0
	}
	b, err := io.ReadAll(io.LimitReader(untilDone(ctx, in), maxText+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxText:
		return nil, fmt.Errorf("%s: a text of more than %s", path, byteSize(maxText))
	case isPipe && len(b) == 0:
		return nil, fmt.Errorf("%s: nothing came through the pipe", path)
	}
	return b, nil
}

// untilDone returns a reader of a file that ends with a context, also while a read waits: a terminal and a pipe may wait for ever.
// Such a read ends with the process.
func untilDone(ctx context.Context, r io.Reader) io.Reader {
	if f, ok := r.(*os.File); ok && ctx != nil {
		return &doneReader{ctx: ctx, file: f, reads: make(chan fileRead, 1)}
	}
	return r
}

type doneReader struct {
	ctx   context.Context
	file  *os.File
	reads chan fileRead
	rest  []byte
}

type fileRead struct {
	b   []byte
	err error
}

func (d *doneReader) Read(b []byte) (int, error) {
	if len(d.rest) == 0 {
		go func() {
			chunk := make([]byte, 1<<16)
			n, err := d.file.Read(chunk)
			d.reads <- fileRead{chunk[:n], err}
		}()
		select {
		case read := <-d.reads:
			if d.rest = read.b; len(d.rest) == 0 {
				return 0, read.err
			}
		case <-d.ctx.Done():
			return 0, d.ctx.Err()
		}
	}
	n := copy(b, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// pipedReader reads lines of stdin, without prompts.
type pipedReader struct{ r *bufio.Reader }

func newPipedReader(ctx context.Context, r io.Reader) *pipedReader {
	return &pipedReader{bufio.NewReader(untilDone(ctx, r))}
}

func (p *pipedReader) line(string) (string, error) {
	text, err := readLongLine(p.r, maxText)
	if err == io.EOF && len(text) > 0 {
		err = nil
	}
	return strings.TrimRight(string(text), "\r\n"), err
}

// readLongLine reads a line of stdin, with its end: of so many bytes at most.
func readLongLine(r *bufio.Reader, most int) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, fmt.Errorf("stdin: a line of more than %s", byteSize(int64(most)))
		}
		line = append(line, part...)
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

func (p *pipedReader) close() {}
