package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

func pullCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "pull hf:OWNER/REPO[:QUANT]",
		Short:   "Bring a model from Hugging Face (HF_ENDPOINT, HF_TOKEN) and print its path",
		Example: "  vibrant pull hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("which model? vibrant pull hf:OWNER/REPO[:QUANT] brings one")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := pull(cmd, args[0])
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), path)
			}
			return err
		},
	}
}

// pull brings a model, with progress where stderr is a terminal.
func pull(cmd *cobra.Command, ref string) (string, error) {
	line := newProgress(cmd.ErrOrStderr())
	defer line.done()
	start, first := time.Now(), int64(-1)
	return vibrant.Pull(cmd.Context(), ref, func(file string, done, total int64) {
		if first < 0 || done < first {
			start, first = time.Now(), done
		}
		rate := float64(done-first) / max(time.Since(start).Seconds(), 1e-3)
		line.show("pulling %s: %s of %s, %sB/s", oneLine(file), byteSize(done), byteSize(total), quantity(rate))
	})
}
