package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func logitsCommand() *cobra.Command {
	var m modelFlags
	var list, prompt, out string
	c := &cobra.Command{
		Use:     "logits (--ids 1,2,3 | -p TEXT) -o FILE.npy|-",
		Short:   "Write the logits after each token of a prompt: .npy, float32 [tokens][vocabulary]",
		Example: "  vibrant logits -m model.gguf -p \"The capital of France is\" -o logits.npy",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if out == "" {
				return usagef("a file to write is needed: -o FILE.npy")
			}
			if err := oneOf(cmd, "prompt", "ids"); err != nil {
				return err
			}
			flags := cmd.Flags()
			var ids []int32
			if flags.Changed("ids") {
				if ids, err = parseIDs(list); err != nil {
					return err
				}
				if !flags.Changed("ctx") {
					m.context = len(ids)
				}
			}
			file, err := createOutput(out, cmd.OutOrStdout(), m.inputs()...)
			if err != nil {
				return err
			}
			defer func() { err = file.finish(err) }()
			model, err := m.open(cmd)
			if err != nil {
				return err
			}
			defer model.Close()
			if ids == nil {
				if ids, err = encodePrompt(cmd.Context(), model, prompt); err != nil {
					return err
				}
			}
			if err := model.CheckIDs(ids); err != nil {
				return err
			}
			npy := newNPYWriter(file, len(ids), model.Info().Vocab)
			err = model.EachLogits(cmd.Context(), ids, func(_ int, row []float32) error { return npy.writeRow(row) })
			if err == nil {
				err = npy.flush()
			}
			if err == nil && m.verbose {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d x %d\n", oneLine(out), len(ids), model.Info().Vocab)
			}
			return err
		},
	}
	m.add(c)
	m.addRanks(c)
	c.Flags().StringVar(&list, "ids", "", "token ids")
	c.Flags().StringVarP(&prompt, "prompt", "p", "", "text, tokenized with the begin token that the model wants")
	c.Flags().StringVarP(&out, "output", "o", "", "file to write, - for stdout")
	m.addForeign(c.Flags())
	return c
}
