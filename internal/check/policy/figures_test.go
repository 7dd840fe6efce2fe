package policy

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestTablesAreThoseOfTheSavedFigures has scripts/report_benchmarks.py write the tables of docs/benchmarks.md again, in another folder.
func TestTablesAreThoseOfTheSavedFigures(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	page := readPages(t)["docs/benchmarks.md"]
	saved, err := filepath.Abs(filepath.Join(root, "docs", "benchmarks"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(saved, filepath.Join(dir, "benchmarks")); err != nil {
		t.Skip(err)
	}
	copied := filepath.Join(dir, "benchmarks.md")
	if err := os.WriteFile(copied, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(root, "scripts", "report_benchmarks.py")
	if out, err := exec.Command(python, script, "--no-plots", "--docs", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	renewed, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	if string(renewed) != page {
		t.Error("docs/benchmarks.md has other figures than docs/benchmarks: run scripts/report_benchmarks.py")
	}
}

// figuresOf reads every number of the saved figures.
func figuresOf(t *testing.T) (all []float64) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "benchmarks", "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatal("no figures", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var figure map[string]any
			if err := json.Unmarshal([]byte(line), &figure); err != nil {
				t.Fatalf("%s: %v in %.80q", file, err, line)
			}
			for _, value := range figure {
				if number, ok := value.(float64); ok {
					all = append(all, number)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

var (
	figureCell = regexp.MustCompile(`^\d[\d,]*\.?\d*( us| ms)?$|^\d[\d,]* : \d[\d,]*$`)
	figureText = regexp.MustCompile(`\d[\d,]*\.?\d*`)
)

// isSaved says whether a number, as a page rounds it, is one of the saved figures, in their unit or one a thousand times as long.
func isSaved(saved []float64, text string) bool {
	text = strings.ReplaceAll(text, ",", "")
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return false
	}
	_, decimals, _ := strings.Cut(text, ".")
	half := 0.5001 * math.Pow10(-len(decimals))
	for _, unit := range []float64{1, 1000} {
		at, _ := slices.BinarySearch(saved, (number-half)*unit)
		if at < len(saved) && saved[at] <= (number+half)*unit {
			return true
		}
	}
	return false
}

// unsaved names the cells of tables that are a figure alone, of three digits or more, and that nothing of the kind is saved of. Shorter
// figures would be found by chance.
func unsaved(saved []float64, texts map[string]string) (all []string) {
	for page, text := range texts {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			if !strings.HasPrefix(line, "|") || i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|---") { // the head of a table
				continue
			}
			for _, cell := range strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")[1:] {
				if cell = strings.TrimSpace(cell); !figureCell.MatchString(cell) {
					continue
				}
				for _, number := range figureText.FindAllString(cell, -1) {
					if len(strings.Trim(number, "0"))-strings.Count(number, ",")-strings.Count(number, ".") >= 3 && !isSaved(saved, number) {
						all = append(all, page+": "+number+" in "+strings.TrimSpace(line))
					}
				}
			}
		}
	}
	return all
}

// TestFiguresOfTablesAreSaved holds the tables of speed of README and docs. Other tables have numbers of other kinds.
func TestFiguresOfTablesAreSaved(t *testing.T) {
	texts, saved := readPages(t), figuresOf(t)
	speed := map[string]string{}
	for _, page := range []string{"README.md", "docs/benchmarks.md", "docs/models.md", "docs/ptx.md", "docs/tensor.md", "docs/ternary.md", "docs/fused-update.md"} {
		speed[page] = texts[page]
	}
	for _, wrong := range unsaved(saved, speed) {
		t.Error(wrong)
	}
	for bad, want := range map[string]int{"| add | 8,765.4321 |": 1, "| add | 12,345,678 us | 2,180 |": 1, "| add | 1 |": 0, "8,765.4321": 0} {
		if got := unsaved(saved, map[string]string{"README.md": bad}); len(got) != want {
			t.Errorf("%s: %v", bad, got)
		}
	}
}

// TestSuitesAreListed holds the first table of docs/benchmarks.md to the files of figures.
func TestSuitesAreListed(t *testing.T) {
	page := readPages(t)["docs/benchmarks.md"]
	_, table, _ := strings.Cut(page, "\n| suite |")
	table, _, _ = strings.Cut(table, "\n\n")
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([a-z0-9_, ]+) \|`).FindAllStringSubmatch(table, -1) {
		listed = append(listed, strings.Split(m[1], ", ")...)
	}
	files, err := filepath.Glob(filepath.Join(root, "docs", "benchmarks", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var saved []string
	for _, file := range files {
		saved = append(saved, strings.TrimSuffix(filepath.Base(file), ".jsonl"))
	}
	slices.Sort(listed)
	if !slices.Equal(listed, saved) {
		t.Errorf("docs/benchmarks.md lists %v, docs/benchmarks has %v", listed, saved)
	}
}
