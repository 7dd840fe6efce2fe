package main

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
)

func TestBenchFormats(t *testing.T) {
	m := reciter(t)
	bench := func(more ...string) string {
		t.Helper()
		status, out, errs := command(t, "", append([]string{"bench", "-m", m, "--device", "cpu", "-p", "8", "-n", "4", "-r", "2"}, more...)...)
		if status != 0 {
			t.Fatalf("%q: exit %d, %s", more, status, errs)
		}
		return out
	}
	var list []map[string]any
	if err := json.Unmarshal([]byte(bench("-o", "json")), &list); err != nil || len(list) != 2 {
		t.Fatal(err, list)
	}
	for _, key := range []string{"n_prompt", "n_gen", "n_depth", "avg_ts", "stddev_ts", "avg_ns", "model_filename", "build_commit", "samples_ts", "ours", "case"} {
		if _, ok := list[0][key]; !ok {
			t.Errorf("no %s in %v", key, list[0])
		}
	}
	if list[0]["n_prompt"] != 8.0 || list[0]["n_gen"] != 0.0 || list[1]["n_gen"] != 4.0 || list[0]["model_filename"] != m || len(list[0]["samples_ts"].([]any)) != 2 {
		t.Errorf("%v", list)
	}
	if out := bench("-o", "md"); strings.Count(out, "\n") != 4 || !strings.Contains(out, "| pp8 |") {
		t.Errorf("%s", out)
	}
	rows, err := csv.NewReader(strings.NewReader(bench("-o", "csv"))).ReadAll()
	if err != nil || len(rows) != 3 || rows[0][0] != "suite" || strings.Contains(strings.Join(rows[1], " "), "e+") {
		t.Errorf("%v, %q", err, rows)
	}
	lines := bench("-o", "jsonl")
	if strings.Count(lines, "\n") != 2 {
		t.Errorf("%q", lines)
	}

	a := write(t, "a.jsonl", []byte(lines))
	peer := write(t, "llama-bench.json", []byte(`[{"model_filename": "x.gguf", "n_prompt": 8, "n_gen": 0, "avg_ts": 2, "stddev_ts": 0}]`))
	status, out, errs := command(t, "", "bench", "--compare", a, a)
	if status != 0 || strings.Count(out, "1.000x") != 2 {
		t.Errorf("exit %d, %q, %q", status, out, errs)
	}
	if status, out, errs = command(t, "", "bench", "--compare", a, peer); status != 0 || !strings.Contains(out, "pp8") {
		t.Errorf("exit %d, %q, %q", status, out, errs)
	}
	first, _, _ := strings.Cut(lines, "\n")
	x, y := write(t, "x.jsonl", []byte(lines)), write(t, "y.jsonl", []byte(first))
	for _, files := range [][]string{{x, y}, {y, x}} { // a case that only one of them has
		status, out, errs = command(t, "", append([]string{"bench", "--compare"}, files...)...)
		if status != 0 || strings.Count(out, "1.000x") != 1 || !regexp.MustCompile(`tg4 .* - .* -\n`).MatchString(out) {
			t.Errorf("exit %d, %q, %q", status, out, errs)
		}
	}
	for _, args := range [][]string{{a}, {a, reciter(t)}, {a, "/nowhere"}, {a, write(t, "other", []byte(`{"case": "else", "ours": 1, "unit": "us"}`))}} {
		if status, out, errs = command(t, "", append([]string{"bench", "--compare"}, args...)...); status == 0 || out != "" {
			t.Errorf("%q: exit %d, %q, %q", args, status, out, errs)
		}
	}
}

func TestSequencesOfABenchHaveAdaptersInTurn(t *testing.T) {
	all := []vibrant.ActiveAdapter{{Scale: 1}, {Scale: 2}, {Scale: 3}}
	for i := range 7 {
		if of := adaptersOf(all, i); len(of) != 1 || of[0] != all[i%3] {
			t.Errorf("sequence %d: %v", i, of)
		}
	}
	if of := adaptersOf(nil, 1); len(of) != 0 {
		t.Errorf("without adapters: %v", of)
	}
	m, adapter := reciter(t), write(t, "adapter.gguf", testmodel.ReciterAdapter(5))
	status, out, errs := command(t, "", "bench", "-m", m, "--device", "cpu", "--lora", adapter, "--lora", adapter+":0.5", "--parallel", "3", "-p", "8", "-n", "2", "-r", "1", "--json")
	if status != 0 || !strings.Contains(out, "x 3") {
		t.Errorf("status %d, %q, %s", status, out, errs)
	}
}

