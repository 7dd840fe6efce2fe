package tokenizer

import "slices"

// The texts by which tokens with a role are known where the file does not name them, as llama.cpp knows them; of several
// that a vocabulary holds the first in the list is taken.
var (
	endOfTurn = []string{
		"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>",
		"[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>",
	}
	endOfMessage = []string{"<|eom_id|>"}

	// Fill in the middle: these end a generation too.
	fimPad = []string{"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}
	fimRep = []string{"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}
	fimSep = []string{"<|file_sep|>"}

	// These do not, but they are control tokens whatever the file says.
	fimOther = []string{
		"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
		"<|prefix|>", "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
		"<|code_suffix|>", "<|suffix|>", "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>",
		"▁<MID>", "<|code_middle|>", "<|middle|>",
	}

	endOfGeneration = []string{
		"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
		"<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
		"<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>",
	}
)

// setRoles takes over the ids of tokens with a role. An id that the vocabulary does not have is left at its default.
func (t *Tokenizer) setRoles(special, defaults map[string]int32) {
	for _, r := range []struct {
		name string
		id   *int32
	}{
		{"bos", &t.bos}, {"eos", &t.eos}, {"eot", &t.eot}, {"eom", &t.eom}, {"unknown", &t.unk}, {"padding", &t.pad},
	} {
		*r.id = none
		if id, ok := defaults[r.name]; ok && t.check(id) == nil {
			*r.id = id
		}
		if id, ok := special[r.name]; ok {
			if t.check(id) != nil {
				t.warn("the %s token %d is not one of the %d tokens: using %d", r.name, id, len(t.types), *r.id)
				continue
			}
			*r.id = id
		}
	}
}

// findEnds collects the tokens that end a generation, by role and by text. A token that looks like a control token but
// is of another type is a mistake of the file and becomes one, unless it is made by a merge: then it is ordinary text
// that the vocabulary was trained on, such as Qwen's "</s>", though it still ends a generation, as with llama.cpp.
func (t *Tokenizer) findEnds(special map[string]int32, made []bool) {
	t.eog = map[int32]bool{}
	control := func(id int32) {
		if t.types[id] != Control && !made[id] {
			t.warn("token %d, %q, is of type %d but looks like a control token: it is taken as one", id, t.text(id), t.types[id])
			t.types[id] = Control
		}
	}
	find := func(texts []string) int32 {
		for _, s := range texts {
			if id, ok := t.ID(s); ok {
				control(id)
				return id
			}
		}
		return none
	}
	for _, s := range fimOther {
		find([]string{s})
	}
	for _, r := range []struct {
		name  string
		texts []string
	}{{"fim_pad", fimPad}, {"fim_rep", fimRep}, {"fim_sep", fimSep}} {
		id, ok := special[r.name]
		if !ok || t.check(id) != nil {
			id = find(r.texts)
		}
		t.eog[id] = true
	}
	if t.eot == none {
		t.eot = find(endOfTurn)
	}
	if t.eom == none {
		t.eom = find(endOfMessage)
	}
	for _, s := range endOfGeneration {
		t.eog[find([]string{s})] = true
	}
	for _, id := range []int32{t.eos, t.eot, t.eom} {
		t.eog[id] = true
	}
	delete(t.eog, none)

	// With these tokens <|end|> ends a part of the answer, and </s> is text.
	has := func(texts ...string) bool {
		return !slices.ContainsFunc(texts, func(s string) bool { id, ok := t.ID(s); return !ok || !t.eog[id] })
	}
	keep := func(text string) {
		if id, ok := t.ID(text); ok {
			delete(t.eog, id)
		}
	}
	if has("<|return|>", "<|call|>") || has("<|calls|>", "<|flush|>") {
		keep("<|end|>")
	}
	if has("<|tool_response>") {
		keep("</s>")
	}
}

// trie finds special tokens in text.
type trie struct {
	nodes []trieNode
	first [256]int32 // the child of the root for each byte; 0 is none
}

type trieNode struct {
	child, sibling int32 // indexes into nodes; 0 is none
	id             int32 // of the token that ends here, or none
	b              byte
}

// add puts a token in. Of two with the same text the first is kept.
func (x *trie) add(text string, id int32) {
	if text == "" {
		return
	}
	if x.nodes == nil {
		x.nodes = []trieNode{{id: none}}
	}
	at := x.first[text[0]]
	if at == 0 {
		at = int32(len(x.nodes))
		x.nodes = append(x.nodes, trieNode{id: none})
		x.first[text[0]] = at
	}
	for i := 1; i < len(text); i++ {
		next := x.child(at, text[i])
		if next == 0 {
			next = int32(len(x.nodes))
			x.nodes = append(x.nodes, trieNode{sibling: x.nodes[at].child, id: none, b: text[i]})
			x.nodes[at].child = next
		}
		at = next
	}
	if x.nodes[at].id == none {
		x.nodes[at].id = id
	}
}

// prefixes calls f for each token that text, which is not empty, starts with: its length and id, the shortest first.
func (x *trie) prefixes(text string, f func(n int, id int32)) {
	at := x.first[text[0]]
	for i := 1; at != 0; i++ {
		if id := x.nodes[at].id; id != none {
			f(i, id)
		}
		if i == len(text) {
			return
		}
		at = x.child(at, text[i])
	}
}

func (x *trie) child(at int32, b byte) int32 {
	at = x.nodes[at].child
	for at != 0 && x.nodes[at].b != b {
		at = x.nodes[at].sibling
	}
	return at
}

// find returns the first token in text for which want holds, the longest of those that start there; without any the end
// of the text and none. The error is that of e's context.
func (x *trie) find(e *encoder, text string, want func(start, end int, id int32) bool) (start, end int, id int32, err error) {
	for start = range len(text) {
		if x.first[text[start]] == 0 {
			continue
		}
		if err = e.worked(16); err != nil {
			return 0, 0, none, err
		}
		id = none
		x.prefixes(text[start:], func(n int, found int32) {
			if want(start, start+n, found) {
				id, end = found, start+n
			}
		})
		if id != none {
			return start, end, id, nil
		}
	}
	return len(text), len(text), none, nil
}
