package main

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

func askCommand() *cobra.Command {
	var m modelFlags
	var g generationFlags
	var system string
	var asJSON bool
	c := &cobra.Command{
		Use:   "ask PROMPT|-",
		Short: "Answer one question; only the answer goes to stdout (- reads the question from stdin)",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("ask what? give a PROMPT, or - to read it from stdin")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			prompt := strings.Join(args, " ")
			if prompt == "-" {
				b, err := io.ReadAll(cmd.InOrStdin())
				if err != nil {
					return err
				}
				prompt = strings.TrimRight(string(b), "\n")
			}
			if strings.TrimSpace(prompt) == "" {
				return usagef("the prompt is empty")
			}
			return withSession(cmd, &m, &g, system, func(model *vibrant.Model, session *vibrant.Session) error {
				out := newTokenWriter(cmd.OutOrStdout())
				if asJSON {
					out = newTokenWriter(io.Discard)
				}
				if err := out.writeAll(session.Send(cmd.Context(), prompt)); err != nil {
					return err
				}
				if asJSON {
					return writeJSON(cmd.OutOrStdout(), map[string]any{"text": out.text.String(), "ids": session.Generated(), "finish": session.Finish()})
				}
				if m.verbose {
					reportStats(cmd, model, session)
				}
				return nil
			})
		},
	}
	m.add(c)
	g.add(c)
	c.Flags().StringVar(&system, "system", "", "system message")
	c.Flags().BoolVar(&asJSON, "json", false, `print {"text", "ids", "finish"}`)
	return c
}
