package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/internal/check/optable"
)

// benchFlags say what of a model is measured.
type benchFlags struct {
	prompts, gens, depths, parallel []int
	repetitions                     int
}

func (b *benchFlags) check() error {
	if b.repetitions < 1 {
		return usagef("--repetitions is %d, want 1 or more", b.repetitions)
	}
	for _, n := range slices.Concat(b.prompts, b.gens, b.depths) {
		if n < 0 || n > 1<<20 {
			return usagef("-p, -n and -d want 0 to %d tokens, not %d", 1<<20, n)
		}
	}
	if len(b.parallel) == 0 && !slices.ContainsFunc(slices.Concat(b.prompts, b.gens), func(n int) bool { return n > 0 }) {
		return usagef("-p 0 and -n 0 leave nothing to measure")
	}
	for _, n := range b.parallel {
		if n < 1 || n > vibrant.MaxBatch {
			return usagef("--parallel wants 1 to %d sequences, not %d", vibrant.MaxBatch, n)
		}
	}
	return nil
}

// checkChoice checks the flags that belong to --ops.
func checkChoice(cmd *cobra.Command, ops optable.Choice) error {
	for _, name := range []string{"dims", "check", "rtol"} {
		if cmd.Flags().Changed(name) && ops.Match == "" {
			return usagef("--%s wants --ops", name)
		}
	}
	for _, n := range ops.Dims {
		if n < 0 {
			return usagef("--dims wants numbers of 0 or more, not %d", n)
		}
	}
	if !(ops.RTol >= 0) || ops.RTol > 0 && !ops.Check {
		return usagef("--rtol is %v, want a number above 0 and --check", ops.RTol)
	}
	return nil
}

func benchCommand() *cobra.Command {
	var m modelFlags
	var b benchFlags
	var ops optable.Choice
	var format string
	var trace string
	var asJSON, lines, compare bool
	c := &cobra.Command{
		Use:   "bench | bench --compare A B",
		Short: "Measure prompt (pp) and generation (tg) speed of a model, or with --ops of single operations",
		Example: "  vibrant bench -m model.gguf\n" +
			"  vibrant bench -m model.gguf -p 512,2048 -n 128 -d 0,8192 --jsonl\n" +
			"  vibrant bench -m model.gguf --parallel 1,8,32\n" +
			"  vibrant bench --ops '^Softmax/' --device cpu\n" +
			"  vibrant bench --compare before.jsonl after.jsonl",
		Long: "Measure prompt (pp) and generation (tg) speed of a model as llama-bench does: random tokens, a cache that holds --depth\n" +
			"tokens, the median of the repetitions after one that is not counted. The roofline of generation is the time that reading\n" +
			"its bytes would take at the bandwidth measured in the same run.\n\n" +
			"With --parallel, as llama-batched-bench does: so many sequences generate together, after a prompt of -p tokens each.\n" +
			"Of several --lora the sequences have one each, in turn.\n\n" +
			"With --trace FILE, operations are timed one by one, which is slower, and written as a trace that ui.perfetto.dev opens.\n\n" +
			"With --compare A B, two files of --output json or jsonl (ours, or llama-bench's) are shown side by side.",
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := b.check(); err != nil {
				return err
			}
			if compare {
				if len(args) != 2 {
					return usagef("--compare wants two files, not %d", len(args))
				}
				if format != "" || asJSON || lines {
					return usagef("--compare prints a table: --output is of measurements")
				}
				return compareFigures(cmd.Context(), cmd.OutOrStdout(), args[0], args[1])
			}
			if len(args) > 0 {
				return usagef("bench takes no argument %q (the model is -m FILE)", args[0])
			}
			if _, err := regexp.Compile(ops.Match); err != nil {
				return usagef("--ops: %v", err)
			}
			if err := checkChoice(cmd, ops); err != nil {
				return err
			}
			if asJSON {
				format = "json"
			} else if lines {
				format = "jsonl"
			}
			if !slices.Contains([]string{"", "md", "csv", "json", "jsonl"}, format) {
				return usagef("--output is %q, want md, csv, json or jsonl", format)
			}
			var traced *outputFile
			if cmd.Flags().Changed("trace") {
				if trace == "" {
					return usagef("--trace wants a file")
				}
				if traced, err = createOutput(trace, cmd.OutOrStdout(), m.inputs()...); err != nil {
					return fmt.Errorf("--trace: %w", err)
				}
				defer traced.discard()
				m.profiling = true
			}
			w := &figureWriter{out: cmd.OutOrStdout(), format: format, command: commandLine(cmd)}
			switch {
			case ops.Match != "":
				err = benchOps(cmd, &m, ops, traced, w)
			case len(b.parallel) > 0:
				err = benchParallel(cmd, &m, &b, traced, w)
			default:
				err = benchModel(cmd, &m, &b, traced, w)
			}
			// An interrupt leaves what was measured until then.
			if err == nil || errors.Is(err, context.Canceled) && len(w.all) > 0 {
				if e := w.finish(); err == nil {
					err = e
				}
			}
			return err
		},
	}
	m.add(c)
	m.addRanks(c, "ops", "compare")
	f := c.Flags()
	f.VarP(newCounts(&b.prompts, []int{512}), "prompt", "p", "lengths of prompts, 0 for none")
	f.VarP(newCounts(&b.gens, []int{128}), "gen", "n", "numbers of tokens to generate, 0 for none")
	f.VarP(newCounts(&b.depths, []int{0}), "depth", "d", "tokens that the cache holds before")
	f.Var(newCounts(&b.parallel, nil), "parallel", "measure so many sequences that generate together (1 to 64)")
	f.IntVarP(&b.repetitions, "repetitions", "r", 5, "repetitions of each measurement")
	f.IntSliceVar(&ops.Dims, "dims", nil, "with --ops: these dimensions in place of the cases' own, as in 4096,768,768,8; again for more")
	f.BoolVar(&ops.Check, "check", false, "with --ops: compare with float64 also where that takes long, and fail where they differ")
	f.Float64Var(&ops.RTol, "rtol", 0, "with --check: the relative RMS error that is allowed (0: the operation's own tolerance)")
	f.StringVar(&ops.Match, "ops", "", "measure the operations whose name (Op/case) matches this regular expression, instead of a model")
	f.StringVarP(&format, "output", "o", "", "format: md, csv, json or jsonl (default: a table)")
	f.BoolVar(&asJSON, "json", false, "print a JSON list of figures, as -o json")
	f.BoolVar(&lines, "jsonl", false, "print a figure a line as JSON, as -o jsonl")
	f.StringVar(&trace, "trace", "", "time each operation on the device, and write a trace for ui.perfetto.dev to this file")
	c.MarkFlagFilename("trace", "json")
	f.BoolVar(&compare, "compare", false, "compare two files of figures")
	complete(c, "output", func() []string { return []string{"md", "csv", "json", "jsonl"} })
	m.addForeign(c.Flags())
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

