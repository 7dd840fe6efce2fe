package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
)

// raw builds files byte by byte: numbers by their size, strings with their length, []byte as they are.
func raw(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = appendString(b, p)
		case []byte:
			b = append(b, p...)
		default:
			b, _ = binary.Append(b, binary.LittleEndian, p)
		}
	}
	return b
}

// head is the header of a file with so many tensors and values.
func head(tensors, values uint64) []byte { return raw([]byte("GGUF"), uint32(3), tensors, values) }

// info describes a tensor.
func info(name string, typ Type, offset uint64, dims ...uint64) []byte {
	return raw(name, uint32(len(dims)), dims, uint32(typ), offset)
}

var filler = make([]byte, 4096)

// hostile files, each with a part of the error that is expected.
var hostile = map[string]struct {
	file []byte
	want string
}{
	"empty":                {nil, "0 bytes long"},
	"short magic":          {[]byte("GGU"), "3 bytes long"},
	"other magic":          {[]byte("ggjt....................."), `"ggjt"`},
	"header cut":           {head(0, 0)[:20], "truncated"},
	"version 0":            {raw([]byte("GGUF"), uint32(0), uint64(0), uint64(0)), "version 0"},
	"version 1":            {raw([]byte("GGUF"), uint32(1), uint32(0), uint32(0)), "version 1; versions 2 and 3 are supported"},
	"version 4":            {raw([]byte("GGUF"), uint32(4), uint64(0), uint64(0)), "version 4"},
	"big-endian":           {raw([]byte("GGUF"), uint32(3<<24), uint64(0), uint64(0)), "big-endian"},
	"tensor count":         {head(1<<63, 0), "9223372036854775808 tensors cannot fit in a file of 24 bytes"},
	"value count":          {head(0, math.MaxUint64), "18446744073709551615 metadata values cannot fit"},
	"empty key":            {raw(head(0, 1), "", uint32(0), filler), "byte 24: metadata key 1 of 1: empty key"},
	"key length":           {raw(head(0, 1), uint64(1<<40), filler), "a name of 1099511627776 bytes"},
	"key length overflow":  {raw(head(0, 1), uint64(math.MaxUint64), filler), "a name of 18446744073709551615 bytes"},
	"key past the end":     {raw(head(0, 1), uint64(100), []byte("0123456789")), "100 bytes needed at byte 32, the file ends at byte 42"},
	"value type":           {raw(head(0, 1), "k", uint32(13), filler), `byte 24: key "k": unknown value type 13`},
	"value type max":       {raw(head(0, 1), "k", uint32(math.MaxUint32), filler), "unknown value type 4294967295"},
	"value cut":            {raw(head(0, 1), "k", uint32(TypeUint64), uint32(0)), "8 bytes needed at byte 37, the file ends at byte 41"},
	"bool of 2":            {raw(head(0, 1), "k", uint32(TypeBool), []byte{2}), "a bool of value 2"},
	"bool array":           {raw(head(0, 1), "k", uint32(TypeArray), uint32(TypeBool), uint64(2), []byte{1, 9}), "a bool of value 9"},
	"string past the end":  {raw(head(0, 1), "k", uint32(TypeString), uint64(9000), filler), "9000 bytes needed"},
	"string length wraps":  {raw(head(0, 1), "k", uint32(TypeString), uint64(math.MaxUint64-8), filler), "18446744073709551607 bytes needed"},
	"array count":          {raw(head(0, 1), "k", uint32(TypeArray), uint32(TypeUint8), uint64(1<<62), filler), "cannot fit in the 4096 bytes that are left"},
	"array count wraps":    {raw(head(0, 1), "k", uint32(TypeArray), uint32(TypeUint64), uint64(1<<61+1), filler), "cannot fit"},
	"array type":           {raw(head(0, 1), "k", uint32(TypeArray), uint32(99), uint64(1), filler), "unknown type 99 of array elements"},
	"string array":         {raw(head(0, 1), "k", uint32(TypeArray), uint32(TypeString), uint64(2), "a", uint64(99999), filler), "element 1 of 2: truncated"},
	"nested too deep":      {raw(head(0, 1), "k", uint32(TypeArray), bytes.Repeat(raw(uint32(TypeArray), uint64(1)), 100), filler), "nested more than 4 deep"},
	"nested count":         {raw(head(0, 1), "k", uint32(TypeArray), uint32(TypeArray), uint64(1), uint32(TypeUint8), uint64(1<<50), filler), "cannot fit"},
	"key twice":            {raw(head(0, 2), "k", uint32(0), []byte{1}, "k", uint32(0), []byte{2}, filler), `byte 46: key "k" is there twice`},
	"alignment 0":          {raw(head(0, 1), alignmentKey, uint32(TypeUint32), uint32(0)), "power of two"},
	"alignment 33":         {raw(head(0, 1), alignmentKey, uint32(TypeUint32), uint32(33)), "33 is not a power of two"},
	"alignment 2^31":       {raw(head(0, 1), alignmentKey, uint32(TypeUint32), uint32(1<<31)), "power of two"},
	"alignment of type":    {raw(head(0, 1), alignmentKey, uint32(TypeUint64), uint64(32)), "of type u64, not u32"},
	"tensor without name":  {raw(head(1, 0), info("", F32, 0, 1), filler), `byte 24: tensor "": empty name`},
	"tensor cut":           {raw(head(1, 0), info("weight", F32, 0, 1)[:26]), `byte 24: tensor "weight": truncated`},
	"tensor dims":          {raw(head(1, 0), "t", uint32(5), filler), `tensor "t": 5 dimensions; at most 4`},
	"tensor dims max":      {raw(head(1, 0), "t", uint32(math.MaxUint32), filler), "4294967295 dimensions"},
	"tensor type":          {raw(head(1, 0), info("t", 1000, 0, 1), filler), `byte 32: tensor "t": unknown type 1000`},
	"tensor type I2_S":     {raw(head(1, 0), info("t", 36, 0, 32), filler), "type 36 is IQ4_NL_4_4"},
	"tensor type removed":  {raw(head(1, 0), info("t", 4, 0, 32), filler), "type 4 (Q4_2) was removed from ggml"},
	"tensor row":           {raw(head(1, 0), info("t", Q4_K, 0, 255), filler), "rows of 255 elements are not a multiple of the block size 256 of Q4_K"},
	"scalar of blocks":     {raw(head(1, 0), info("t", Q8_0, 0), filler), "rows of 1 elements are not a multiple"},
	"dimension over int64": {raw(head(1, 0), info("t", I8, 0, 1<<63), filler), "dimension 0 of 9223372036854775808 elements overflows"},
	"bytes overflow":       {raw(head(1, 0), info("t", F64, 0, 1<<62), filler), "overflow"},
	"product overflows":    {raw(head(1, 0), info("t", I8, 0, 1<<40, 1<<40), filler), "overflow"},
	"product wraps to 0":   {raw(head(1, 0), info("t", F32, 0, 1<<32, 1<<32, 1), filler), "overflow"},
	"elements overflow":    {raw(head(1, 0), info("t", Q1_0, 0, 1<<62, 8), filler), "overflow"},
	"offset unaligned":     {raw(head(1, 0), info("t", F32, 4, 1), filler), "offset 4 is not a multiple of the alignment 32"},
	"offset past the end":  {raw(head(1, 0), info("t", F32, 1<<20, 1), filler), "its data ends at byte 1048644, the file at byte 4153"},
	"offset wraps":         {raw(head(1, 0), info("t", F32, math.MaxUint64-31, 8), filler), "overflows"},
	"data cut":             {raw(head(1, 0), info("t", F32, 0, 2000), filler), "its data ends at byte 8064, the file at byte 4153"},
	"no data at all":       {raw(head(1, 0), info("t", F32, 0, 1)), "its data ends at byte 68, the file at byte 57"},
	"tensor twice":         {raw(head(2, 0), info("t", F32, 0, 1), info("t", F32, 32, 1), filler), `tensor "t" is there twice`},
	"older Q2_0": {raw(head(2, 0), info("a", Q2_0, 0, 256, 8), info("b", F32, 544, 1), filler),
		`tensor "a": Q2_0 in groups of 128, as an earlier version of the format had them`},
	"older Q2_0 at the end": {raw(head(1, 0), info("a", Q2_0, 0, 256, 8), make([]byte, 31+544)), `tensor "a": Q2_0 in groups of 128`},
	"Q2_0 cut short":        {raw(head(1, 0), info("a", Q2_0, 0, 256, 8), make([]byte, 31+512)), "its data ends at byte 672, the file at byte 608"},
	"tensors overlap":       {raw(head(2, 0), info("a", F32, 0, 9), info("b", F32, 32, 1), filler), `tensors "a" and "b" overlap at byte 128`},
}

