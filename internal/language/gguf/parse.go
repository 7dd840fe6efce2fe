package gguf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Limits beyond that of the file's own size. Real files stay far below.
const (
	maxMetadata = 1 << 30   // bytes of header, metadata and tensor descriptions, which are kept in memory
	maxName     = 1<<16 - 1 // bytes of a key or a tensor name; the specification's limit for keys
	maxNesting  = 4         // arrays of arrays of ...; ggml itself reads no nested ones
	maxDims     = 4         // ggml's GGML_MAX_DIMS

	defaultAlignment = 32
	alignmentKey     = "general.alignment"
)

// parser walks the file from its start. It keeps positions, not slices, since buf moves when it grows.
type parser struct {
	buf  []byte      // the file's first len(buf) bytes: all of them, or what was read from r so far
	r    io.ReaderAt // nil where buf holds the whole file
	size int64       // of the file
	pos  int         // next byte

	unread error // of reading
}

// span is a part of the file, in bytes.
type span struct{ start, end int }

// parse reads the metadata. Its errors wrap ErrNotGGUF or ErrInvalid, or are those of reading.
func parse(p *parser) (*File, error) {
	f, err := p.file()
	if err == nil || p.unread != nil || errors.Is(err, ErrNotGGUF) || errors.Is(err, ErrInvalid) {
		return f, err
	}
	return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
}

func (p *parser) file() (*File, error) {
	f := &File{Size: p.size, values: map[string]Value{}, byName: map[string]int{}}
	nTensors, nValues, err := p.header(f)
	if err != nil {
		return nil, err
	}
	entries, err := p.metadata(nValues)
	if err != nil {
		return nil, err
	}
	infos, err := p.tensorInfos(nTensors)
	if err != nil {
		return nil, err
	}

	// One copy of all that was read, which every string of the metadata is a part of: 150,000 tokens need no 150,000
	// allocations, and they outlive the mapping.
	text := string(p.buf[:p.pos])
	at := func(s span) string { return text[s.start:s.end] }
	f.keys = make([]string, 0, len(entries))
	for _, e := range entries {
		key := at(e.key)
		if _, dup := f.values[key]; dup {
			return nil, fmt.Errorf("byte %d: key %s is there twice", e.key.start, Quote(key))
		}
		f.keys = append(f.keys, key)
		f.values[key] = Value{Type: e.typ, Elem: e.elem, Len: e.n, raw: at(e.raw)}
	}
	if f.Alignment, err = f.alignment(); err != nil {
		return nil, err
	}
	start := (int64(p.pos) + int64(f.Alignment) - 1) &^ (int64(f.Alignment) - 1)
	f.DataStart = min(start, f.Size) // a file without tensors need not be padded
	f.tensors = make([]Tensor, 0, len(infos))
	for _, in := range infos {
		t, err := in.tensor(at(in.name), start, f)
		if err == nil {
			err = f.checkFork(&t)
		}
		if err != nil {
			return nil, fmt.Errorf("byte %d: tensor %s: %w", in.name.start, Quote(at(in.name)), err)
		}
		if _, dup := f.byName[t.Name]; dup {
			return nil, fmt.Errorf("byte %d: tensor %s is there twice", in.name.start, Quote(t.Name))
		}
		f.byName[t.Name] = len(f.tensors)
		f.tensors = append(f.tensors, t)
	}
	return f, f.checkOverlap()
}

