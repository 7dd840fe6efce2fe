package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// The test binary itself is a Go program of this module with its dependencies.
func TestDocumentNamesModules(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := write(out, os.Args[0], "1.2.3", []string{"cuda13"}); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("two documents of one program differ")
	}
	var d document
	if err := json.Unmarshal(first.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	if d.Version != "SPDX-2.3" || d.Creation.Created != "1970-01-02T00:00:00Z" || len(d.Packages) < 3 || len(d.Packages) != len(d.Relationships) {
		t.Errorf("%+v", d)
	}
	for _, p := range d.Packages {
		if p.ID == "" || p.Name == "" || notInIDs.MatchString(strings.TrimPrefix(p.ID, "SPDXRef-")) || p.Location == "" || p.Declared == "" {
			t.Errorf("%+v", p)
		}
	}
}

func TestWhatIsNoProgramIsAnError(t *testing.T) {
	if err := write(&bytes.Buffer{}, "main_test.go", "1", nil); err == nil {
		t.Error("a document of a text")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if err := write(&bytes.Buffer{}, os.Args[0], "1", nil); err == nil || !strings.Contains(err.Error(), "yesterday") {
		t.Errorf("SOURCE_DATE_EPOCH=yesterday: %v", err)
	}
}
