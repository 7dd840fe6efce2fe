package tokenizer

import "strings"

// gemma4 is byte pair encoding with a list of merges, as bpe is, over characters with bytes for unknown ones, as spm is.
// Runs of line feeds stand apart; nothing else cuts a text.
type gemma4 struct {
	characters
	pairs pairTable
}

// newGemma4 reads the merges. made[id] is set for each token that a merge makes.
func (t *Tokenizer) newGemma4(merges []string) (p *gemma4, made []bool, err error) {
	p = &gemma4{characters: t.newCharacters()}
	p.pairs, made, err = t.readMerges(merges, appendUnderscored)
	return p, made, err
}

func (p *gemma4) encode(e *encoder, text string, _ bool) error {
	var err error
	text = strings.ReplaceAll(text, underscore, " ")
	if text != "" {
		lines(text, func(piece string) bool {
			err = e.piece(p, piece)
			return err == nil
		})
	}
	return err
}

func (p *gemma4) pair(_ *Tokenizer, _ string, left, right *sym) (rank uint32, id int32, ok bool) {
	if left.id == none || right.id == none {
		return 0, none, false
	}
	return p.pairs.find(left.id, right.id)
}
