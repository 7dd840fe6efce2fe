package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func logitsCommand() *cobra.Command {
	var m modelFlags
	var list, prompt, out string
	c := &cobra.Command{
		Use:   "logits (--ids 1,2,3 | -p TEXT) -o FILE.npy",
		Short: "Write the logits after each token of a prompt: .npy, float32 [tokens][vocabulary]",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return usagef("a file to write is needed: -o FILE.npy")
			}
			if err := oneOf(cmd, "prompt", "ids"); err != nil {
				return err
			}
			flags := cmd.Flags()
			var ids []int32
			if flags.Changed("ids") {
				var err error
				if ids, err = parseIDs(list); err != nil {
					return err
				}
				if !flags.Changed("ctx") {
					m.context = len(ids)
				}
			}
			model, err := m.open(cmd)
			if err != nil {
				return err
			}
			defer model.Close()
			if ids == nil {
				if ids, err = encodePrompt(model, prompt); err != nil {
					return err
				}
			}
			if err := model.CheckIDs(ids); err != nil {
				return err
			}
			npy, err := createNPY(out, len(ids), model.Info().Vocab)
			if err != nil {
				return err
			}
			err = model.EachLogits(cmd.Context(), ids, func(_ int, row []float32) error { return npy.writeRow(row) })
			if err = npy.close(err); err == nil && m.verbose {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d x %d\n", out, len(ids), model.Info().Vocab)
			}
			return err
		},
	}
	m.add(c)
	c.Flags().StringVar(&list, "ids", "", "token ids")
	c.Flags().StringVarP(&prompt, "prompt", "p", "", "text, tokenized with the begin token that the model wants")
	c.Flags().StringVarP(&out, "output", "o", "", "file to write")
	return c
}
