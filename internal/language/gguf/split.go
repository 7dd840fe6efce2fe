package gguf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Large models come in several files, as llama.cpp's gguf-split writes them: NAME-00001-of-00003.gguf and so on. Each says
// how many there are and which one it is (split.no, from 0) and holds a share of the tensors; the first one holds the
// metadata.
const (
	splitCount   = "split.count"
	splitNumber  = "split.no"
	splitTensors = "split.tensors.count"

	maxParts = 1<<16 - 1 // both keys are u16
)

// ErrMissingPart says that not all files of a split model are there.
var ErrMissingPart = errors.New("files of a split model are missing")

var splitName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// join completes a file that is one of several, and returns the one that stands for them all.
func join(path string, f *File, mapping mapper) (*File, error) {
	count, err := f.UintOr(splitCount, 1)
	if err != nil || count <= 1 {
		return f, err
	}
	number, err := f.Uint(splitNumber)
	if err != nil {
		return nil, err
	}
	if number >= count || count > maxParts {
		return nil, fmt.Errorf("%w: key %q is %d and key %q is %d: want less than that, and at most %d parts", ErrInvalid, splitNumber,
			number, splitCount, count, maxParts)
	}
	name := splitName.FindStringSubmatch(filepath.Base(path))
	if name == nil {
		return nil, fmt.Errorf("%w: part %d of a model in %d files: by their names they are found, which end in -%05d-of-%05d.gguf",
			ErrInvalid, number+1, count, number+1, count)
	}
	if n, _ := strconv.ParseUint(name[2], 10, 64); n != number+1 || name[3] != fmt.Sprintf("%05d", count) {
		return nil, fmt.Errorf("%w: is named part %s of %s, and says that it is %d of %d", ErrInvalid, name[2], name[3], number+1, count)
	}
	prefix := filepath.Join(filepath.Dir(path), name[1])
	part := func(n uint64) string { return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, n+1, count) }
	if err := missing(int(count), part); err != nil {
		return nil, err
	}
	files := make([]*File, count)
	files[number] = f
	for n := range files {
		if files[n] == nil {
			if files[n], err = openOne(part(uint64(n)), mapping); err == nil {
				err = files[n].expect(uint64(n), f)
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", filepath.Base(part(uint64(n))), err)
				break
			}
		}
	}
	if err == nil {
		err = files[0].merge(files[1:])
	}
	if err != nil {
		for _, p := range files {
			if p != nil && p != f { // f is its opener's to close
				p.Close()
			}
		}
		return nil, err
	}
	return files[0], nil
}

// missing names the parts that are not there.
func missing(count int, part func(uint64) string) error {
	const most = 8 // names in the message
	var names []string
	gone := 0
	for n := range count {
		if _, err := os.Stat(part(uint64(n))); errors.Is(err, os.ErrNotExist) {
			if gone++; gone <= most {
				names = append(names, filepath.Base(part(uint64(n))))
			}
		}
	}
	if gone == 0 {
		return nil
	}
	list := strings.Join(names, ", ")
	if gone > most {
		list += ", ..."
	}
	return fmt.Errorf("%w: %d of %d: %s", ErrMissingPart, gone, count, list)
}

// expect checks that the file says that it is this part of the model that first is a part of.
func (f *File) expect(number uint64, first *File) error {
	n, err := f.Uint(splitNumber)
	if err != nil {
		return err
	}
	count, err := f.UintOr(splitCount, 1)
	if err != nil {
		return err
	}
	if n != number {
		return fmt.Errorf("%w: says that it is part %d of %d, by key %q", ErrInvalid, n+1, count, splitNumber)
	}
	for _, key := range []string{splitCount, splitTensors} {
		want, err := first.UintOr(key, 0)
		if err != nil {
			return err
		}
		got, err := f.UintOr(key, 0)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%w: key %q is %d, and %d in another part", ErrInvalid, key, got, want)
		}
	}
	return nil
}

// merge adds the tensors of the other parts.
func (f *File) merge(others []*File) error {
	for i, p := range others {
		for _, t := range p.tensors {
			if _, dup := f.byName[t.Name]; dup {
				return fmt.Errorf("%w: tensor %s is there twice", ErrInvalid, Quote(t.Name))
			}
			t.part = i + 1
			f.byName[t.Name] = len(f.tensors)
			f.tensors = append(f.tensors, t)
		}
	}
	if f.Has(splitTensors) {
		want, err := f.Uint(splitTensors)
		if err != nil {
			return err
		}
		if want != uint64(len(f.tensors)) {
			return fmt.Errorf("%w: the %d parts have %d tensors, not the %d of key %q", ErrInvalid, len(others)+1, len(f.tensors), want, splitTensors)
		}
	}
	f.others = others
	return nil
}

// file returns the part that holds a tensor, nil where there is no such part.
func (f *File) file(t *Tensor) *File {
	switch {
	case t.part == 0:
		return f
	case t.part <= len(f.others):
		return f.others[t.part-1]
	}
	return nil
}

// Bytes returns the size of the file, or of all files of a split model.
func (f *File) Bytes() int64 {
	n := f.Size
	for _, p := range f.others {
		n += p.Size
	}
	return n
}
