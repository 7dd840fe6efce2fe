// Package pages reads the commands that the Markdown pages of the project show, for tests that hold them against the programs.
package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Command is one of the commands of a page: a program and its arguments, or what a shell is asked to set before.
type Command struct {
	Page        string
	Environment []string // NAME=VALUE
	Words       []string // the program first
}

// Read returns the pages below root by their paths. Pages of history, which say what was there once, are left out.
func Read(root string) (map[string]string, error) {
	texts := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(relative)
		if entry.IsDir() {
			if hidden := strings.HasPrefix(entry.Name(), ".") && name != "."; hidden || name == "build" || name == "docs/experiments" {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".md" || name == "CHANGELOG.md" {
			return nil
		}
		text, err := os.ReadFile(path)
		texts[name] = string(text)
		return err
	})
	return texts, err
}

var (
	fence = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```")
	span  = regexp.MustCompile("`([^`]+)`")
	// Programs that commands of the pages begin with.
	program    = regexp.MustCompile(`^(make|go|python3|vibrant|bin/vibrant|scripts/.*|build/gpu-bundle/run\.sh)$`)
	assignment = regexp.MustCompile(`^[A-Z_][A-Z_0-9]*=`)
)

// Commands returns the commands of a page: those of its indented and fenced lines and those between backquotes.
func Commands(page, text string) (all []Command) {
	add := func(line string) {
		for _, words := range split(line) {
			for at, word := range words {
				if program.MatchString(word) {
					before := slices.DeleteFunc(slices.Clone(words[:at]), func(w string) bool { return !assignment.MatchString(w) })
					all = append(all, Command{page, before, words[at:]})
					break
				}
			}
		}
	}
	text = strings.ReplaceAll(text, "\\\n", " ")
	prose := fence.ReplaceAllStringFunc(text, func(block string) string {
		if m := fence.FindStringSubmatch(block); m[1] == "" || m[1] == "sh" {
			for line := range strings.Lines(m[2]) {
				add(line)
			}
		}
		return ""
	})
	for line := range strings.Lines(prose) {
		if strings.HasPrefix(line, "    ") && !strings.Contains(line, "`") {
			add(line)
		}
	}
	for _, m := range span.FindAllStringSubmatch(prose, -1) {
		if words := split(m[1]); len(words) > 0 && len(words[0]) > 0 && (program.MatchString(words[0][0]) || assignment.MatchString(words[0][0])) {
			add(strings.ReplaceAll(m[1], `\|`, "|")) // in a table
		}
	}
	return all
}

// split divides a line of a shell into commands and their words. A comment ends it.
func split(line string) (commands [][]string) {
	var words []string
	word, begun, quote := "", false, rune(0)
	endWord := func() {
		if begun {
			words = append(words, word)
		}
		word, begun = "", false
	}
	endCommand := func() {
		endWord()
		if words != nil {
			commands = append(commands, words)
		}
		words = nil
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case strings.ContainsRune(" \t\n", r):
			endWord()
		case r == '#' && !begun:
			endCommand()
			return commands
		case strings.ContainsRune("&|;<>", r):
			endCommand()
		default:
			word, begun = word+string(r), true
		}
	}
	endCommand()
	return commands
}
