// Package tokenizer turns text into token ids and back, as the model's GGUF file describes it: byte-level BPE ("gpt2"),
// SentencePiece's BPE ("llama"), Gemma 4's BPE ("gemma4"), WordPiece ("bert") and Unigram ("t5").
//
// Text that a user typed is encoded without [Options].ParseSpecial: then no part of it becomes a control token, whatever
// it says. Templates are encoded with it.
//
// A [Tokenizer] does not change and may be used from several goroutines; a [Decoder] belongs to one.
package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

// Type is the type of a token, by the ids of tokenizer.ggml.token_type.
type Type int32

// The types of tokens.
const (
	Undefined   Type = 0
	Normal      Type = 1
	Unknown     Type = 2 // stands for what has no token
	Control     Type = 3 // such as the end of a turn; has a meaning but is no text
	UserDefined Type = 4 // text that always is one token
	Unused      Type = 5
	Byte        Type = 6 // <0x00> to <0xFF>
)

// maxSpecial bounds the text of special tokens, and of all tokens of Unigram: looking for them takes this much time for each
// byte of a text at worst. Real ones have some dozen bytes.
const maxSpecial = 512

var (
	// ErrNoVocab is returned for a model without a tokenizer: it can be run by ids only.
	ErrNoVocab = errors.New("tokenizer: the file has no vocabulary")
	// ErrOutOfRange is wrapped by errors about ids that the vocabulary does not have.
	ErrOutOfRange = errors.New("id out of range")
	// ErrUnknownPreTokenizer is wrapped by the error about a tokenizer.ggml.pre that no rule here is for.
	ErrUnknownPreTokenizer = errors.New("unknown pre-tokenizer")
)

// Tokenizer encodes and decodes with one vocabulary.
type Tokenizer struct {
	model model
	types []Type

	// The bytes of token i are blob[offsets[i]:offsets[i+1]].
	blob    string
	offsets []uint32
	byText  map[string]int32 // the lowest id with these bytes, of the tokens that text can become
	byName  map[string]int32 // of those that a vocabulary spells as no text can be: outside of GPT-2's alphabet of bytes

	special trie // control, unknown and user-defined tokens

	bos, eos, eot, eom, unk, pad int32 // or none
	addBOS, addEOS               bool
	eog                          map[int32]bool

	encoders sync.Pool // of *encoder
	warnings []string
}

// model is the algorithm behind a vocabulary. It appends the ids of text, which holds no special tokens, to e.ids; first
// says that nothing or a special token is in front of it.
type model interface {
	encode(e *encoder, text string, first bool) error
}

// Config describes a vocabulary in Go, as the keys tokenizer.ggml.* do in a file.
type Config struct {
	Model  string    // "gpt2", "llama", "gemma4", "bert" or "t5"
	Pre    string    // of gpt2: the pre-tokenizer, such as "qwen2" or "llama-bpe"; empty is "default", with a warning
	Tokens []string  // of gpt2 in GPT-2's byte-to-character spelling, else with U+2581 for spaces
	Types  []Type    // one a token; nil: Byte for those that read <0x00> to <0xFF>, else Normal
	Scores []float32 // of llama and t5: one a token; nil: all are equal
	Merges []string  // of gpt2 and gemma4: pairs with a space between, the first to merge first

	CharsMap        []byte // of t5: SentencePiece's precompiled_charsmap; nil: characters stay as they are
	KeepExtraSpaces bool   // of t5: runs of spaces stay, and those at the ends

	// Special holds the ids of tokens with a role, by the names "bos", "eos", "eot", "eom", "unknown", "padding",
	// "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep" and "fim_sep". Those that are left out are none; of llama
	// unknown, bos and eos are 0, 1 and 2, of bert 100, 101 and 102, of t5 unknown and eos are 2 and 1. End-of-turn tokens
	// are found by their text too.
	Special map[string]int32

	AddBOS, AddEOS *bool // nil: of llama, gemma4, bert and some pre-tokenizers of gpt2 a BOS is added, of bert and t5 an EOS
	AddSpacePrefix *bool // of llama and t5: nil is true
}