// TestHostileFilesAreClearErrors wants an error of a known kind that names what is wrong, soon and without much memory.
func TestHostileFilesAreClearErrors(t *testing.T) {
	var longest time.Duration
	var most uint64
	for name, c := range hostile {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := busy.Processor()
		_, err := FromBytes(c.file)
		longest = max(longest, busy.Processor()-start)
		runtime.ReadMemStats(&after)
		most = max(most, after.TotalAlloc-before.TotalAlloc)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "gguf: ") {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
			continue
		}
		if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNotGGUF) {
			t.Errorf("%s: %v is of no kind", name, err)
		}
		_, err2 := Parse(bytes.NewReader(c.file), int64(len(c.file)))
		if err2 == nil || err2.Error() != err.Error() {
			t.Errorf("%s: Parse says %v, FromBytes %v", name, err2, err)
		}
	}
	t.Logf("%d forged files: at most %v and %d KiB each", len(hostile), longest, most>>10)
	if longest > time.Second || most > 16<<20 { // a tenth of a second is the goal
		t.Errorf("a forged file takes %v and %d bytes", longest, most)
	}
}

func TestEveryTruncationIsAnError(t *testing.T) {
	b := build(t, sample())
	f, err := FromBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	last := f.Tensors()[len(f.Tensors())-1]
	end := int(last.Offset + last.Bytes)
	for n := range end {
		if _, err := FromBytes(b[:n:n]); err == nil {
			t.Fatalf("the first %d of %d bytes were accepted", n, len(b))
		} else if n >= 24 && !errors.Is(err, ErrTruncated) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(b), err)
		}
	}
	if _, err := FromBytes(b[:end]); err != nil {
		t.Errorf("without the padding behind the last tensor: %v", err)
	}
	path := filepath.Join(t.TempDir(), "cut.gguf")
	if err := os.WriteFile(path, b[:end-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), path) {
		t.Errorf("Open: %v", err)
	}
}

