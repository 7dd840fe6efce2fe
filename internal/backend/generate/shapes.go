package main

import (
	"fmt"
	"regexp"
	"strings"
)

// memory is what an operand points to.
type memory struct {
	shape    []dim
	element  string // an expression of C: "VB_F32", "type", "kv_type"
	optional bool   // may be NULL
	other    []dim  // the shape where a flag is set, or a pointer not NULL
	where    string
}

// dim is a number of places along an axis and, where they are not without gaps, the elements from one to the next.
type dim struct{ extent, stride string }

// An annotation reads "[rows : stride][cols] of kv_type, or at least [cols] where flag, or NULL for none".
var (
	shapePattern  = regexp.MustCompile(`^((?:\[[^\]]+\])+)(?: of (\w+))?(?:, or (?:at least )?((?:\[[^\]]+\])+) where (\w+))?(?:, (or NULL\b.*|.*))?$`)
	dimPattern    = regexp.MustCompile(`\[((?:[^\]:]|\?:)+?)(?: : ([^\]]+))?\]`)
	clausePattern = regexp.MustCompile(`Shapes: (.*?)\.(?: |$)`)
	subject       = regexp.MustCompile(`^(\w+(?:, \w+)*) (\[.*)$`)
)

func parseMemory(note string) (*memory, error) {
	m := shapePattern.FindStringSubmatch(note)
	if m == nil {
		return nil, fmt.Errorf("%q is no shape such as [rows][cols]", note)
	}
	return &memory{shape: dims(m[1]), element: m[2], other: dims(m[3]), where: m[4], optional: strings.Contains(m[5], "or NULL")}, nil
}

func dims(text string) (all []dim) {
	for _, m := range dimPattern.FindAllStringSubmatch(text, -1) {
		all = append(all, dim{m[1], m[2]})
	}
	return all
}

// parseShapes returns what the clause "Shapes: out, in [n]; weight [n], or NULL for ones." of a docstring says of each operand.
func parseShapes(doc string) (map[string]*memory, error) {
	all := map[string]*memory{}
	clause := clausePattern.FindStringSubmatch(doc)
	if clause == nil {
		return all, nil
	}
	for _, part := range strings.Split(clause[1], "; ") {
		m := subject.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("shapes: %q does not read NAME, NAME [size][size]", part)
		}
		memory, err := parseMemory(m[2])
		if err != nil {
			return nil, fmt.Errorf("shapes: %w", err)
		}
		for _, name := range strings.Split(m[1], ", ") {
			all[name] = memory
		}
	}
	return all, nil
}