// openForBench opens a model whose context holds so many tokens.
func openForBench(cmd *cobra.Command, m *modelFlags, tokens int) (*vibrant.Model, error) {
	if m.context == 0 {
		m.context = max(tokens, 1)
	} else if m.context < tokens {
		return nil, usagef("--ctx %d is too small for %d tokens", m.context, tokens)
	}
	return m.open(cmd)
}

// greedyGeneration returns options that generate exactly n tokens.
func greedyGeneration(n int) vibrant.Generation {
	g := vibrant.DefaultGeneration()
	g.Temperature, g.IgnoreEOS, g.MaxTokens = 0, true, n
	return g
}

// counts are numbers as llama-bench takes them: lists, and ranges such as 128-512+128 and 1-64*2. What is typed replaces the default.
type counts struct {
	n     *[]int
	typed bool
}

func newCounts(n *[]int, standard []int) *counts {
	*n = standard
	return &counts{n: n}
}

var countRange = regexp.MustCompile(`^(\d+)-(\d+)(?:([+*])(\d+))?$`)

func (c *counts) Set(text string) error {
	var all []int
	for _, word := range strings.Split(text, ",") {
		number := func(s string) (n int) {
			n, _ = strconv.Atoi(s) // 0 beyond what an int holds, which ends no range
			return n
		}
		if n, err := strconv.Atoi(word); err == nil {
			all = append(all, n)
			continue
		}
		part := countRange.FindStringSubmatch(word)
		if part == nil {
			return fmt.Errorf("%q is neither a number nor a range such as 128-512+128", word)
		}
		first, last, step := number(part[1]), number(part[2]), number(part[4])
		if part[3] == "" {
			step = 1
		}
		if first > last || step < 1 || part[3] == "*" && (step < 2 || first < 1) {
			return fmt.Errorf("the range %q has no end", word)
		}
		for n := first; n <= last; {
			if len(all) == 1000 {
				return fmt.Errorf("%q are more than 1000 numbers", text)
			}
			all = append(all, n)
			if part[3] == "*" {
				n *= step
			} else {
				n += step
			}
		}
	}
	if c.typed {
		all = append(*c.n, all...)
	}
	*c.n, c.typed = all, true
	return nil
}

func (c *counts) Type() string { return "ints" }

func (c *counts) String() string {
	if c.n == nil || len(*c.n) == 0 {
		return ""
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*c.n), " ", ","), "[]")
}

