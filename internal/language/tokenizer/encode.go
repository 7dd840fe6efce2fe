package tokenizer

import (
	"context"
	"fmt"
	"math"
)

// maxText bounds the text of one Encode, so that positions fit in 31 bits.
const maxText = math.MaxInt32 / 8

// Options say what Encode adds and parses.
type Options struct {
	// AddBOS and AddEOS put the BOS token in front and the EOS token behind where the model asks for it, unless one is
	// there already, as templates write it.
	AddBOS, AddEOS bool

	// ParseSpecial turns the text of control tokens into these tokens. Without it only user-defined tokens are cut out of
	// the text before it is encoded.
	ParseSpecial bool
}

// Encode returns the ids of text. Bytes that are no UTF-8 are encoded as they are; a byte that the vocabulary of a
// byte-level BPE lacks is dropped, as the models' own tokenizers drop it. The time is n log n at most, whatever the text,
// and ends within milliseconds after ctx. Likely errors: that of ctx, a text of more than 256 MB.
func (t *Tokenizer) Encode(ctx context.Context, text string, o Options) ([]int32, error) {
	return t.encode(ctx, text, o, func(_, _ int, id int32) bool { return o.ParseSpecial || t.isOrdinary(id) })
}

// encode is Encode with a rule of its own for which special tokens are cut out: by their place in the text and their id.
func (t *Tokenizer) encode(ctx context.Context, text string, o Options, want func(start, end int, id int32) bool) ([]int32, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("tokenizer: a text of %d bytes; at most %d can be encoded at once", len(text), maxText)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, _ := t.encoders.Get().(*encoder)
	if e == nil {
		e = &encoder{t: t}
	}
	e.ctx, e.ids = ctx, make([]int32, 0, len(text)/4+2)
	defer e.release()
	if o.AddBOS && t.addBOS {
		e.ids = append(e.ids, t.bos)
	}
	added := len(e.ids)
	first := true
	for at := 0; text != ""; {
		start, end, id, err := t.special.find(e, text, func(start, end int, id int32) bool { return want(at+start, at+end, id) })
		if err != nil {
			return nil, err
		}
		if start > 0 {
			if err := t.model.encode(e, text[:start], first); err != nil {
				return nil, err
			}
			first = false
		}
		if id != none {
			e.ids = append(e.ids, id)
			first = true
		}
		at, text = at+end, text[end:]
	}
	ids := e.ids
	if added == 1 && len(ids) > 1 && ids[1] == t.bos {
		ids = ids[1:]
	}
	if o.AddEOS && t.addEOS && (len(ids) == 0 || ids[len(ids)-1] != t.eos) {
		ids = append(ids, t.eos)
	}
	return ids, nil
}

// encoder is one Encode under way, with memory that later ones use again.
type encoder struct {
	t      *Tokenizer
	ctx    context.Context
	ids    []int32
	unseen int // bytes of work since the context was looked at
	scratch
	cache   [cacheSize]cachedPiece
	parts   []part                  // of the phrase under way
	borders [borderCacheSize]uint64 // pairs of tokens, and whether they stay apart
}

func (e *encoder) release() {
	e.ctx, e.ids = nil, nil
	if cap(e.syms) <= maxKeptScratch && cap(e.heap) <= maxKeptScratch {
		e.t.encoders.Put(e)
	}
}

// worked counts bytes of work and returns the context's error. It looks at the context now and then only.
func (e *encoder) worked(bytes int) error {
	if e.unseen += bytes; e.unseen < 1<<16 {
		return nil
	}
	e.unseen = 0
	return e.ctx.Err()
}

// The words of a text come again and again: their ids are remembered, in a table where a new piece takes an old one's
// place. It has 256 KiB, a part of a core's cache.
const (
	cacheSize    = 1 << 13
	maxCacheable = 15 // bytes of a piece
)

type cachedPiece struct {
	key pieceKey
	ids [4]int32 // none behind the last
}

// pieceKey is the bytes of a piece of at most maxCacheable, and their number in the highest byte.
type pieceKey struct{ low, high uint64 }

func keyOf(piece string) pieceKey {
	n := len(piece)
	if n >= 8 {
		return pieceKey{load64(piece), load64(piece[n-8:])>>(8*(16-n)) | uint64(n)<<56}
	}
	var low uint64
	for i := range n {
		low |= uint64(piece[i]) << (8 * i)
	}
	return pieceKey{low, uint64(n) << 56}
}