func TestBenchWritesATrace(t *testing.T) {
	m := reciter(t)
	for _, args := range [][]string{{"-p", "8", "-n", "4", "-r", "1"}, {"--parallel", "2", "-p", "8", "-n", "2", "-r", "1"}} {
		path := filepath.Join(t.TempDir(), "trace.json")
		status, _, errs := command(t, "", append([]string{"bench", "-m", m, "--device", "cpu", "--trace", path}, args...)...)
		if status != 0 || !strings.Contains(errs, "roofline") {
			t.Fatalf("%q: exit %d, %s", args, status, errs)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var trace struct {
			TraceEvents []struct {
				Name, Ph string
				Dur      float64
			}
		}
		if err := json.Unmarshal(data, &trace); err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, e := range trace.TraceEvents {
			found[e.Name] = found[e.Name] || e.Ph == "X" && e.Dur >= 0
		}
		if !found["Linear"] && !found["NormLinear"] || !found["Embedding"] {
			t.Errorf("%q: operations %v", args, found)
		}
	}
	for _, path := range []string{"", "/nowhere/trace.json"} {
		status, _, errs := command(t, "", "bench", "-m", m, "--device", "cpu", "-p", "4", "-n", "0", "-r", "1", "--trace", path)
		if status == 0 || !strings.Contains(errs, "trace") {
			t.Errorf("--trace %q: exit %d, %s", path, status, errs)
		}
	}
}

func TestRooflinesAboveMemoryAreMarked(t *testing.T) {
	for _, c := range []struct {
		percent, bytes float64
		text, note     string
	}{{81.25, 1e6, "81.2 %", ""}, {250, 1e6, "in cache", inCache}, {120, 8e8, "> 100 %", disturbed}} {
		f := figure{}
		f.setRoofline(c.percent, c.bytes)
		if text := rooflineText(c.percent, c.bytes); f.Note != c.note || text != c.text || *f.Roofline != c.percent {
			t.Errorf("%v: %q, %+v", c, text, f)
		}
	}
}

// TestBenchChecksAnOperationOfGivenSizes has an error below any rounding fail, and the operation's own pass.
func TestBenchChecksAnOperationOfGivenSizes(t *testing.T) {
	ops := []string{"bench", "--device", "cpu", "--ops", "^FusedUpdate/bem_128", "--dims", "5,48,40,8", "--check"}
	status, out, errs := command(t, "", ops...)
	if status != 0 || !strings.Contains(out, "given_5x48x40x8_F16_codes") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	_, out, _ = command(t, "", append(ops, "--jsonl")...)
	if !strings.Contains(out, "--ops '^FusedUpdate/bem_128' --dims 5,48,40,8 --device cpu") {
		t.Errorf("the command of a figure lacks what was given: %s", out)
	}
	if status, out, errs = command(t, "", append(ops, "--rtol", "1e-12")...); status == 0 || !strings.Contains(errs, "relative RMS error") {
		t.Errorf("an error above --rtol: status %d, %s%s", status, out, errs)
	}
	if status, _, errs = command(t, "", append(ops, "--dims", "5,48,40")...); status == 0 || !strings.Contains(errs, "4") {
		t.Errorf("three dimensions of four: status %d, %s", status, errs)
	}
	for _, dims := range []string{"9223372036854775807,9223372036854775807,1", "4611686018427387904,1,4", "3000000,3000000,1"} {
		if status, _, errs = command(t, "", "bench", "--device", "cpu", "--ops", "^MatMul/", "--dims", dims); status == 0 || !strings.Contains(errs, "GB of memory") {
			t.Errorf("dimensions %s: status %d, %s", dims, status, errs)
		}
	}
}

func TestNumbersOfBenchAreThoseOfLlamaBench(t *testing.T) {
	for _, c := range []struct {
		typed []string
		want  []int
	}{
		{nil, []int{7}},
		{[]string{"512"}, []int{512}},
		{[]string{"1,2", "3"}, []int{1, 2, 3}},
		{[]string{"128-512+128"}, []int{128, 256, 384, 512}},
		{[]string{"1-20*4,5"}, []int{1, 4, 16, 5}},
		{[]string{"3-5"}, []int{3, 4, 5}},
	} {
		var got []int
		v := newCounts(&got, []int{7})
		for _, text := range c.typed {
			if err := v.Set(text); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, want %v", c.typed, got, c.want)
		}
	}
}
