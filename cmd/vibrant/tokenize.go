package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

func tokenizeCommand() *cobra.Command {
	var m modelFlags
	var lines, bos, special, asJSON bool
	c := &cobra.Command{
		Use:   "tokenize [TEXT|-]",
		Short: "Print the token ids of a text (stdin without TEXT)",
		Example: "  vibrant tokenize -m model.gguf \"Hello, world\"\n" +
			"  vibrant tokenize -m model.gguf --json < text.txt",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			tokenizer, err := vibrant.OpenTokenizer(m.model, vibrant.WithPreTokenizer(m.preTokenizer))
			if err != nil {
				return err
			}
			options := vibrant.EncodeOptions{AddBOS: bos, ParseSpecial: special}
			for _, w := range tokenizer.Warnings() {
				fmt.Fprintf(cmd.ErrOrStderr(), "vibrant: warning: %s\n", oneLine(w))
			}
			out := bufio.NewWriter(cmd.OutOrStdout())
			if lines {
				if len(args) > 0 {
					return usagef("--jsonl reads stdin, not %q", args[0])
				}
				return tokenizeLines(cmd.Context(), cmd.InOrStdin(), out, tokenizer, options)
			}
			text := strings.Join(args, " ")
			if text == "-" || len(args) == 0 {
				b, err := readText(cmd.Context(), "-", cmd.InOrStdin())
				if err != nil {
					return err
				}
				text = string(b)
			}
			ids, err := tokenizer.Encode(cmd.Context(), text, options)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(out, nonNil(ids))
			} else {
				err = printTokens(cmd.Context(), out, tokenizer, ids)
			}
			if e := out.Flush(); err == nil {
				err = e
			}
			return err
		},
	}
	m.addModel(c)
	c.Flags().BoolVar(&lines, "jsonl", false, "stdin is a JSON string a line, stdout a JSON array of ids a line")
	c.Flags().BoolVar(&bos, "bos", false, "add the begin and end tokens that the model wants")
	c.Flags().BoolVar(&special, "special", false, "parse special tokens such as <|im_end|> in the text")
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON array of ids")
	return c
}

// printTokens prints an id and its text a line. A line is made once for all tokens of an id: of a long text there are millions.
func printTokens(ctx context.Context, out *bufio.Writer, t *vibrant.Tokenizer, ids []int32) error {
	lines := make([]string, t.VocabSize())
	for i, id := range ids {
		if lines[id] == "" {
			text, err := t.TokenText(id)
			if err != nil {
				return err
			}
			lines[id] = fmt.Sprintf("%6d  %q\n", id, text)
		}
		if _, err := out.WriteString(lines[id]); err != nil {
			return err
		}
		if i%(1<<16) == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// tokenizeLines answers line by line, so that a program may keep the command running.
func tokenizeLines(ctx context.Context, in io.Reader, out *bufio.Writer, t *vibrant.Tokenizer, options vibrant.EncodeOptions) (err error) {
	defer func() { // the lines before a bad one are answered
		if e := out.Flush(); err == nil {
			err = e
		}
	}()
	r := bufio.NewReader(untilDone(ctx, in))
	for n := 1; ; n++ {
		line, err := readLongLine(r, maxText)
		if len(line) > 0 && strings.TrimSpace(string(line)) != "" {
			var text string
			if err := json.Unmarshal(line, &text); err != nil {
				return fmt.Errorf("stdin, line %d: not a JSON string: %w", n, err)
			}
			ids, err := t.Encode(ctx, text, options)
			if err != nil {
				return fmt.Errorf("stdin, line %d: %w", n, err)
			}
			if err := writeJSON(out, nonNil(ids)); err != nil {
				return err
			}
			if r.Buffered() == 0 {
				if err := out.Flush(); err != nil {
					return err
				}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// nonNil makes JSON of no ids an empty array.
func nonNil(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}
