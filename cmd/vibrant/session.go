package main

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

// withSession opens the model and a session with it, after checking the flags, and closes both after f.
func withSession(cmd *cobra.Command, m *modelFlags, g *generationFlags, system string, f func(*vibrant.Model, *vibrant.Session) error) error {
	generation, err := g.generation()
	if err != nil {
		return err
	}
	model, err := m.open(cmd)
	if err != nil {
		return err
	}
	defer model.Close()
	progress := newProgress(cmd.ErrOrStderr())
	defer progress.done()
	session, err := model.NewSession(vibrant.WithSystem(system), vibrant.WithGeneration(generation),
		vibrant.WithPromptProgress(progress.prompt()))
	if err != nil {
		return err
	}
	defer session.Close()
	return f(model, session)
}

// withRemedy says what helps where a prompt does not fit into the context.
func withRemedy(err error) error {
	if errors.Is(err, vibrant.ErrContextFull) {
		return fmt.Errorf("%w; a larger -c holds more", err)
	}
	return err
}

// reportCut says on stderr that an answer ended because the context is full, and what helps.
func reportCut(cmd *cobra.Command, model *vibrant.Model, session *vibrant.Session, remedy string) {
	if session.Finish() == vibrant.FinishContext {
		fmt.Fprintf(cmd.ErrOrStderr(), "vibrant: the answer was cut: the context of %d tokens is full; %s\n", model.Info().Context, remedy)
	}
}

// tokenWriter writes an answer piece by piece, each as soon as it is there, and ends it with a newline.
type tokenWriter struct {
	w    io.Writer
	text strings.Builder
	ids  bool // write ids instead of text: the model has no tokenizer

	first func() // called before the first token; may be nil
}

func newTokenWriter(w io.Writer) *tokenWriter { return &tokenWriter{w: w} }

// writeAll writes an answer to its end. What was written before an error gets its newline too.
func (t *tokenWriter) writeAll(answer iter.Seq2[vibrant.Token, error]) error {
	for token, err := range answer {
		if err != nil {
			if t.text.Len() > 0 {
				t.end()
			}
			return err
		}
		if t.first != nil {
			t.first()
			t.first = nil
		}
		text := token.Text
		if t.ids {
			text = fmt.Sprintf("%d ", token.ID)
		}
		t.text.WriteString(text)
		if _, err := io.WriteString(t.w, text); err != nil {
			return err
		}
	}
	return t.end()
}

func (t *tokenWriter) end() error {
	if strings.HasSuffix(t.text.String(), "\n") {
		return nil
	}
	_, err := io.WriteString(t.w, "\n")
	return err
}
