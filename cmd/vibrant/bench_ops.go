package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/internal/check/optable"
)

// benchOps measures single operations, by the project's table of them.
func benchOps(cmd *cobra.Command, m *modelFlags, choice optable.Choice, trace *outputFile, figures *figureWriter) (err error) {
	options, err := m.options()
	if err != nil {
		return err
	}
	d, note, err := vibrant.OpenDevice(options...)
	if err != nil {
		return err
	}
	defer d.Close()
	if m.profiling {
		defer func() { err = errors.Join(err, writeTrace(cmd, trace, d.Profile)) }()
	}
	if note != "" && m.verbose {
		fmt.Fprintf(cmd.ErrOrStderr(), "device: %s\n", note)
	}
	var w io.Writer = cmd.OutOrStdout()
	if figures.quiet() {
		w = io.Discard
	}
	status := newProgress(cmd.ErrOrStderr())
	defer status.done()
	var failed error
	headed := false
	err = optable.Bench(cmd.Context(), d, choice, func(r optable.Result) {
		if !headed {
			fmt.Fprintf(w, "%-48s %12s %10s %10s  %-24s on %s\n", "operation", "us", "roofline", "error", "kernel", d.Info().Name)
		}
		headed = true
		deviation := ""
		if r.Error != nil {
			deviation = fmt.Sprintf("%.1e", *r.Error)
		}
		if r.Reason != "" {
			fmt.Fprintf(w, "%-48s %s\n", r.Case, r.Reason)
		} else {
			fmt.Fprintf(w, "%-48s %12.2f %10s %10s  %s\n", r.Case, r.Ours, rooflineText(r.Roofline, r.Bytes), deviation, r.Kernel)
		}
		if figures.quiet() { // the table shows how far it is
			status.show("measured %s: %.2f us", r.Case, r.Ours)
		}
		f := figure{Suite: r.Suite, Case: r.Case, Kernel: r.Kernel, Ours: r.Ours, Peer: r.Peer, Unit: r.Unit, Ratio: r.Ratio,
			Error: r.Error, Reason: r.Reason, Device: r.Device, Command: r.Command}
		f.setRoofline(r.Roofline, r.Bytes)
		if e := figures.emit(f); failed == nil {
			failed = e
		}
	})
	if err == nil {
		err = failed
	}
	return err
}