// New returns the tokenizer that c describes. It keeps no part of c.
func New(c Config) (*Tokenizer, error) {
	n := len(c.Tokens)
	switch {
	case n == 0:
		return nil, ErrNoVocab
	case n > math.MaxInt32/8:
		return nil, fmt.Errorf("tokenizer: %d tokens are too many", n)
	case c.Types != nil && len(c.Types) != n:
		return nil, fmt.Errorf("tokenizer: %d types for %d tokens", len(c.Types), n)
	case c.Scores != nil && len(c.Scores) != n:
		return nil, fmt.Errorf("tokenizer: %d scores for %d tokens", len(c.Scores), n)
	}
	t := &Tokenizer{types: make([]Type, n), byName: map[string]int32{}}
	for i := range t.types {
		t.types[i] = Normal
		if c.Types != nil {
			t.types[i] = c.Types[i]
		} else if _, ok := byteToken(c.Tokens[i]); ok {
			t.types[i] = Byte
		}
	}
	fillClasses()
	if err := t.setModel(c); err != nil {
		return nil, err
	}
	if c.AddBOS != nil {
		t.addBOS = *c.AddBOS
	}
	if c.AddEOS != nil {
		t.addEOS = *c.AddEOS
	}
	if t.addBOS && t.bos == none {
		t.warn("a BOS token is to be added but none is named: none is added")
		t.addBOS = false
	}
	if t.addEOS && t.eos == none {
		t.warn("an EOS token is to be added but none is named: none is added")
		t.addEOS = false
	}
	for id, typ := range t.types {
		if typ != Control && typ != Unknown && typ != UserDefined {
			continue
		}
		if n := len(t.text(int32(id))); n > maxSpecial {
			t.warn("special token %d of %d bytes is not looked for in texts; the limit is %d", id, n, maxSpecial)
			continue
		}
		t.special.add(t.text(int32(id)), int32(id))
	}
	return t, nil
}

// setModel sets the texts, the roles and the algorithm.
func (t *Tokenizer) setModel(c Config) error {
	decode, user, outside := appendUnderscored, appendUnderscored, func(string) bool { return false }
	var pre *preTokenizer
	var roles map[string]int32 // defaults
	var err error
	switch c.Model {
	case "gpt2":
		if pre, err = t.preTokenizer(c.Pre); err != nil {
			return err
		}
		decode, user, outside = appendByteLevel, appendLiterally, isOutsideByteLevel
	case "llama":
		roles = map[string]int32{"unknown": 0, "bos": 1, "eos": 2}
	case "bert":
		roles = map[string]int32{"padding": 0, "unknown": 100, "bos": 101, "eos": 102}
	case "t5":
		roles = map[string]int32{"padding": 0, "eos": 1, "unknown": 2}
	case "gemma4":
	case "":
		return ErrNoVocab
	default:
		return fmt.Errorf("tokenizer: model %.200q is not supported, only gpt2 (byte-level BPE), llama (SentencePiece BPE), gemma4, "+
			"bert (WordPiece) and t5 (Unigram)", c.Model)
	}
	if err := t.setTexts(c.Tokens, decode, user, outside); err != nil {
		return err
	}
	t.setRoles(c.Special, roles)
	var made []bool // tokens that a merge makes
	switch c.Model {
	case "gpt2":
		t.model, made, err = t.newBPE(pre, c.Merges)
		t.addBOS = pre.addBOS
	case "gemma4":
		t.model, made, err = t.newGemma4(c.Merges)
		t.addBOS = true
	default:
		made = make([]bool, len(t.types))
	}
	if err != nil {
		return err
	}
	t.findEnds(c.Special, made)
	addSpacePrefix := c.AddSpacePrefix == nil || *c.AddSpacePrefix
	switch c.Model { // these ask which tokens are control tokens
	case "llama":
		t.model, t.addBOS = t.newSPM(c.Scores, addSpacePrefix), true
	case "bert":
		t.model, t.addBOS, t.addEOS = t.newWordPiece(), true, true
	case "t5":
		t.model, err = t.newUnigram(c, addSpacePrefix)
		t.addEOS = true
	}
	return err
}

func (t *Tokenizer) preTokenizer(name string) (*preTokenizer, error) {
	if name == "" {
		t.warn("the file names no pre-tokenizer (tokenizer.ggml.pre): using \"default\", which may cut text unlike the model expects")
		return preDefault, nil
	}
	return findPreTokenizer(name)
}

// appendUnderscored appends what a token of SentencePiece stands for.
func appendUnderscored(b []byte, text string) []byte {
	return append(b, strings.ReplaceAll(text, underscore, " ")...)
}

func appendLiterally(b []byte, text string) []byte { return append(b, text...) }

// setTexts computes the bytes that each token stands for. decode is for those that are spelled, user for user-defined
// ones, which older converters leave with U+2581 for spaces; outside holds for spellings that no text has.
func (t *Tokenizer) setTexts(tokens []string, decode, user func(b []byte, text string) []byte, outside func(text string) bool) error {
	size, count := 0, 0
	for _, s := range tokens {
		size += len(s)
		if s != "" {
			count++
		}
	}
	t.byText = make(map[string]int32, count)
	b := make([]byte, 0, size)
	t.offsets = make([]uint32, len(tokens)+1)
	for i, s := range tokens {
		switch x, isByte := byteToken(s); t.types[i] {
		case Normal, Undefined:
			b = decode(b, s)
		case Byte:
			if isByte {
				b = append(b, x)
			} else {
				b = decode(b, s)
			}
		case UserDefined:
			b = user(b, s)
		default:
			b = appendLiterally(b, s)
		}
		if len(b) > math.MaxInt32 {
			return fmt.Errorf("tokenizer: the tokens take more than %d bytes", math.MaxInt32)
		}
		t.offsets[i+1] = uint32(len(b))
	}
	t.blob = string(b)
	double := 0
	for i, s := range tokens {
		text := t.text(int32(i))
		if text == "" || t.types[i] == Byte && len(text) < len(s) {
			continue // not to be found by text: the token of a byte, <0x41>, is not that of its character
		}
		if outside(s) && (t.types[i] == Normal || t.types[i] == Undefined) {
			if _, dup := t.byName[text]; !dup {
				t.byName[text] = int32(i)
			}
			continue
		}
		if _, dup := t.byText[text]; dup {
			double++
			continue
		}
		t.byText[text] = int32(i)
	}
	if double > 0 {
		t.warn("%d tokens have the text of another; the first of each is used", double)
	}
	return nil
}

