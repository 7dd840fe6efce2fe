package main

import (
	"context"
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
		Use:   "complete (-p TEXT | -f FILE | - | --ids 1,2,3)",
		Short: "Continue a raw prompt, without a chat template",
		Example: "  vibrant complete -m model.gguf -p \"Once upon a time\" -n 64\n" +
			"  vibrant complete -m model.gguf --ids 1,2,3 --temp 0 --json",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] != "-" {
				return usagef("complete: the text is -p %q", args[0])
			}
			given := cmd.Flags().Changed
			silent := len(args) == 0 && !given("prompt") && !given("file") && !given("ids") &&
				m.ranks.config == nil && isPiped(cmd.InOrStdin()) // launchers always pipe
			if len(args) > 0 || silent { // as everywhere
				if err := cmd.Flags().Set("file", "-"); err != nil {
					return err
				}
			}
			if err := oneOf(cmd, "prompt", "file", "ids"); err != nil {
				return err
			}
			var ids []int32
			switch flags := cmd.Flags(); {
			case flags.Changed("ids"):
				var err error
				if ids, err = parseIDs(list); err != nil {
					return err
				}
			case flags.Changed("file"):
				b, err := readText(cmd.Context(), file, cmd.InOrStdin())
				if err != nil {
					return err
				}
				if prompt = string(b); silent && prompt == "" {
					return usagef("want one of --prompt, --file, --ids, or a text on stdin")
				}
			}
			if n := g.g.MaxTokens; n >= 0 { // a token has at least a byte, but for a few that begin a text
				m.enough = max(len(ids), len(prompt)+16) + n
			}
			return withSession(cmd, &m, &g, "", func(model *vibrant.Model, session *vibrant.Session) (err error) {
				if ids == nil {
					if ids, err = encodePrompt(cmd.Context(), model, prompt); err != nil {
						return err
					}
				}
				out := newTokenWriter(cmd.OutOrStdout())
				if asJSON {
					out = newTokenWriter(io.Discard)
				}
				out.ids = !model.Info().HasTokenizer
				if err := out.writeAll(session.CompleteIDs(cmd.Context(), ids)); err != nil {
					return withRemedy(err)
				}
				reportCut(cmd, model, session, "a larger -c holds more")
				if asJSON {
					text := out.text.String()
					if out.ids {
						text = ""
					}
					return writeJSON(cmd.OutOrStdout(), map[string]any{"prompt_ids": nonNil(ids), "ids": session.Generated(),
						"text": text, "finish": session.Finish()})
				}
				if m.verbose {
					reportStats(cmd, model, session)
				}
				return nil
			})
		},
	}
	m.add(c)
	m.addRanks(c)
	g.add(c)
	c.Flags().StringVarP(&prompt, "prompt", "p", "", "text to continue")
	c.Flags().StringVarP(&file, "file", "f", "", "file whose text to continue, - for stdin")
	c.Flags().StringVar(&list, "ids", "", "token ids to continue, for models without a tokenizer too")
	c.Flags().BoolVar(&asJSON, "json", false, `print {"prompt_ids", "ids", "text", "finish"}`)
	m.addForeign(c.Flags())
	return c
}

// encodePrompt tokenizes a raw prompt with the begin token that the model wants. An empty text is a prompt where there is
// such a token.
func encodePrompt(ctx context.Context, model *vibrant.Model, text string) ([]int32, error) {
	tokenizer, err := model.Tokenizer()
	if err != nil {
		return nil, err
	}
	ids, err := tokenizer.Encode(ctx, text, vibrant.EncodeOptions{AddBOS: true})
	if err == nil && len(ids) == 0 {
		return nil, usageError{errEmptyPrompt}
	}
	return ids, err
}
