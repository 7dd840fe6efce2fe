package main

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
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
	if err != nil || len(rows) != 3 || rows[0][0] != "suite" {
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
	for _, args := range [][]string{{a}, {a, reciter(t)}, {a, "/nowhere"}, {a, write(t, "other", []byte(`{"case": "else", "ours": 1, "unit": "us"}`))}} {
		if status, out, errs = command(t, "", append([]string{"bench", "--compare"}, args...)...); status == 0 || out != "" {
			t.Errorf("%q: exit %d, %q, %q", args, status, out, errs)
		}
	}
}

func TestRooflinesAboveMemoryAreMarked(t *testing.T) {
	f := figure{}
	f.setRoofline(250)
	if f.Note != inCache || rooflineText(250) != "in cache" || rooflineText(81.25) != "81.2 %" {
		t.Errorf("%+v", f)
	}
}
