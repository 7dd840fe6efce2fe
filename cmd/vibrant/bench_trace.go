package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant/gpu"
)

// writeTrace writes the trace of what was measured to a file, and to stderr which operations took longest.
func writeTrace(cmd *cobra.Command, file *outputFile, profile func() (*gpu.Profile, error)) (err error) {
	p, err := profile()
	if err != nil {
		return err
	}
	operations, err := p.Operations()
	if err != nil {
		return err
	}
	if err := file.finish(p.WriteTrace(file)); err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	const longest = 20
	t := tabwriter.NewWriter(cmd.ErrOrStderr(), 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "operation\tkernel\tcalls\tus each\tms\troofline\t")
	for i, o := range operations {
		if i == longest {
			break
		}
		ms := o.Time.Seconds() * 1e3
		fmt.Fprintf(t, "%s\t%s\t%d\t%.2f\t%.2f\t%s\t\n", o.Name, o.Kernel, o.Calls, ms*1e3/float64(o.Calls), ms,
			rooflineText(o.Roofline, float64(o.Bytes)/float64(o.Calls)))
	}
	return t.Flush()
}