// byteToken reads <0x00> to <0xFF>.
func byteToken(s string) (byte, bool) {
	if len(s) != 6 || s[:3] != "<0x" || s[5] != '>' {
		return 0, false
	}
	x := 0
	for _, c := range []byte(s[3:5]) {
		switch {
		case '0' <= c && c <= '9':
			x = x<<4 | int(c-'0')
		case 'A' <= c && c <= 'F':
			x = x<<4 | int(c-'A'+10)
		case 'a' <= c && c <= 'f':
			x = x<<4 | int(c-'a'+10)
		default:
			return 0, false
		}
	}
	return byte(x), true
}

func (t *Tokenizer) text(id int32) string { return t.blob[t.offsets[id]:t.offsets[id+1]] }

// isOrdinary reports whether text that is not special may become the token.
func (t *Tokenizer) isOrdinary(id int32) bool {
	typ := t.types[id]
	return typ != Control && typ != Unknown
}

// ordinary returns the token with these bytes that text may become.
func (t *Tokenizer) ordinary(text string) (int32, bool) {
	id, ok := t.byText[text]
	return id, ok && t.isOrdinary(id)
}

func (t *Tokenizer) warn(format string, args ...any) {
	t.warnings = append(t.warnings, fmt.Sprintf(format, args...))
}

// VocabSize returns the number of tokens; ids go from 0 to VocabSize()-1.
func (t *Tokenizer) VocabSize() int { return len(t.types) }

// check returns an error for an id that the vocabulary does not have.
func (t *Tokenizer) check(id int32) error {
	if id < 0 || int(id) >= len(t.types) {
		return fmt.Errorf("tokenizer: %w: %d is not one of 0 to %d", ErrOutOfRange, id, len(t.types)-1)
	}
	return nil
}

// TokenText returns the bytes that a token stands for, which may be a part of a UTF-8 character; of a control token its
// name, such as <|im_end|>.
func (t *Tokenizer) TokenText(id int32) ([]byte, error) {
	if err := t.check(id); err != nil {
		return nil, err
	}
	return []byte(t.text(id)), nil
}

// TokenType returns the type of a token, Undefined for an id that the vocabulary does not have.
func (t *Tokenizer) TokenType(id int32) Type {
	if t.check(id) != nil {
		return Undefined
	}
	return t.types[id]
}

// ID returns the token that stands for exactly these bytes, such as "<|im_end|>".
func (t *Tokenizer) ID(text string) (id int32, ok bool) {
	if id, ok = t.byText[text]; !ok {
		id, ok = t.byName[text]
	}
	return id, ok
}

// IsSpecial reports whether a token is no text: a control or unknown token.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return t.check(id) == nil && !t.isOrdinary(id)
}

// IsEOG reports whether a token ends the generation: the end of the text, of a turn or of a message.
func (t *Tokenizer) IsEOG(id int32) bool { return t.eog[id] }

// EOGs returns all tokens for which IsEOG holds, in ascending order.
func (t *Tokenizer) EOGs() []int32 {
	ids := make([]int32, 0, len(t.eog))
	for id := range t.eog {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// BOS returns the token that begins a text, or -1 if there is none. Whether it is to be added says AddsBOS.
func (t *Tokenizer) BOS() int32 { return t.bos }

// EOS returns the token that ends a text, or -1.
func (t *Tokenizer) EOS() int32 { return t.eos }

// EOT returns the token that ends a turn, or -1.
func (t *Tokenizer) EOT() int32 { return t.eot }

// EOM returns the token that ends a message to a tool, or -1.
func (t *Tokenizer) EOM() int32 { return t.eom }

// UNK returns the token for what has no token, or -1.
func (t *Tokenizer) UNK() int32 { return t.unk }

// PAD returns the token that fills up batches, or -1.
func (t *Tokenizer) PAD() int32 { return t.pad }

// AddsBOS reports whether the model expects BOS in front of a text.
func (t *Tokenizer) AddsBOS() bool { return t.addBOS }

// AddsEOS reports whether the model expects EOS behind a text.
func (t *Tokenizer) AddsEOS() bool { return t.addEOS }

// Warnings says in what the tokenizer may differ from the one that the model was trained with. The caller shows them.
func (t *Tokenizer) Warnings() []string { return slices.Clone(t.warnings) }
