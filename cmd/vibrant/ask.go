package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

func askCommand() *cobra.Command {
	var m modelFlags
	var g generationFlags
	var in inputFlags
	var system string
	var asJSON bool
	c := &cobra.Command{
		Use:   "ask PROMPT|-",
		Short: "Answer one question; only the answer goes to stdout",
		Example: "  vibrant ask \"What is a GGUF file?\"\n" +
			"  git diff | vibrant ask -m model.gguf \"Review:\"\n" +
			"  vibrant ask -m model.gguf --temp 0 --json \"Name three primes.\"",
		Long: "Answer one question; only the answer goes to stdout. Piped text follows the prompt, and - stands for it elsewhere.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			piped := !in.usesStdin(args) && m.ranks.config == nil && isPiped(cmd.InOrStdin()) // launchers always pipe
			silent := len(args) == 0 && len(in.files) == 0 && !cmd.Flags().Changed("prompt")
			if piped {
				in.files = append(in.files, "-")
			}
			prompt, err := in.read(cmd, args)
			if silent && (!piped || err == usageError{errEmptyPrompt}) {
				return usagef("ask what? give a PROMPT, -f FILE, or - to read it from stdin")
			}
			if err != nil {
				return err
			}
			return withSession(cmd, &m, &g, system, func(model *vibrant.Model, session *vibrant.Session) error {
				out := newTokenWriter(cmd.OutOrStdout())
				if asJSON {
					out = newTokenWriter(io.Discard)
				}
				if err := out.writeAll(session.Send(cmd.Context(), prompt)); err != nil {
					return withRemedy(err)
				}
				reportCut(cmd, model, session, "a larger -c holds more")
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
	m.addRanks(c)
	g.add(c)
	in.add(c)
	c.Flags().StringVar(&system, "system", "", "system message")
	c.Flags().BoolVar(&asJSON, "json", false, `print {"text", "ids", "finish"}`)
	m.addForeign(c.Flags())
	return c
}
