package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version and what this build can use",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), map[string]any{"version": vibrant.Version, "go": runtime.Version(),
					"os": runtime.GOOS, "arch": runtime.GOARCH, "backends": vibrant.Backends()})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "vibrant %s (%s %s/%s; backends: %v)\n", vibrant.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, vibrant.Backends())
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
