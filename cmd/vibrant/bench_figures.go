package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vibrant-ml/vibrant"
)

// figure is one measurement, in the form in which the project keeps them: ours beside a peer's where there is one.
type figure struct {
	Suite    string   `json:"suite"`
	Case     string   `json:"case"`
	Kernel   string   `json:"kernel,omitempty"` // of an operation, where the device says
	Ours     float64  `json:"ours"`
	Peer     *float64 `json:"peer"`
	Unit     string   `json:"unit"`
	Ratio    *float64 `json:"ratio"`            // ours against the peer, above 1 is better
	Roofline *float64 `json:"roofline"`         // percent of what the device's measured ceilings allow
	Error    *float64 `json:"error"`            // the greatest deviation from the reference, where it was checked
	Reason   string   `json:"reason,omitempty"` // why there is no figure
	Note     string   `json:"note,omitempty"`   // what to know about it
	Device   string   `json:"device"`
	Command  string   `json:"command"`

	*ModelRun // of a model; nil for operations
}

// ModelRun (exported for package json) holds what llama-bench says of a measurement, under its names.
type ModelRun struct {
	Build     string    `json:"build_commit"`
	Model     string    `json:"model_filename"`
	Type      string    `json:"model_type"`
	Size      int64     `json:"model_size"`
	Params    int64     `json:"model_n_params"`
	Backends  string    `json:"backends"`
	Threads   int       `json:"n_threads"` // 0: one a core
	Batch     int       `json:"n_batch"`   // 0: by the device
	TypeK     string    `json:"type_k"`
	TypeV     string    `json:"type_v"`
	Prompt    int       `json:"n_prompt"`
	Gen       int       `json:"n_gen"`
	Depth     int       `json:"n_depth"`
	Parallel  int       `json:"n_parallel"`
	TestTime  string    `json:"test_time"`
	AvgNs     int64     `json:"avg_ns"`
	StddevNs  int64     `json:"stddev_ns"`
	AvgTs     float64   `json:"avg_ts"`    // tokens a second, mean
	StddevTs  float64   `json:"stddev_ts"` // of a single repetition
	SamplesTs []float64 `json:"samples_ts"`
}

// newModelRun describes a measurement of so many tokens, at these rates.
func newModelRun(m *modelFlags, info vibrant.Info, prompt, gen, depth, parallel int, rates []float64) *ModelRun {
	r := &ModelRun{Build: build(), Model: m.model, Type: info.Architecture, Size: info.Memory.Weights, Params: info.Parameters,
		Backends: info.Device.Backend, Threads: m.threads, Batch: m.batch, TypeK: string(info.KVType), TypeV: string(info.KVType),
		Prompt: prompt, Gen: gen, Depth: depth, Parallel: parallel, TestTime: time.Now().UTC().Format(time.RFC3339), SamplesTs: rates}
	var times []float64
	for _, rate := range rates {
		times = append(times, 1e9*float64((prompt+gen)*parallel)/rate)
	}
	r.AvgTs, r.StddevTs = meanAndDeviation(rates)
	avg, deviation := meanAndDeviation(times)
	r.AvgNs, r.StddevNs = int64(avg), int64(deviation)
	return r
}

// build names what was measured: the version, and the revision where it was built from a repository.
func build() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return vibrant.Version + "-" + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return vibrant.Version
}

// meanAndDeviation returns the mean and the standard deviation of a sample; the latter is 0 of a single value.
func meanAndDeviation(x []float64) (mean, deviation float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		deviation += (v - mean) * (v - mean)
	}
	if len(x) < 2 {
		return mean, 0
	}
	return mean, math.Sqrt(deviation / float64(len(x)-1))
}

// test names a measurement as llama-bench does: pp512, tg128 @ d4096.
func (r *ModelRun) test() string {
	name := fmt.Sprintf("pp%d", r.Prompt)
	if r.Gen > 0 {
		name = fmt.Sprintf("tg%d", r.Gen)
	}
	if r.Depth > 0 {
		name += fmt.Sprintf(" @ d%d", r.Depth)
	}
	if r.Parallel > 1 {
		name += fmt.Sprintf(" x %d", r.Parallel)
	}
	return name
}

// Notes of rooflines that memory could not allow.
const (
	inCache   = "the working set fits a cache: it is not read from memory"
	disturbed = "the machine was slower while its bandwidth was measured: others used it"
)

// largestCache is more than the caches of nearly all machines hold, in bytes.
const largestCache = 256 << 20

// setRoofline gives a figure its percentage, and says why where memory does not allow it. bytes is the size of the working set.
func (f *figure) setRoofline(percent, bytes float64) {
	f.Roofline = &percent
	switch {
	case percent <= 100:
	case bytes < largestCache:
		f.Note = inCache
	default:
		f.Note = disturbed
	}
}

// rooflineText is the percentage in a table. One that memory does not allow is no figure.
func rooflineText(percent, bytes float64) string {
	switch {
	case percent <= 100:
		return fmt.Sprintf("%.1f %%", percent)
	case bytes < largestCache:
		return "in cache"
	default:
		return "> 100 %"
	}
}

// figureWriter prints figures in the format of --output.
type figureWriter struct {
	out     io.Writer
	format  string // "", md, csv, json or jsonl
	command string
	all     []figure
}

