package wholefile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFilesAreWrittenWholeOrNotAtAll(t *testing.T) {
	folder := t.TempDir()
	path, link := filepath.Join(folder, "file"), filepath.Join(folder, "link")
	text := func(s string, fails error) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := io.WriteString(w, s)
			return errors.Join(err, fails)
		}
	}
	boom := errors.New("boom")
	if err := Write(path, text("first", boom)); !errors.Is(err, boom) {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", link); err != nil {
		link = path // a system without links
	}
	if err := Write(link, text("half", boom)); !errors.Is(err, boom) {
		t.Error(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "old" {
		t.Errorf("%q after a failure", b)
	}
	if err := Write(link, text("new", nil)); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(path)
	info, err := os.Lstat(link)
	if string(b) != "new" || err != nil || link != path && info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%q, %v", b, info)
	}
	if info, err := os.Stat(path); err != nil || os.PathSeparator == '/' && info.Mode().Perm() != 0o640 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	entries, _ := os.ReadDir(folder)
	if want := 2; len(entries) != want && link != path {
		t.Errorf("%v is left", entries)
	}
	if err := Write(filepath.Join(folder, "none", "file"), text("x", nil)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := Write(folder, text("x", nil)); err == nil {
		t.Error("a folder was replaced")
	}
}

// TestLinksStay writes through links to files that are not there, in other folders, by another link, and in a ring.
func TestLinksStay(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	if err := os.Mkdir(at("far"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"near": "new", "relative": filepath.Join("far", "first"), "absolute": at(filepath.Join("far", "second")), "twice": "relative",
		"nowhere": filepath.Join("none", "file"), "ring": "ring",
	} {
		if err := os.Symlink(target, at(name)); err != nil {
			t.Skip(err) // a system without links
		}
	}
	for name, file := range map[string]string{
		"near": "new", "relative": "far/first", "absolute": "far/second", "twice": "far/first",
	} {
		if err := Write(at(name), func(w io.Writer) error { _, err := io.WriteString(w, name); return err }); err != nil {
			t.Error(err)
		}
		info, err := os.Lstat(at(name))
		if b, _ := os.ReadFile(at(file)); string(b) != name || err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s: %q in %s, %v", name, b, file, info)
		}
	}
	if err := Write(at("nowhere"), func(io.Writer) error { return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nowhere: %v", err)
	}
	if err := Write(at("ring"), func(io.Writer) error { return nil }); err == nil || !strings.Contains(err.Error(), "too many links") {
		t.Errorf("ring: %v", err)
	}
}

// TestAbandonedFilesAreRemoved keeps the files of processes that live, this one among them, and what has another name.
func TestAbandonedFilesAreRemoved(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "file")
	kept := []string{"file.tmp", "file.x.tmp", "file.12.tmpx", "other.12.tmp", "xfile.12.tmp"}
	for _, name := range append([]string{"file.12.tmp", "file.99999999.tmp"}, kept...) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(path+".13.tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	first, err := Create(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Create(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(first, "first")
	io.WriteString(second, "second")
	if err := errors.Join(second.Finish(nil), first.Finish(nil)); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "first" {
		t.Errorf("%q", b)
	}
	entries, _ := os.ReadDir(folder)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := append([]string{"file", "file.13.tmp"}, kept...)
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("%q, want %q", left, want)
	}
}