func (p *parser) header(f *File) (nTensors, nValues uint64, err error) {
	if p.size < 4 {
		return 0, 0, fmt.Errorf("%w: %d bytes long", ErrNotGGUF, p.size)
	}
	if err := p.need(4); err != nil {
		return 0, 0, err
	}
	if string(p.buf[:4]) != "GGUF" {
		return 0, 0, fmt.Errorf("%w: %s", ErrNotGGUF, otherFormat(p.buf[:min(len(p.buf), 64)]))
	}
	p.pos = 4
	f.Version, err = p.u32()
	if err != nil {
		return 0, 0, fmt.Errorf("header: %w", err)
	}
	switch swapped := bits.ReverseBytes32(f.Version); {
	case f.Version == 2 || f.Version == 3:
	case swapped == 2 || swapped == 3:
		return 0, 0, fmt.Errorf("%w: big-endian, version %d; convert it with gguf_convert_endian.py of gguf-py", ErrNotGGUF, swapped)
	default:
		return 0, 0, fmt.Errorf("%w: version %d; versions 2 and 3 are supported", ErrNotGGUF, f.Version)
	}
	if nTensors, err = p.u64(); err == nil {
		nValues, err = p.u64()
	}
	if err != nil {
		return 0, 0, fmt.Errorf("header: %w", err)
	}
	// The least that an entry takes: a key of one byte with one byte of value, a tensor without name and dimensions.
	if limit := uint64(p.left()) / (8 + 1 + 4 + 1); nValues > limit {
		return 0, 0, fmt.Errorf("byte 16: %w: %d metadata values cannot fit in a file of %d bytes", ErrTruncated, nValues, p.size)
	}
	if limit := uint64(p.left()) / (8 + 4 + 4 + 8); nTensors > limit {
		return 0, 0, fmt.Errorf("byte 8: %w: %d tensors cannot fit in a file of %d bytes", ErrTruncated, nTensors, p.size)
	}
	return nTensors, nValues, nil
}

// entry is one metadata value before its text was copied.
type entry struct {
	key, raw  span
	typ, elem ValueType
	n         int
}

func (p *parser) metadata(n uint64) ([]entry, error) {
	var entries []entry
	for i := range n {
		start := p.pos
		key, err := p.name()
		if err == nil && key.start == key.end {
			err = errors.New("empty key")
		}
		if err != nil {
			return nil, fmt.Errorf("byte %d: metadata key %d of %d: %w", start, i+1, n, err)
		}
		e, err := p.value()
		if err != nil {
			return nil, fmt.Errorf("byte %d: key %s: %w", start, Quote(string(p.buf[key.start:key.end])), err)
		}
		e.key = key
		entries = append(entries, e)
	}
	return entries, nil
}

func (p *parser) value() (entry, error) {
	typ, err := p.u32()
	if err != nil {
		return entry{}, err
	}
	e := entry{typ: ValueType(typ), n: 1}
	if e.typ == TypeArray {
		elem, n, err := p.arrayHead()
		if err != nil {
			return entry{}, err
		}
		e.elem, e.n, e.raw.start = elem, n, p.pos
		err = p.skipElements(elem, n, 1)
		e.raw.end = p.pos
		return e, err
	}
	e.raw.start = p.pos
	err = p.skipElements(e.typ, 1, 0)
	e.raw.end = p.pos
	return e, err
}

// arrayHead reads an array's element type and count, and refuses a count whose elements cannot fit in the file.
func (p *parser) arrayHead() (ValueType, int, error) {
	elem, err := p.u32()
	if err != nil {
		return 0, 0, err
	}
	n, err := p.u64()
	if err != nil {
		return 0, 0, err
	}
	least := ValueType(elem).minSize()
	if least == 0 {
		return 0, 0, fmt.Errorf("unknown type %d of array elements", elem)
	}
	if n > uint64(p.left())/uint64(least) {
		return 0, 0, fmt.Errorf("%w: an array of %d elements of type %s cannot fit in the %d bytes that are left",
			ErrTruncated, n, ValueType(elem), p.left())
	}
	if n > maxMetadata {
		return 0, 0, fmt.Errorf("an array of %d elements; the limit is %d", n, maxMetadata)
	}
	return ValueType(elem), int(n), nil
}