func (w *figureWriter) emit(f figure) error {
	if f.Command == "" {
		f.Command = w.command
	}
	if w.format == "jsonl" {
		return writeJSON(w.out, f)
	}
	w.all = append(w.all, f)
	return nil
}

// quiet reports whether the table for people is left out.
func (w *figureWriter) quiet() bool { return w.format != "" }

// finish prints what is not printed yet, also after an interrupt.
func (w *figureWriter) finish() error {
	switch w.format {
	case "json":
		if w.all == nil {
			w.all = []figure{}
		}
		return writeJSON(w.out, w.all)
	case "md":
		fmt.Fprintln(w.out, "| model | size | params | backend | test | t/s |")
		fmt.Fprintln(w.out, "| --- | ---: | ---: | --- | ---: | ---: |")
		for _, f := range w.all {
			if r := f.ModelRun; r != nil {
				fmt.Fprintf(w.out, "| %s | %s | %s | %s | %s | %.2f ± %.2f |\n", strings.ReplaceAll(oneLine(r.Type), "|", `\|`), byteSize(r.Size),
					quantity(float64(r.Params)), r.Backends, r.test(), r.AvgTs, r.StddevTs)
			} else {
				fmt.Fprintf(w.out, "|  |  |  |  | %s | %.2f %s |\n", strings.ReplaceAll(f.Case, "|", `\|`), f.Ours, f.Unit)
			}
		}
	case "csv":
		return writeCSV(w.out, w.all)
	}
	return nil
}

// writeCSV writes the keys of the JSON form as columns, in their order.
func writeCSV(out io.Writer, figures []figure) error {
	w := csv.NewWriter(out)
	var header []string
	for _, f := range figures {
		b, err := json.Marshal(f)
		if err != nil {
			return err
		}
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber() // 7340992, not 7.340992e+06
		d.Token()     // {
		values := map[string]string{}
		var keys []string
		for d.More() {
			key, _ := d.Token()
			var v any
			if err := d.Decode(&v); err != nil {
				return err
			}
			keys = append(keys, key.(string))
			switch v := v.(type) {
			case nil:
			case json.Number:
				values[key.(string)] = v.String()
			case string:
				values[key.(string)] = v
			default:
				b, _ := json.Marshal(v)
				values[key.(string)] = string(b)
			}
		}
		keys = slices.DeleteFunc(keys, func(k string) bool { return k == "note" || k == "reason" || k == "kernel" }) // where there are some
		if header == nil {
			header = keys
			if err := w.Write(header); err != nil {
				return err
			}
		}
		row := make([]string, len(header))
		for i, k := range header {
			row[i] = values[k]
		}
		if err := w.Write(row); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// compareFigures prints what two runs measured, side by side, with a dash where one of them lacks a case. They are files of
// --output json or jsonl, ours or llama-bench's.
func compareFigures(ctx context.Context, out io.Writer, pathA, pathB string) error {
	a, err := readFigures(ctx, pathA)
	if err != nil {
		return err
	}
	b, err := readFigures(ctx, pathB)
	if err != nil {
		return err
	}
	name := func(f figure) string { return f.Case }
	if isForeign := func(f figure) bool { return f.Case == "" }; slices.ContainsFunc(slices.Concat(a, b), isForeign) {
		name = func(f figure) string { // other programs name models in their own way
			if f.ModelRun == nil {
				return f.Case
			}
			return f.test()
		}
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "case\tA\tB\tunit\tB against A\t")
	matched, common := make([]bool, len(b)), 0
	for _, x := range a {
		i := slices.IndexFunc(b, func(y figure) bool { return name(x) == name(y) && x.Unit == y.Unit && x.Ours > 0 && y.Ours > 0 })
		if i < 0 {
			fmt.Fprintf(t, "%s\t%.2f\t-\t%s\t-\t\n", oneLine(name(x)), x.Ours, oneLine(x.Unit))
			continue
		}
		ratio := b[i].Ours / x.Ours
		if x.Unit == "us" || x.Unit == "ms" { // less is better
			ratio = 1 / ratio
		}
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%s\t%.3fx\t\n", oneLine(name(x)), x.Ours, b[i].Ours, oneLine(x.Unit), ratio)
		matched[i] = true
		common++
	}
	for i, y := range b {
		if !matched[i] {
			fmt.Fprintf(t, "%s\t-\t%.2f\t%s\t-\t\n", oneLine(name(y)), y.Ours, oneLine(y.Unit))
		}
	}
	if common == 0 {
		return fmt.Errorf("%s and %s have no case in common", pathA, pathB)
	}
	return t.Flush()
}

func readFigures(ctx context.Context, path string) ([]figure, error) {
	b, err := readText(ctx, path, os.Stdin)
	if err != nil {
		return nil, err
	}
	var all []figure
	d := json.NewDecoder(bytes.NewReader(b))
	for {
		var raw json.RawMessage
		if err = d.Decode(&raw); err == io.EOF {
			break
		}
		var some []figure
		if err == nil && bytes.HasPrefix(raw, []byte("[")) {
			err = json.Unmarshal(raw, &some)
		} else if err == nil {
			some = make([]figure, 1)
			err = json.Unmarshal(raw, &some[0])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: no figures of bench --output json or jsonl: %w", path, err)
		}
		all = append(all, some...)
	}
	for i, f := range all {
		if f.Case == "" && f.ModelRun != nil {
			all[i].Ours, all[i].Unit = f.AvgTs, "tok/s"
		}
	}
	return all, nil
}