func load64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func (k pieceKey) slot() uint64 {
	return ((k.low ^ k.high*0x9e3779b97f4a7c15) * 0xd6e8feb86659fd93) >> (64 - 13)
}

// recall appends the ids of a piece that was seen before, and reports whether it was.
func (e *encoder) recall(piece string) bool {
	if len(piece) > maxCacheable {
		return false
	}
	key := keyOf(piece)
	c := &e.cache[key.slot()]
	if c.key != key {
		return false
	}
	for _, id := range c.ids {
		if id == none {
			break
		}
		e.ids = append(e.ids, id)
	}
	return true
}

// remember keeps the ids of a piece, those from start on.
func (e *encoder) remember(piece string, start int) {
	if ids := e.ids[start:]; len(piece) <= maxCacheable && len(ids) <= 4 {
		c := cachedPiece{keyOf(piece), [...]int32{none, none, none, none}}
		copy(c.ids[:], ids)
		e.cache[c.key.slot()] = c
	}
}

// piece appends the ids of a piece that no merge crosses.
func (e *encoder) piece(p pieces, piece string) error {
	if err := e.worked(len(piece)); err != nil {
		return err
	}
	if e.recall(piece) {
		return nil
	}
	start := len(e.ids)
	if err := e.mergePiece(p, piece); err != nil {
		return err
	}
	e.remember(piece, start)
	return nil
}

// pieces is what a model of merges knows.
type pieces interface {
	// whole returns the token that a piece is without any merging.
	whole(t *Tokenizer, piece string) (id int32, ok bool)
	// symbols adds the symbols that a text starts as.
	symbols(t *Tokenizer, m *scratch, text string)
	// pair returns the rank of the merge of two neighbours in a text, lower ones first, and its token.
	pair(t *Tokenizer, text string, left, right *sym) (rank uint32, id int32, ok bool)
	// appendSymbol appends the ids of a symbol that merges no further.
	appendSymbol(t *Tokenizer, ids []int32, text string, s *sym) ([]int32, error)
}

// window is how many bytes of a long piece are merged at once: their symbols and merges fit in a core's cache.
const window = 1024

// mergePiece merges a long piece window by window. A sequence of tokens is the result of merging if and only if each two
// neighbours in it are the result of merging their own text: merges happen in one order everywhere, so the first merge
// across a border would happen in the text of these two alone. Each window begins with the last token of the one before
// and must find it again, which shows that the border is right; if it does not, the windows were too small.
func (e *encoder) mergePiece(p pieces, piece string) error {
	if id, ok := p.whole(e.t, piece); ok {
		e.ids = append(e.ids, id)
		return nil
	}
	start := len(e.ids)
	for size := window; ; size *= 2 {
		ok, err := e.mergeWindows(p, piece, size)
		if ok || err != nil {
			return err
		}
		e.ids = e.ids[:start]
	}
}

// mergeWindows reports whether windows of this size were large enough.
func (e *encoder) mergeWindows(p pieces, piece string, size int) (bool, error) {
	var last sym      // the last symbol of the window before, by its place in the piece
	var merged string // the text that was merged last: windows of one letter are all the same
	for at, first := 0, true; ; at, first = int(last.start), false {
		text := piece[at:min(at+size, len(piece))]
		if !first {
			if err := e.worked(len(text)); err != nil {
				return false, err
			}
		}
		if text != merged {
			e.reset(len(text))
			p.symbols(e.t, &e.scratch, text)
			e.merge(e.t, p, text)
			merged = text
		}
		i := int32(0)
		if len(e.syms) == 0 {
			i = none
		}
		if !first {
			if s := &e.syms[0]; s.id != last.id || at+int(s.end) != int(last.end) {
				return false, nil
			}
			i = e.syms[0].next
		}
		rest, sure := at+len(text) == len(piece), len(text)*3/4
		progress := rest
		for ; i != none; i = e.syms[i].next {
			s := &e.syms[i]
			if !rest && int(s.end) > sure {
				break
			}
			var err error
			if e.ids, err = p.appendSymbol(e.t, e.ids, text, s); err != nil {
				return false, err
			}
			last = sym{start: int32(at) + s.start, end: int32(at) + s.end, id: s.id}
			progress = true
		}
		if rest || !progress {
			return rest, nil
		}
	}
}
