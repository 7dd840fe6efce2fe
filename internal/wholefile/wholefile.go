// Package wholefile writes files whole or not at all.
package wholefile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A File is written beside its place and moved there by Finish.
type File struct {
	*os.File
	path string
}

// Create makes a new file beside path. Where path is a symbolic link, the link stays and its target is replaced, which need not be
// there.
func Create(path string, mode fs.FileMode) (*File, error) {
	target, err := target(path)
	if err != nil {
		return nil, err
	}
	for n := os.Getpid(); ; n++ {
		name := fmt.Sprintf("%s.%d.tmp", target, n)
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err == nil {
			return &File{f, target}, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, named(err, name, path)
		}
	}
}

// Finish closes the file and puts it in its place. Where err is an error, or one comes, it removes the file and returns the error.
func (f *File) Finish(err error) error {
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return named(err, f.Name(), f.path)
}

// Write puts what write writes into the file at path by Create and Finish. A file that is there keeps its permissions.
func Write(path string, write func(io.Writer) error) error {
	mode := fs.FileMode(0o666) // less the umask
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: not a regular file", path)
		}
		mode = info.Mode().Perm()
	}
	f, err := Create(path, mode)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	err = write(b)
	if err == nil {
		err = b.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	return f.Finish(err)
}

// target returns what a link names, through links to links.
func target(path string) (string, error) {
	for range 40 {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, filepath.Base(path))
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil // no link
		}
		if path = to; !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
	}
	return "", fmt.Errorf("%s: too many links", path)
}

// named puts the file that was asked for in place of a temporary one in an error.
func named(err error, from, to string) error {
	if e := (*os.PathError)(nil); errors.As(err, &e) && e.Path == from {
		e.Path = to
	}
	return err
}