// skipElements moves past n values of type t and checks them. depth counts the arrays around them.
func (p *parser) skipElements(t ValueType, n, depth int) error {
	switch {
	case t == TypeString:
		for i := range n {
			size, err := p.u64()
			if err == nil {
				err = p.need(size)
			}
			if err != nil {
				if depth > 0 {
					return fmt.Errorf("element %d of %d: %w", i, n, err)
				}
				return err
			}
			p.pos += int(size)
		}
		return nil
	case t == TypeArray:
		if depth >= maxNesting {
			return fmt.Errorf("arrays nested more than %d deep", maxNesting)
		}
		for i := range n {
			elem, m, err := p.arrayHead()
			if err == nil {
				err = p.skipElements(elem, m, depth+1)
			}
			if err != nil {
				return fmt.Errorf("element %d of %d: %w", i, n, err)
			}
		}
		return nil
	case t.minSize() == 0:
		return fmt.Errorf("unknown value type %d", uint32(t))
	}
	size := uint64(n) * uint64(t.minSize()) // n is below 2^30
	if err := p.need(size); err != nil {
		return err
	}
	if t == TypeBool {
		for _, b := range p.buf[p.pos : p.pos+n] {
			if b > 1 {
				return fmt.Errorf("a bool of value %d", b)
			}
		}
	}
	p.pos += int(size)
	return nil
}

// tensorInfo is a tensor's description as the file has it.
type tensorInfo struct {
	name   span
	nDims  int
	dims   [maxDims]uint64
	typ    Type
	offset uint64 // from the start of the tensor data
}

func (p *parser) tensorInfos(n uint64) ([]tensorInfo, error) {
	var infos []tensorInfo
	for i := range n {
		start := p.pos
		in, err := p.tensorInfo()
		if err != nil {
			what := fmt.Sprintf("tensor %d of %d", i+1, n)
			if in.name.end > 0 {
				what = "tensor " + Quote(string(p.buf[in.name.start:in.name.end]))
			}
			return nil, fmt.Errorf("byte %d: %s: %w", start, what, err)
		}
		infos = append(infos, in)
	}
	return infos, nil
}

func (p *parser) tensorInfo() (in tensorInfo, err error) {
	if in.name, err = p.name(); err != nil {
		return in, err
	}
	if in.name.start == in.name.end {
		return in, errors.New("empty name")
	}
	nDims, err := p.u32()
	if err != nil {
		return in, err
	}
	if nDims > maxDims {
		return in, fmt.Errorf("%d dimensions; at most %d are possible", nDims, maxDims)
	}
	in.nDims = int(nDims)
	for j := range in.nDims {
		if in.dims[j], err = p.u64(); err != nil {
			return in, err
		}
	}
	typ, err := p.u32()
	if err != nil {
		return in, err
	}
	in.typ = Type(typ)
	in.offset, err = p.u64()
	return in, err
}

// i2sTail is the bytes after the codes of a tensor of I2_S.
const i2sTail = 32

