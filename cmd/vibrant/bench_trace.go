package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant/gpu"
)

// writeTrace writes the trace of what was measured to a file, and to stderr which operations took longest.
func writeTrace(cmd *cobra.Command, path string, profile func() (*gpu.Profile, error)) (err error) {
	p, err := profile()
	if err != nil {
		return err
	}
	operations, err := p.Operations()
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(p.WriteTrace(f), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	const longest = 20
	t := tabwriter.NewWriter(cmd.ErrOrStderr(), 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "operation\tkernel\tcalls\tus each\tms\troofline\t")
	for i, o := range operations {
		if i == longest {
			break
		}
		ms := o.Time.Seconds() * 1e3
		fmt.Fprintf(t, "%s\t%s\t%d\t%.2f\t%.2f\t%.1f %%\t\n", o.Name, o.Kernel, o.Calls, ms*1e3/float64(o.Calls), ms, o.Roofline)
	}
	return t.Flush()
}
