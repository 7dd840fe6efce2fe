package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

func renderCommand() *cobra.Command {
	var m modelFlags
	var template, messages, bos, eos, now string
	var noGeneration bool
	c := &cobra.Command{
		Use:     "render (--template FILE | -m MODEL) --messages FILE",
		Short:   "Print the prompt that a chat template makes of messages",
		Example: "  vibrant render -m model.gguf --messages messages.json",
		Long: "Print the prompt that a chat template makes of messages: JSON {\"messages\": [...], \"tools\": [...]} or a list of messages.\n" +
			"The template is a Jinja file, or that of a model.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if messages == "" {
				return usagef("messages are needed: --messages FILE")
			}
			input, err := readText(cmd.Context(), messages, cmd.InOrStdin())
			if err != nil {
				return err
			}
			clock := time.Now()
			if now != "" {
				if clock, err = time.Parse("2006-01-02T15:04:05", now); err != nil {
					return usagef("--now is %q, want a time like 2024-07-26T12:34:56", now)
				}
			}
			var t *vibrant.Template
			if template != "" {
				source, err := readText(cmd.Context(), template, cmd.InOrStdin())
				if err != nil {
					return err
				}
				t, err = vibrant.ParseTemplate(string(source))
				if err != nil {
					return fmt.Errorf("%s: %w", template, err)
				}
			} else {
				if t, err = vibrant.OpenTemplate(m.model); err != nil {
					return err
				}
			}
			if flags := cmd.Flags(); template != "" || flags.Changed("bos-token") {
				t.BOSToken = bos
			}
			if flags := cmd.Flags(); template != "" || flags.Changed("eos-token") {
				t.EOSToken = eos
			}
			text, err := t.Render(input, clock, !noGeneration)
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	m.addModel(c)
	f := c.Flags()
	f.StringVar(&template, "template", "", "Jinja template file (default: the model's)")
	f.StringVar(&messages, "messages", "", "JSON file of messages, - for stdin")
	f.StringVar(&bos, "bos-token", "", "text of the begin token (default: the model's)")
	f.StringVar(&eos, "eos-token", "", "text of the end token (default: the model's)")
	f.StringVar(&now, "now", "", "what the template sees as the time, such as 2024-07-26T12:34:56")
	f.BoolVar(&noGeneration, "no-generation-prompt", false, "do not open the assistant's turn")
	return c
}
