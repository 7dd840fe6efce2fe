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
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/vibrant-ml/vibrant/internal/filelock"
)

// A File is written beside its place, as PLACE.NUMBER.tmp, and moved there by Finish. The process holds the file's lock meanwhile: where
// nobody does, the process has died, and the next Create for the same place removes the file.
type File struct {
	*os.File
	path string
}

// unfinished holds the names of the files of this process that Finish has not moved or removed yet.
var unfinished struct {
	sync.Mutex
	names map[string]struct{}
}

// RemoveUnfinished removes what this process has not finished, and has every later Create and Finish wait for the end of the process:
// it is for the moment before that.
func RemoveUnfinished() {
	unfinished.Lock()
	for name := range unfinished.names {
		os.Remove(name)
	}
}

// Create makes a new file beside path. Where path is a symbolic link, the link stays and its target is replaced, which need not be
// there.
func Create(path string, mode fs.FileMode) (*File, error) {
	target, err := target(path)
	if err != nil {
		return nil, err
	}
	removeAbandoned(target)
	for n := os.Getpid(); ; n++ {
		name := fmt.Sprintf("%s.%d.tmp", target, n)
		f, err := create(name, mode)
		if err == nil {
			return &File{f, target}, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, named(err, name, path)
		}
	}
}

// create makes a new file and takes its lock. It returns fs.ErrExist where another process took the file for abandoned before that.
func create(name string, mode fs.FileMode) (*os.File, error) {
	unfinished.Lock()
	defer unfinished.Unlock()
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	if locked, err := filelock.Try(f); !locked && err == nil || locked && !isAt(f, name) {
		f.Close()
		return nil, fs.ErrExist
	}
	if unfinished.names == nil {
		unfinished.names = map[string]struct{}{}
	}
	unfinished.names[name] = struct{}{}
	return f, nil
}

// removeAbandoned removes the files of processes that died before they moved them to a place.
func removeAbandoned(target string) {
	entries, err := os.ReadDir(filepath.Dir(target))
	if err != nil {
		return
	}
	for _, e := range entries {
		number, isTemporary := strings.CutSuffix(strings.TrimPrefix(e.Name(), filepath.Base(target)+"."), ".tmp")
		if _, err := strconv.ParseUint(number, 10, 64); err != nil || !isTemporary || !e.Type().IsRegular() {
			continue
		}
		name := filepath.Join(filepath.Dir(target), e.Name())
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if locked, _ := filelock.Try(f); locked && isAt(f, name) {
			os.Remove(name)
		}
		f.Close()
	}
}

// isAt reports whether a name is that of an open file.
func isAt(f *os.File, name string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(name)
	return err == nil && os.SameFile(opened, now)
}

// Finish puts the file in its place, once the disk has it, and closes it. Where err is an error, or one comes, it removes the file and
// returns the error.
func (f *File) Finish(err error) error {
	if err == nil {
		err = f.Sync()
	}
	if runtime.GOOS == "windows" { // which moves and removes no open file, and so needs no lock for it
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	unfinished.Lock()
	delete(unfinished.names, f.Name())
	unfinished.Unlock()
	f.Close() // which has nothing left to write, and gives the lock back
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
	return f.Finish(err)
}

// target returns what a link names, through links to links.
func target(path string) (string, error) {
	for range 40 {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", fmt.Errorf("%s: its folder: %w", path, err)
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
