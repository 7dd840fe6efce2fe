package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

// benchParallel measures sequences that generate together: a prompt of each, then one token of all in a pass.
func benchParallel(cmd *cobra.Command, m *modelFlags, b *benchFlags, trace *outputFile, figures *figureWriter) (err error) {
	longest := 0
	for _, p := range b.prompts {
		for _, n := range b.gens {
			longest = max(longest, max(p, 1)+n+1)
		}
	}
	model, err := openForBench(cmd, m, longest)
	if err != nil {
		return err
	}
	defer model.Close()
	if m.profiling {
		defer func() { err = errors.Join(err, writeTrace(cmd, trace, model.Profile)) }()
	}
	info := model.Info()
	bandwidth, err := model.MeasureBandwidth(cmd.Context())
	if err != nil {
		return err
	}
	var w io.Writer = cmd.OutOrStdout()
	if figures.quiet() {
		w = io.Discard
	}
	fmt.Fprintf(w, "%s, %s, on %s (%s); bandwidth measured %sB/s\n", oneLine(info.Name), byteSize(info.Memory.Weights), info.Device.ID, info.Device.Name, quantity(bandwidth))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer func() { // also what was measured before an interrupt
		if e := t.Flush(); err == nil {
			err = e
		}
	}()
	status := newProgress(cmd.ErrOrStderr())
	defer status.done()
	fmt.Fprintln(t, "prompt\tgenerated\tsequences\ttok/s\tspread\ttok/s each\tms/step\tagainst the first\troofline\t")
	for _, prompt := range b.prompts {
		for _, n := range b.gens {
			if n == 0 {
				continue
			}
			first := 0.0
			for _, sequences := range b.parallel {
				rates, err := parallelRates(cmd, status, model, max(prompt, 1), n, sequences, b.repetitions)
				if err != nil {
					return err
				}
				rate := median(rates)
				if first == 0 {
					first = rate
				}
				// A step reads the weights once, and the keys and values of every sequence.
				bytes := float64(info.DecodeBytes) + float64(sequences)*float64(info.CacheBytesPerToken)*(float64(prompt)+float64(n)/2)
				steps := rate / float64(sequences)
				roofline := 100 * steps * bytes / bandwidth
				fmt.Fprintf(t, "%d\t%d\t%d\t%.1f\t%.1f %%\t%.1f\t%.3f\t%.2fx\t%s\t\n", prompt, n, sequences, rate, 100*spread(rates),
					steps, 1e3/steps, rate/first, rooflineText(roofline, bytes))
				f := figure{Suite: "batch", Case: fmt.Sprintf("%s tg%d @ d%d x %d", info.Name, n, prompt, sequences), Ours: rate,
					Unit: "tok/s", Device: info.Device.Name, ModelRun: newModelRun(m, info, 0, n, prompt, sequences, rates)}
				f.setRoofline(roofline, bytes)
				err = figures.emit(f)
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// parallelRates returns tokens a second of all sequences together, prompts not counted. Of several adapters the sequences have one
// each, in turn.
func parallelRates(cmd *cobra.Command, status *progress, model *vibrant.Model, prompt, n, sequences, repetitions int) ([]float64, error) {
	batch, err := model.NewBatch(sequences)
	if err != nil {
		return nil, err
	}
	defer batch.Close()
	ids, adapters := randomIDs(prompt+sequences, model.Info().Vocab), model.Adapters()
	return benchRuns(status, fmt.Sprintf("%d sequences", sequences), repetitions, func() (float64, error) {
		for i := range sequences {
			if err := batch.SetAdapters(adaptersOf(adapters, i)...); err != nil {
				return 0, err
			}
			// No two prompts are the same.
			if _, err := batch.Join(cmd.Context(), ids[i:i+prompt], greedyGeneration(n+1)); err != nil {
				return 0, err
			}
		}
		if _, err := batch.Step(cmd.Context()); err != nil { // the first tokens, which the prompts chose
			return 0, err
		}
		start := time.Now()
		for batch.Len() > 0 {
			if _, err := batch.Step(cmd.Context()); err != nil {
				return 0, err
			}
		}
		return float64(n*sequences) / time.Since(start).Seconds(), nil
	})
}

// adaptersOf returns those of one of many sequences: one in turn, so that neighbours in a batch differ.
func adaptersOf(all []vibrant.ActiveAdapter, sequence int) []vibrant.ActiveAdapter {
	if len(all) == 0 {
		return nil
	}
	i := sequence % len(all)
	return all[i : i+1]
}