// tensor checks the description against its type and the file. start is where the tensor data begins.
func (in *tensorInfo) tensor(name string, start int64, f *File) (Tensor, error) {
	t := Tensor{Name: name, Type: in.typ, Dims: make([]int, in.nDims)}
	if !in.typ.Known() {
		if int64(in.typ) < int64(len(types)) {
			return t, fmt.Errorf("type %d (%s) was removed from ggml; convert the model anew", uint32(in.typ), in.typ)
		}
		return t, fmt.Errorf("unknown type %d", uint32(in.typ))
	}
	size := uint64(in.typ.TypeSize()) // bytes of a row, then of the tensor
	elements := uint64(1)
	row, zero := uint64(1), false
	if in.nDims > 0 {
		row = in.dims[0]
	}
	block := uint64(in.typ.BlockSize())
	if row%block != 0 {
		return t, fmt.Errorf("rows of %d elements are not a multiple of the block size %d of %s", row, block, in.typ)
	}
	for j, d := range in.dims[:in.nDims] {
		if d > math.MaxInt {
			return t, fmt.Errorf("dimension %d of %d elements overflows", j, d)
		}
		t.Dims[j] = int(d)
		zero = zero || d == 0
	}
	if zero {
		size, elements = 0, 0
	} else {
		var over, over2 uint64
		over, size = bits.Mul64(size, row/block)
		elements = row
		for _, d := range in.dims[min(1, in.nDims):in.nDims] {
			if over == 0 {
				over, size = bits.Mul64(size, d)
			}
			if over2 == 0 {
				over2, elements = bits.Mul64(elements, d)
			}
		}
		if over != 0 || over2 != 0 || size > math.MaxInt64 || elements > math.MaxInt {
			return t, fmt.Errorf("dimensions %v overflow", t.Dims)
		}
	}
	if in.typ == I2_S && !zero {
		size += i2sTail
	}
	if in.offset%uint64(f.Alignment) != 0 {
		return t, fmt.Errorf("offset %d is not a multiple of the alignment %d", in.offset, f.Alignment)
	}
	end, carry := bits.Add64(uint64(start), in.offset, 0)
	if carry == 0 {
		t.Offset = int64(min(end, math.MaxInt64))
		end, carry = bits.Add64(end, size, 0)
	}
	if carry != 0 || end > uint64(f.Size) {
		if carry != 0 {
			return t, fmt.Errorf("offset %d overflows", in.offset)
		}
		t.Bytes = int64(size)
		if t.isOlderQ2(f.Size-t.Offset, f.Alignment) {
			return t, errOlderQ2
		}
		return t, fmt.Errorf("%w: its data ends at byte %d, the file at byte %d", ErrTruncated, end, f.Size)
	}
	t.Bytes = int64(size)
	return t, nil
}

var errOlderQ2 = errors.New("Q2_0 in groups of 128, as an earlier version of the format had them, not in groups of 64: convert the model anew")

// isOlderQ2 reports whether a tensor of Q2_0 has as much space as it takes in groups of 128, a scale of two bytes each, and
// not as much as it takes now.
func (t *Tensor) isOlderQ2(space int64, alignment int) bool {
	if t.Type != Q2_0 {
		return false
	}
	older := t.Bytes / (2 * int64(Q2_0.TypeSize())) * (128/4 + 2)
	return older <= space && space < min(t.Bytes, older+int64(alignment))
}

// checkFork tells apart the types that Microsoft's BitNet has by ids that mean other types to ggml, or none any more.
func (f *File) checkFork(t *Tensor) error {
	architecture, err := f.StringOr("general.architecture", "")
	switch bitnet := strings.HasPrefix(architecture, "bitnet"); {
	case err != nil:
		return err
	case t.Type == I2_S && !bitnet:
		return errors.New("type 36 is IQ4_NL_4_4, which was removed from ggml, or BitNet's I2_S in a file of another architecture; convert the model anew")
	case t.Type == MXFP4 && bitnet:
		return errors.New("type 39 is TL2 in files of BitNet: not supported; convert the model to TQ2_0 or I2_S")
	}
	return nil
}

// checkOverlap refuses tensors that share bytes: ggml does too, and a small file could else make a loader allocate much.
func (f *File) checkOverlap() error {
	order := make([]*Tensor, len(f.tensors))
	for i := range f.tensors {
		order[i] = &f.tensors[i]
	}
	slices.SortFunc(order, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Bytes, b.Bytes))
	})
	for i := 1; i < len(order); i++ {
		if a, b := order[i-1], order[i]; a.Offset+a.Bytes > b.Offset {
			if a.isOlderQ2(b.Offset-a.Offset, f.Alignment) {
				return fmt.Errorf("tensor %s: %w", Quote(a.Name), errOlderQ2)
			}
			return fmt.Errorf("tensors %s and %s overlap at byte %d", Quote(a.Name), Quote(b.Name), b.Offset)
		}
	}
	return nil
}

func (f *File) alignment() (int, error) {
	v, ok := f.values[alignmentKey]
	if !ok {
		return defaultAlignment, nil
	}
	if v.Type != TypeUint32 {
		return 0, fmt.Errorf("key %q is of type %s, not u32", alignmentKey, v.Type)
	}
	a := v.integer(0)
	if a == 0 || a&(a-1) != 0 || a > maxMetadata {
		return 0, fmt.Errorf("key %q: %d is not a power of two up to %d", alignmentKey, a, maxMetadata)
	}
	return int(a), nil
}

