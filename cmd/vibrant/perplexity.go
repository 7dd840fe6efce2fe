package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

func perplexityCommand() *cobra.Command {
	var m modelFlags
	var file string
	var chunks int
	var asJSON bool
	c := &cobra.Command{
		Use:     "perplexity -m FILE -f TEXT",
		Short:   "Perplexity of a text by llama.cpp's method",
		Example: "  vibrant perplexity -m model.gguf -f wiki.test.raw --ctx 512",
		Long: "Perplexity of a text by llama.cpp's method: the text is cut into chunks of --ctx tokens (512), each starts with the\n" +
			"begin token where the model adds one, and the second half of each is scored.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("a text is needed: -f FILE")
			}
			if chunks < 0 {
				return usagef("--chunks is %d, want 0 or more", chunks)
			}
			if m.context == 0 {
				m.context = 512
			}
			text, err := readText(cmd.Context(), file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			model, err := m.open(cmd)
			if err != nil {
				return err
			}
			defer model.Close()
			status := newProgress(cmd.ErrOrStderr())
			defer status.done()
			start, done, total, partial := time.Now(), 0, 0, 0.0
			result, err := model.Perplexity(cmd.Context(), string(text), vibrant.PerplexityOptions{Context: m.context, Chunks: chunks,
				Progress: func(n, of int, ppl float64) {
					done, total, partial = n, of, ppl
					status.show("chunk %d of %d: perplexity %.4f, %s left", n, of, ppl, timeLeft(start, n, of))
				}})
			status.done()
			if errors.Is(err, context.Canceled) && done > 0 {
				// An interrupt leaves the figure of the chunks that were scored.
				if asJSON {
					return errors.Join(writeJSON(cmd.OutOrStdout(), map[string]any{"ppl": partial, "chunks": done, "interrupted": true}), err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "perplexity %.4f (interrupted after %d of %d chunks of %d)\n", partial, done, total, m.context)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), result)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "perplexity %.4f +/- %.4f (%d chunks of %d, %d tokens scored)\n",
				result.Perplexity, result.Error, result.Chunks, m.context, result.Scored)
			return err
		},
	}
	m.add(c)
	m.addRanks(c)
	c.Flags().StringVarP(&file, "file", "f", "", "text, - for stdin")
	c.Flags().IntVar(&chunks, "chunks", 0, "score so many chunks (0: all)")
	c.Flags().BoolVar(&asJSON, "json", false, `print {"ppl", "error", "chunks", "scored"}`)
	m.addForeign(c.Flags())
	return c
}
