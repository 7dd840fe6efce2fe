package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// outputFile writes a file whole or not at all: beside its place, and moved there at the end. What is no regular file, as
// a device or a pipe, is written to directly and never removed; "-" is stdout.
type outputFile struct {
	io.Writer
	file *os.File // nil: stdout
	path string   // where a temporary file goes; "" for what is written to directly
}

// createOutput opens a file for writing. It refuses the model's own file, of which the other parameter is the path.
func createOutput(path string, stdout io.Writer, model string) (*outputFile, error) {
	if path == "-" {
		return &outputFile{Writer: raw(stdout)}, nil
	}
	mode := os.FileMode(0o666)
	st, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		for _, file := range modelFiles(model) {
			if m, err := os.Stat(file); err == nil && os.SameFile(st, m) {
				return nil, usagef("%s is the model's own file", path)
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
	target, err := linkTarget(path)
	if err != nil {
		return nil, err
	}
	for n := os.Getpid(); ; n++ {
		name := fmt.Sprintf("%s.%d.tmp", target, n)
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		return &outputFile{Writer: f, file: f, path: target}, renameError(err, name, path)
	}
}

// linkTarget returns what a link names, so that the link stays and its target is replaced. The target need not exist.
func linkTarget(path string) (string, error) {
	for range 40 {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, filepath.Base(path))
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // no link
		}
		if path = target; !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
	}
	return "", fmt.Errorf("%s: too many links", path)
}

// renameError puts the file that was asked for in place of a temporary one in an error.
func renameError(err error, from, to string) error {
	if e := (*os.PathError)(nil); errors.As(err, &e) && e.Path == from {
		e.Path = to
	}
	return err
}

// finish puts the file in its place where all went well, else removes it.
func (o *outputFile) finish(err error) error {
	if o.file == nil {
		return err
	}
	if e := o.file.Close(); err == nil {
		err = e
	}
	if o.path == "" {
		return err
	}
	if err == nil {
		err = os.Rename(o.file.Name(), o.path)
	}
	if err != nil {
		os.Remove(o.file.Name())
		err = renameError(err, o.file.Name(), o.path)
	}
	return err
}

// modelFiles returns the paths of a model: of a split one (NAME-00001-of-00003.gguf) all parts.
func modelFiles(model string) []string {
	files := []string{model}
	stem, _, split := strings.Cut(filepath.Base(model), "-00")
	if !split {
		return files
	}
	entries, err := os.ReadDir(filepath.Dir(model))
	if err != nil {
		return files // opening the model says so
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), stem+"-00") {
			files = append(files, filepath.Join(filepath.Dir(model), e.Name()))
		}
	}
	return files
}

// private has nobody but the user read the file.
func (o *outputFile) private() error {
	if o.path == "" {
		return nil
	}
	return o.file.Chmod(0o600)
}
