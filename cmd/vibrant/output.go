package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/vibrant-ml/vibrant/internal/wholefile"
)

// resultWriter is stdout. It remembers the first error of writing, which not every caller looks at, so that no lost output ends in status 0.
type resultWriter struct {
	io.Writer
	failed atomic.Pointer[error]
}

func (o *resultWriter) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if err != nil {
		o.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// lost returns the first error of writing.
func (o *resultWriter) lost() error {
	if err := o.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// closedStdout stands for a stdout that was closed before the process began (>&-).
type closedStdout struct{}

func (closedStdout) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: os.Stdout.Name(), Err: os.ErrClosed}
}

// outputFile writes a file whole or not at all: beside its place, and moved there at the end. What is no regular file, as
// a device or a pipe, is written to directly and never removed; "-" is stdout.
type outputFile struct {
	io.Writer
	whole *wholefile.File
	file  *os.File // what is written to directly; neither: stdout
}

// createOutput opens a file for writing. It refuses the files of a model and its adapters, which modelFlags.inputs names.
func createOutput(path string, stdout io.Writer, inputs ...string) (*outputFile, error) {
	if path == "-" {
		return &outputFile{Writer: raw(stdout)}, nil
	}
	mode := os.FileMode(0o666)
	st, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		for _, input := range inputs {
			for _, file := range filesOf(input) {
				if m, err := os.Stat(file); err == nil && os.SameFile(st, m) {
					return nil, usagef("%s is the model's own file", path)
				}
			}
		}
		if st.IsDir() {
			return nil, fmt.Errorf("%s: is a directory", path)
		}
		if !st.Mode().IsRegular() {
			f, err := os.OpenFile(path, os.O_WRONLY|openNonBlock, 0)
			if st.Mode()&os.ModeNamedPipe != 0 && err != nil {
				err = fmt.Errorf("nobody reads the pipe: %w", err)
			}
			return &outputFile{Writer: f, file: f}, err
		}
		mode = st.Mode().Perm()
	}
	whole, err := wholefile.Create(path, mode)
	if err != nil {
		return nil, err
	}
	return &outputFile{Writer: whole, whole: whole}, nil
}

// finish puts the file in its place where all went well, else removes it.
func (o *outputFile) finish(err error) error {
	if o.whole != nil {
		return o.whole.Finish(err)
	}
	if o.file != nil {
		if e := o.file.Close(); err == nil {
			err = e
		}
	}
	return err
}

// discard removes a file that was not finished.
func (o *outputFile) discard() { o.finish(errors.New("not finished")) }

// filesOf returns the paths of a model or adapter: of a split one (NAME-00001-of-00003.gguf) all parts, of a folder what is in it.
func filesOf(input string) []string {
	files := []string{input}
	folder, prefix := input, ""
	if st, err := os.Stat(input); err != nil || !st.IsDir() {
		stem, _, split := strings.Cut(filepath.Base(input), "-00")
		if !split {
			return files
		}
		folder, prefix = filepath.Dir(input), stem+"-00"
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return files // opening the model says so
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			files = append(files, filepath.Join(folder, e.Name()))
		}
	}
	return files
}

// private has nobody but the user read the file.
func (o *outputFile) private() error {
	if o.whole == nil {
		return nil
	}
	return o.whole.Chmod(0o600)
}
