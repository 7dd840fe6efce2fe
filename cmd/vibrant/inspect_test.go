package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant"
)

func TestDevicesOfAFitSayWhatTheyHave(t *testing.T) {
	var b strings.Builder
	if err := printDevices(&b, []vibrant.DeviceFit{{Layers: 1}, {Layers: 2, Experts: 3}, {}}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")[2:]
	for i, want := range []string{"1 layer", "2 layers, experts of 3", "a part of every layer"} {
		if !regexp.MustCompile(`^ +` + want + `  `).MatchString(lines[i]) {
			t.Errorf("%q, want %q", lines[i], want)
		}
	}
}
