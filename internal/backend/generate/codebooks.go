package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

var (
	bookPattern = regexp.MustCompile(`#define VB_CODEBOOK_(\w+) \\\n((?:    .*\n)+)`)
	wordPattern = regexp.MustCompile(`0x[0-9a-f]{4}`)
)

// codebooks returns internal/backend/purego/codebooks.go.
func codebooks(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(strings.Replace(goNotice, "vibrant.h", "codebooks.h", 1) + "package purego\n")
	books := bookPattern.FindAllStringSubmatch(string(text), -1)
	for _, m := range books {
		words := wordPattern.FindAllString(m[2], -1)
		fmt.Fprintf(&b, "\nvar codebook%s = [%d]uint16{", strings.ReplaceAll(m[1], "_", ""), len(words))
		for i, w := range words {
			if i%14 == 0 {
				b.WriteString("\n\t")
			}
			b.WriteString(w + ", ")
		}
		b.WriteString("\n}\n")
	}
	if len(books) == 0 {
		return "", fmt.Errorf("%s: no codebooks", path)
	}
	return b.String(), nil
}
