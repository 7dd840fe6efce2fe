package main

import (
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
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			generation, err := g.generation()
			if err != nil {
				return err
			}
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
			model, err := m.open(cmd)
			if err != nil {
				return err
			}
			defer model.Close()
			session, err := model.NewSession(vibrant.WithSystem(system), vibrant.WithGeneration(generation))
			if err != nil {
				return err
			}
			defer session.Close()
			out := newTokenWriter(cmd.OutOrStdout())
			if asJSON {
				out = newTokenWriter(io.Discard)
			}
			for token, err := range session.Send(cmd.Context(), prompt) {
				if err != nil {
					if out.text.Len() > 0 {
						out.end()
					}
					return err
				}
				if err := out.write(token.Text); err != nil {
					return err
				}
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), map[string]any{"text": out.text.String(), "ids": session.Generated(), "finish": session.Finish()})
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
	c.Flags().StringVar(&system, "system", "", "system message")
	c.Flags().BoolVar(&asJSON, "json", false, `print {"text", "ids", "finish"}`)
	return c
}

// tokenWriter writes an answer piece by piece, each as soon as it is there, and ends it with a newline.
type tokenWriter struct {
	w    io.Writer
	text strings.Builder
}

func newTokenWriter(w io.Writer) *tokenWriter { return &tokenWriter{w: w} }

func (t *tokenWriter) write(s string) error {
	t.text.WriteString(s)
	_, err := io.WriteString(t.w, s)
	return err
}

func (t *tokenWriter) end() error {
	if strings.HasSuffix(t.text.String(), "\n") {
		return nil
	}
	_, err := io.WriteString(t.w, "\n")
	return err
}
