//go:build !js && !wasip1 && !plan9

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

const (
	historyLimit = 1000     // lines
	historyBytes = 16 << 20 // that are read of a file, its newest
)

// history keeps typed lines in a file that the user alone may read. Failures to write are ignored: a chat goes on
// without.
type history struct {
	path  string // "": nothing is kept
	lines []string
}

// historyPath returns where typed lines are kept, by the XDG Base Directory Specification, which has relative paths
// ignored. It is "" where there is no home.
func historyPath() string {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) {
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return ""
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "vibrant", "history")
}

// openHistory reads the newest lines. A file that is not a regular one, as a link or a pipe, is left alone.
func openHistory(path string) *history {
	h := &history{path: path}
	if path == "" || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		h.path = ""
		return h
	}
	f, err := openRegular(path, os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return h
	}
	if err != nil {
		h.path = ""
		return h
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil && st.Mode().Perm()&0o077 != 0 {
		f.Chmod(0o600) // as earlier versions, or another program, left it
	}
	r := bufio.NewReader(f)
	total := 0
	if err == nil && st.Size() > historyBytes {
		f.Seek(-historyBytes, io.SeekEnd)
		r.ReadString('\n')         // the rest of a line
		total = 2*historyLimit + 1 // so that it is cut
	}
	for {
		line, err := r.ReadString('\n')
		if line = typedLine(line); line != "" {
			total++
			if h.lines = append(h.lines, line); len(h.lines) > historyLimit {
				h.lines = h.lines[1:]
			}
		}
		if err != nil {
			break
		}
	}
	if total > 2*historyLimit {
		h.rewrite()
	}
	return h
}

// typedLine returns what the editor may show of a line of the file: none of the characters that nobody can type.
func typedLine(line string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || reorders(r) {
			return -1
		}
		return r
	}, line)
}

// add appends a line.
func (h *history) add(line string) {
	if h.path == "" || strings.TrimSpace(line) == "" {
		return
	}
	f, err := openRegular(h.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	io.WriteString(f, line+"\n")
	f.Close()
}

// rewrite keeps the newest lines alone.
func (h *history) rewrite() {
	f, err := os.CreateTemp(filepath.Dir(h.path), "history-*") // mode 0600
	if err != nil {
		return
	}
	var b bytes.Buffer
	for _, line := range h.lines {
		b.WriteString(line + "\n")
	}
	_, err = f.Write(b.Bytes())
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), h.path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
}

// openRegular opens a regular file; links are not followed, and a pipe or device is an error and not waited for.
func openRegular(path string, flag int, mode os.FileMode) (*os.File, error) {
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := os.OpenFile(path, flag|openNoFollow, mode)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, errNotRegular)
	}
	return f, nil
}
