package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vibrant-ml/vibrant"
)

// figure is one measurement, in the form in which the project keeps them: ours beside a peer's where there is one.
type figure struct {
	Suite    string   `json:"suite"`
	Case     string   `json:"case"`
	Ours     float64  `json:"ours"`
	Peer     *float64 `json:"peer"`
	Unit     string   `json:"unit"`
	Ratio    *float64 `json:"ratio"`            // ours against the peer, above 1 is better
	Roofline *float64 `json:"roofline"`         // percent of what the device's measured ceilings allow
	Error    *float64 `json:"error"`            // the greatest deviation from the reference, where it was checked
	Reason   string   `json:"reason,omitempty"` // why there is no figure
	Device   string   `json:"device"`
	Command  string   `json:"command"`
}

func benchCommand() *cobra.Command {
	var m modelFlags
	var prompts, gens []int
	var repetitions int
	var ops string
	var asJSON, lines bool
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure prompt (pp) and generation (tg) speed of a model, or with --ops of single operations",
		Long: "Measure prompt (pp) and generation (tg) speed of a model as llama-bench does: random tokens, an empty cache, the median\n" +
			"of the repetitions after one that is not counted. The roofline of generation is the time that reading its bytes would\n" +
			"take at the bandwidth measured in the same run.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if repetitions < 1 {
				return usagef("--repetitions is %d, want 1 or more", repetitions)
			}
			for _, n := range append(append([]int(nil), prompts...), gens...) {
				if n < 0 || n > 1<<20 {
					return usagef("-p and -n want 0 to %d tokens, not %d", 1<<20, n)
				}
			}
			out := cmd.OutOrStdout()
			var figures []figure
			emit := func(f figure) error {
				if f.Command == "" {
					f.Command = commandLine(cmd)
				}
				if lines {
					return writeJSON(out, f)
				}
				figures = append(figures, f)
				return nil
			}
			if ops != "" {
				if err := benchOps(cmd, &m, ops, emit, asJSON || lines); err != nil {
					return err
				}
			} else if err := benchModel(cmd, &m, prompts, gens, repetitions, emit, asJSON || lines); err != nil {
				return err
			}
			if asJSON {
				if figures == nil {
					figures = []figure{}
				}
				return json.NewEncoder(out).Encode(figures)
			}
			return nil
		},
	}
	m.add(c)
	f := c.Flags()
	f.IntSliceVarP(&prompts, "prompt", "p", []int{512}, "lengths of prompts, 0 for none")
	f.IntSliceVarP(&gens, "gen", "n", []int{128}, "numbers of tokens to generate, 0 for none")
	f.IntVarP(&repetitions, "repetitions", "r", 5, "repetitions of each measurement")
	f.StringVar(&ops, "ops", "", "measure the operations whose name (Op/case) matches this regular expression, instead of a model")
	f.BoolVar(&asJSON, "json", false, "print a JSON list of figures")
	f.BoolVar(&lines, "jsonl", false, "print a figure a line as JSON")
	return c
}

// commandLine returns what was typed, with the model's file by its name alone: figures outlive the folders of a machine.
func commandLine(cmd *cobra.Command) string {
	words := []string{cmd.CommandPath()}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		if f.Name == "model" {
			value = filepath.Base(value)
		}
		words = append(words, "--"+f.Name+"="+strings.Trim(value, "[]"))
	})
	return strings.Join(words, " ")
}

func benchModel(cmd *cobra.Command, m *modelFlags, prompts, gens []int, repetitions int, emit func(figure) error, quiet bool) error {
	longest := 0
	for _, n := range prompts {
		longest = max(longest, n)
	}
	for _, n := range gens {
		longest = max(longest, n+1)
	}
	if m.context == 0 {
		m.context = max(longest, 1)
	} else if m.context < longest {
		return usagef("--ctx %d is too small for %d tokens", m.context, longest)
	}
	model, err := m.open(cmd)
	if err != nil {
		return err
	}
	defer model.Close()
	generation := vibrant.DefaultGeneration()
	generation.Temperature, generation.IgnoreEOS = 0, true
	session, err := model.NewSession(vibrant.WithGeneration(generation))
	if err != nil {
		return err
	}
	defer session.Close()
	info := model.Info()
	bandwidth, err := model.MeasureBandwidth(cmd.Context())
	if err != nil {
		return err
	}

	name := info.Name
	var w io.Writer = cmd.OutOrStdout()
	if quiet {
		w = io.Discard
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s, %s, on %s (%s); bandwidth measured %sB/s\n", name, byteSize(info.Memory.Weights), info.Device.ID, info.Device.Name, quantity(bandwidth))
	fmt.Fprintln(t, "test\ttok/s\tspread\tbytes/token\troofline\t")
	for _, n := range prompts {
		if n == 0 {
			continue
		}
		rates, err := benchRuns(repetitions, func() (float64, error) {
			session.Reset()
			err := session.Prefill(cmd.Context(), randomIDs(n, info.Vocab))
			return session.Stats().PrefillRate(), err
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(t, "pp%d\t%.1f\t%.1f %%\t\t\t\n", n, median(rates), 100*spread(rates))
		err = emit(figure{Suite: "model", Case: fmt.Sprintf("%s pp%d", name, n), Ours: median(rates), Unit: "tok/s", Device: info.Device.Name})
		if err != nil {
			return err
		}
	}
	for _, n := range gens {
		if n == 0 {
			continue
		}
		generation.MaxTokens = n + 1 // the first token is the prefill's
		if err := session.SetGeneration(generation); err != nil {
			return err
		}
		rates, err := benchRuns(repetitions, func() (float64, error) {
			session.Reset()
			for _, err := range session.CompleteIDs(cmd.Context(), randomIDs(1, info.Vocab)) {
				if err != nil {
					return 0, err
				}
			}
			return session.Stats().DecodeRate(), nil
		})
		if err != nil {
			return err
		}
		// Half of the tokens' keys and values are read on average.
		bytes := float64(info.DecodeBytes) + float64(info.CacheBytesPerToken)*float64(n)/2
		roofline := 100 * median(rates) * bytes / bandwidth
		fmt.Fprintf(t, "tg%d\t%.2f\t%.1f %%\t%sB\t%.1f %%\t\n", n, median(rates), 100*spread(rates), quantity(bytes), roofline)
		err = emit(figure{Suite: "model", Case: fmt.Sprintf("%s tg%d", name, n), Ours: median(rates), Unit: "tok/s",
			Roofline: &roofline, Device: info.Device.Name})
		if err != nil {
			return err
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if m.verbose {
		reportStats(cmd, model, session)
	}
	return nil
}

// benchRuns measures once to warm up and then as often as asked.
func benchRuns(repetitions int, once func() (float64, error)) ([]float64, error) {
	var rates []float64
	for i := range repetitions + 1 {
		rate, err := once()
		if err != nil {
			return nil, err
		}
		if i > 0 {
			rates = append(rates, rate)
		}
	}
	sort.Float64s(rates)
	return rates, nil
}

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// spread is half of the range, relative to the median.
func spread(sorted []float64) float64 {
	return (sorted[len(sorted)-1] - sorted[0]) / 2 / math.Max(median(sorted), 1e-300)
}

// randomIDs are the same in every run, so that two programs or two builds measure the same work.
func randomIDs(n, vocab int) []int32 {
	r := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(vocab))
	}
	return ids
}