func (p *parser) left() int64 { return p.size - int64(p.pos) }

// need makes the next n bytes available in buf.
func (p *parser) need(n uint64) error {
	if n <= uint64(len(p.buf)-p.pos) && uint64(p.pos)+n <= maxMetadata {
		return nil
	}
	if n > uint64(p.left()) {
		return fmt.Errorf("%w: %d bytes needed at byte %d, the file ends at byte %d", ErrTruncated, n, p.pos, p.size)
	}
	if uint64(p.pos)+n > maxMetadata {
		return fmt.Errorf("the metadata is longer than %d bytes", maxMetadata)
	}
	want := max(p.pos+int(n), 2*len(p.buf), 1<<16)
	grown := make([]byte, int(min(int64(want), p.size)))
	had := copy(grown, p.buf)
	if got, err := p.r.ReadAt(grown[had:], int64(had)); got < len(grown)-had {
		p.unread = readError(err)
		return fmt.Errorf("reading %d bytes at byte %d: %w", len(grown)-had, had, p.unread)
	}
	p.buf = grown
	return nil
}

// otherFormat says what a file is that begins with these bytes, and what to do.
func otherFormat(start []byte) string {
	has := func(prefix string) bool {
		return len(start) >= len(prefix) && strings.EqualFold(string(start[:len(prefix)]), prefix)
	}
	switch {
	case len(start) > 9 && start[8] == '{' && binary.LittleEndian.Uint64(start) <= maxMetadata:
		return "it is a safetensors file, for Python's transformers: take the model's GGUF file, or make one with llama.cpp's convert_hf_to_gguf.py"
	case has("PK\x03\x04"):
		return "it is a zip archive, as PyTorch saves weights: take the model's GGUF file, or make one with llama.cpp's convert_hf_to_gguf.py"
	case has("lmgg") || has("fmgg") || has("tjgg") || has("algg") || has("ggla"):
		return "it is a file of ggml from before GGUF (August 2023): take a newer file of the model"
	case has("version https://git-lfs"):
		return "it is a pointer of Git LFS that stands for the file: git lfs pull brings the file"
	case has("<!doctype html") || has("<html"):
		return "it is a web page: a download went wrong; vibrant pull hf:OWNER/REPO brings models"
	}
	return fmt.Sprintf("starts with %q, not with \"GGUF\"", start[:4])
}

func (p *parser) u32() (uint32, error) {
	if err := p.need(4); err != nil {
		return 0, err
	}
	p.pos += 4
	return binary.LittleEndian.Uint32(p.buf[p.pos-4:]), nil
}

func (p *parser) u64() (uint64, error) {
	if err := p.need(8); err != nil {
		return 0, err
	}
	p.pos += 8
	return binary.LittleEndian.Uint64(p.buf[p.pos-8:]), nil
}

// name reads a key or a tensor's name.
func (p *parser) name() (span, error) {
	n, err := p.u64()
	if err != nil {
		return span{}, err
	}
	if n > maxName {
		return span{}, fmt.Errorf("a name of %d bytes; the limit is %d", n, maxName)
	}
	if err := p.need(n); err != nil {
		return span{}, err
	}
	p.pos += int(n)
	return span{p.pos - int(n), p.pos}, nil
}

// Quote prints a name of the file for an error message, with control characters escaped and at most 64 bytes long.
func Quote(s string) string {
	const most = 64
	var q []byte
	for _, r := range s {
		escaped := strconv.AppendQuote(nil, string(r))
		if escaped = escaped[1 : len(escaped)-1]; len(q)+len(escaped) > most {
			return `"` + string(q) + `"...`
		}
		q = append(q, escaped...)
	}
	return `"` + string(q) + `"`
}