func benchModel(cmd *cobra.Command, m *modelFlags, b *benchFlags, trace *outputFile, figures *figureWriter) (err error) {
	longest := 0
	for _, d := range b.depths {
		for _, n := range b.prompts {
			longest = max(longest, d+n)
		}
		for _, n := range b.gens {
			longest = max(longest, d+n+1)
		}
	}
	model, err := openForBench(cmd, m, longest)
	if err != nil {
		return err
	}
	defer model.Close()
	session, err := model.NewSession()
	if err != nil {
		return err
	}
	defer session.Close()
	if m.profiling {
		defer func() { err = errors.Join(err, writeTrace(cmd, trace, model.Profile)) }()
	}
	info := model.Info()
	bandwidth, err := model.MeasureBandwidth(cmd.Context())
	if err != nil {
		return err
	}

	name := info.Name
	var w io.Writer = cmd.OutOrStdout()
	if figures.quiet() {
		w = io.Discard
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer func() { // also what was measured before an interrupt
		if e := t.Flush(); err == nil {
			err = e
		}
	}()
	status := newProgress(cmd.ErrOrStderr())
	defer status.done()
	fmt.Fprintf(w, "%s, %s, on %s (%s); bandwidth measured %sB/s\n", oneLine(name), byteSize(info.Memory.Weights), info.Device.ID, info.Device.Name, quantity(bandwidth))
	fmt.Fprintln(t, "test\ttok/s\tspread\tbytes/token\troofline\t")
	ids := randomIDs(longest, info.Vocab)
	for _, depth := range b.depths {
		suffix := ""
		if depth > 0 {
			suffix = fmt.Sprintf(" @ d%d", depth)
		}
		for _, n := range b.prompts {
			if n == 0 {
				continue
			}
			test := fmt.Sprintf("pp%d%s", n, suffix)
			rates, err := benchRuns(status, test, b.repetitions, func() (float64, error) {
				if err := session.Reset(); err != nil {
					return 0, err
				}
				if depth > 0 {
					if err := session.Prefill(cmd.Context(), ids[:depth]); err != nil {
						return 0, err
					}
				}
				err := session.Prefill(cmd.Context(), ids[:depth+n])
				return session.Stats().PrefillRate(), err
			})
			if len(rates) > 0 {
				fmt.Fprintf(t, "%s\t%.1f\t%.1f %%\t\t\t\n", test, median(rates), 100*spread(rates))
				err = errors.Join(err, figures.emit(figure{Suite: "model", Case: name + " " + test, Ours: median(rates), Unit: "tok/s", Device: info.Device.Name,
					ModelRun: newModelRun(m, info, n, 0, depth, 1, rates)}))
			}
			if err != nil {
				return err
			}
		}
		for _, n := range b.gens {
			if n == 0 {
				continue
			}
			if err := session.SetGeneration(greedyGeneration(n + 1)); err != nil { // the first token is the prefill's
				return err
			}
			test := fmt.Sprintf("tg%d%s", n, suffix)
			rates, err := benchRuns(status, test, b.repetitions, func() (float64, error) {
				// What is in the cache of these tokens stays there between the repetitions.
				for _, err := range session.CompleteIDs(cmd.Context(), ids[:depth+1]) {
					if err != nil {
						return 0, err
					}
				}
				return session.Stats().DecodeRate(), nil
			})
			if len(rates) > 0 {
				// Of the tokens generated, half of the keys and values are read on average.
				bytes := float64(info.DecodeBytes) + float64(info.CacheBytesPerToken)*(float64(depth)+float64(n)/2)
				roofline := 100 * median(rates) * bytes / bandwidth
				fmt.Fprintf(t, "%s\t%.2f\t%.1f %%\t%sB\t%s\t\n", test, median(rates), 100*spread(rates), quantity(bytes), rooflineText(roofline, bytes))
				f := figure{Suite: "model", Case: name + " " + test, Ours: median(rates), Unit: "tok/s", Device: info.Device.Name,
					ModelRun: newModelRun(m, info, 0, n, depth, 1, rates)}
				f.setRoofline(roofline, bytes)
				err = errors.Join(err, figures.emit(f))
			}
			if err != nil {
				return err
			}
		}
	}
	if m.verbose {
		reportStats(cmd, model, session)
	}
	return nil
}

// benchRuns measures once to warm up and then as often as asked. With an error come the rates that were measured before it.
func benchRuns(status *progress, test string, repetitions int, once func() (float64, error)) ([]float64, error) {
	var rates []float64
	defer status.done()
	defer func() { sort.Float64s(rates) }()
	for i := range repetitions + 1 {
		status.show("%s: run %d of %d", test, i+1, repetitions+1)
		rate, err := once()
		if err != nil {
			return rates, err
		}
		if i > 0 {
			rates = append(rates, rate)
		}
	}
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
