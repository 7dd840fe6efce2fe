package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

func devicesCommand() *cobra.Command {
	var asJSON, verbose bool
	c := &cobra.Command{
		Use:     "devices",
		Short:   "List the devices that this build can use on this machine",
		Example: "  vibrant devices --verbose",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			devices, err := vibrant.Devices()
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), devices)
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "ID\tNAME\tBACKEND\tMEMORY\tFREE\tFEATURES")
			for _, d := range devices {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", d.ID, d.Name, d.Backend, byteSize(d.TotalMemory), byteSize(d.FreeMemory), d.Features)
			}
			if err := t.Flush(); err != nil {
				return err
			}
			if verbose {
				fmt.Fprintf(cmd.ErrOrStderr(), "C kernels: %s\n", vibrant.CPULibrary())
				fmt.Fprintf(cmd.ErrOrStderr(), "CUDA kernels: %s\n", vibrant.CUDALibrary())
			}
			if why := vibrant.NoGPU(); why != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "no GPU: %v\n", why)
			}
			return nil
		},
	}
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "say on stderr which libraries of kernels are in use, or why none is")
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return c
}
