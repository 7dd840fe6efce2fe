package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

func completeCommand() *cobra.Command {
	var m modelFlags
	var g generationFlags
	var prompt, list, file string
	var asJSON bool
	c := &cobra.Command{
		Use:   "complete (-p TEXT | -f FILE | --ids 1,2,3)",
		Short: "Continue a raw prompt, without a chat template",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			generation, err := g.generation()
			if err != nil {
				return err
			}
			if err := oneOf(cmd, "prompt", "file", "ids"); err != nil {
				return err
			}
			var ids []int32
			switch flags := cmd.Flags(); {
			case flags.Changed("ids"):
				if ids, err = parseIDs(list); err != nil {
					return err
				}
			case flags.Changed("file"):
				b, err := readFile(file, cmd.InOrStdin())
				if err != nil {
					return err
				}
				prompt = string(b)
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
			session, err := model.NewSession(vibrant.WithGeneration(generation))
			if err != nil {
				return err
			}
			defer session.Close()
			out := newTokenWriter(cmd.OutOrStdout())
			if asJSON {
				out = newTokenWriter(io.Discard)
			}
			for token, err := range session.CompleteIDs(cmd.Context(), ids) {
				if err != nil {
					return err
				}
				text := token.Text
				if !model.Info().HasTokenizer {
					text = fmt.Sprintf("%d ", token.ID)
				}
				if err := out.write(text); err != nil {
					return err
				}
			}
			if asJSON {
				text := out.text.String()
				if !model.Info().HasTokenizer {
					text = ""
				}
				return writeJSON(cmd.OutOrStdout(), map[string]any{"prompt_ids": nonNil(ids), "ids": session.Generated(),
					"text": text, "finish": session.Finish()})
			}
			if err := out.end(); err != nil {
				return err
			}
			if m.verbose {
				reportStats(cmd, model, session)
			}
			return nil
		},
	}
	m.add(c)
	g.add(c)
	c.Flags().StringVarP(&prompt, "prompt", "p", "", "text to continue")
	c.Flags().StringVarP(&file, "file", "f", "", "file whose text to continue, - for stdin")
	c.Flags().StringVar(&list, "ids", "", "token ids to continue, for models without a tokenizer too")
	c.Flags().BoolVar(&asJSON, "json", false, `print {"prompt_ids", "ids", "text", "finish"}`)
	return c
}

// encodePrompt tokenizes a raw prompt with the begin token that the model wants.
func encodePrompt(model *vibrant.Model, text string) ([]int32, error) {
	tokenizer, err := model.Tokenizer()
	if err != nil {
		return nil, err
	}
	return tokenizer.Encode(text, vibrant.EncodeOptions{AddBOS: true})
}