// What is allocated for a hostile file stays within a small multiple of its size.
func TestMemoryStaysProportionalToTheFile(t *testing.T) {
	const size = 1 << 20
	pad := func(b []byte) []byte { return append(b, make([]byte, max(0, size-len(b)))...) }
	many := func(tensors, values uint64, entry func(i uint32) []byte) []byte {
		b := head(tensors, values)
		for i := range uint32(max(tensors, values)) {
			b = append(b, entry(i)...)
		}
		return pad(b)
	}
	files := map[string][]byte{
		"string length":  pad(raw(head(0, 1), "k", uint32(TypeString), uint64(math.MaxInt64))),
		"array count":    pad(raw(head(0, 1), "k", uint32(TypeArray), uint32(TypeString), uint64(size/8))),
		"empty strings":  pad(raw(head(0, 1), "k", uint32(TypeArray), uint32(TypeString), uint64(size/8-100))),
		"nested arrays":  pad(raw(head(0, 1), "k", uint32(TypeArray), uint32(TypeArray), uint64(size/12-100))),
		"many keys":      many(0, size/20, func(i uint32) []byte { return raw(uint64(4), i, uint32(TypeUint8), []byte{0}) }),
		"many tensors":   many(size/28, 0, func(i uint32) []byte { return raw(uint64(4), i, uint32(0), uint32(F32), uint64(0)) }),
		"announced many": pad(head(size/24, size/14)),
	}
	for name, b := range files {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f, err := Parse(bytes.NewReader(b), int64(len(b)))
		if err == nil {
			for _, k := range f.Keys() {
				v, _ := f.Value(k)
				runtime.KeepAlive(v.Any())
			}
		}
		runtime.ReadMemStats(&after)
		// 40: a key of 17 bytes costs a map entry and a Value, and growing slices and maps counts what was dropped too.
		if got := after.TotalAlloc - before.TotalAlloc; got > 40*size {
			t.Errorf("%s: %d bytes allocated for a file of %d (%v)", name, got, size, err)
		}
	}
}

// failingReader fails wherever a read goes past the limit.
type failingReader struct {
	io.ReaderAt
	limit int64
}

func (r failingReader) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > r.limit {
		return 0, errBroken
	}
	return r.ReaderAt.ReadAt(p, off)
}

var errBroken = errors.New("broken disk")

func TestReadErrorsAreReported(t *testing.T) {
	b := build(t, sample())
	size := int64(len(b))
	if _, err := Parse(failingReader{bytes.NewReader(b), 0}, size); !errors.Is(err, errBroken) {
		t.Errorf("Parse: %v", err)
	}
	f, err := Parse(failingReader{bytes.NewReader(b), size}, size)
	if err != nil {
		t.Fatal(err)
	}
	f.r = failingReader{}
	if _, err := f.Data(&f.Tensors()[0]); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), `"scalar"`) {
		t.Errorf("Data: %v", err)
	}
}

// FuzzParse looks for files that make the reader panic, hang, or announce tensors that Data cannot return.
func FuzzParse(f *testing.F) {
	f.Add(build(f, sample()))
	for _, c := range hostile {
		f.Add(c.file)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := FromBytes(b)
		h, err2 := Parse(bytes.NewReader(b), int64(len(b)))
		if (err == nil) != (err2 == nil) {
			t.Fatalf("FromBytes: %v, Parse: %v", err, err2)
		}
		if err != nil {
			return
		}
		for _, key := range g.Keys() {
			v, ok := g.Value(key)
			if a := v.Any(); !ok || a == nil {
				t.Fatalf("key %q has no value", key)
			}
			g.String(key)
			g.Int(key)
			g.Uint(key)
			g.Float(key)
			g.Bool(key)
			g.Strings(key)
			g.Ints(key)
			g.Floats(key)
			g.Bools(key)
		}
		for i := range g.Tensors() {
			x, err := g.Data(&g.Tensors()[i])
			y, err2 := h.Data(&h.Tensors()[i])
			if err != nil || err2 != nil || !bytes.Equal(x, y) || g.Tensors()[i].Elements() < 0 {
				t.Fatalf("%+v: %v, %v", g.Tensors()[i], err, err2)
			}
		}
	})
}
