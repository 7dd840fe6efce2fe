package gguf

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/vibrant-ml/vibrant/internal/check/testdata"
)

// build returns the file that w describes, or fails the test.
func build(t testing.TB, w *Writer) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := w.WriteTo(&b)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(b.Len()) {
		t.Fatalf("WriteTo says %d bytes and wrote %d", n, b.Len())
	}
	return b.Bytes()
}

// sample is a file with a value of each type and tensors of awkward shapes.
func sample() *Writer {
	w := &Writer{}
	w.Set("u8", uint8(200))
	w.Set("i8", int8(-100))
	w.Set("u16", uint16(60000))
	w.Set("i16", int16(-30000))
	w.Set("u32", uint32(4e9))
	w.Set("i32", int32(-2e9))
	w.Set("u64", uint64(math.MaxUint64))
	w.Set("i64", int64(math.MinInt64))
	w.Set("f32", float32(0.1))
	w.Set("f64", 0.1)
	w.Set("bool", true)
	w.Set("string", "Grüße, \x00 and \xff")
	w.Set("strings", []string{"", "a", "bc"})
	w.Set("i32s", []int32{-1, 0, 1})
	w.Set("u64s", []uint64{1, math.MaxUint64})
	w.Set("f32s", []float32{1, float32(math.Inf(-1))})
	w.Set("f64s", []float64{0.5})
	w.Set("bools", []bool{true, false})
	w.Set("bytes", []uint8{1, 2, 3})
	w.Set("empty", []string{})
	w.Set("nested", [][]string{{"x"}, {}, {"y", "z"}})
	w.AddTensor("scalar", F32, nil, []byte{1, 2, 3, 4})
	w.AddTensor("empty", F32, []int{3, 0}, nil)
	w.AddTensor("odd", I8, []int{127, 3}, bytes.Repeat([]byte{7}, 381))
	w.AddTensor("q4_k", Q4_K, []int{256, 2, 1, 3}, bytes.Repeat([]byte{9}, 144*6))
	return w
}

// each runs the test over the file as bytes, behind a ReaderAt, and mapped from disk.
func each(t *testing.T, b []byte, test func(t *testing.T, f *File)) {
	for _, way := range []struct {
		name string
		open func() (*File, error)
	}{
		{"bytes", func() (*File, error) { return FromBytes(b) }},
		{"reader", func() (*File, error) { return Parse(bytes.NewReader(b), int64(len(b))) }},
		{"file", func() (*File, error) {
			path := filepath.Join(t.TempDir(), "x.gguf")
			if err := os.WriteFile(path, b, 0o600); err != nil {
				return nil, err
			}
			return Open(path)
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			f, err := way.open()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			test(t, f)
		})
	}
}

func TestEachValueTypeIsReadBack(t *testing.T) {
	each(t, build(t, sample()), func(t *testing.T, f *File) {
		want := []any{
			uint8(200), int8(-100), uint16(60000), int16(-30000), uint32(4e9), int32(-2e9), uint64(math.MaxUint64),
			int64(math.MinInt64), float32(0.1), 0.1, true, "Grüße, \x00 and \xff", []string{"", "a", "bc"},
			[]int32{-1, 0, 1}, []uint64{1, math.MaxUint64}, []float32{1, float32(math.Inf(-1))}, []float64{0.5},
			[]bool{true, false}, []uint8{1, 2, 3}, []string{}, []any{[]string{"x"}, []string{}, []string{"y", "z"}},
		}
		if len(f.Keys()) != len(want) {
			t.Fatalf("%d keys, want %d: %v", len(f.Keys()), len(want), f.Keys())
		}
		for i, key := range f.Keys() {
			v, ok := f.Value(key)
			if got := v.Any(); !ok || !reflect.DeepEqual(got, want[i]) {
				t.Errorf("%s: %#v, want %#v", key, got, want[i])
			}
		}
		if f.Version != 3 || f.Alignment != 32 {
			t.Errorf("version %d, alignment %d", f.Version, f.Alignment)
		}
	})
}

func TestVersion2IsReadAsVersion3(t *testing.T) {
	b := build(t, sample())
	want, err := FromBytes(slices.Clone(b))
	if err != nil {
		t.Fatal(err)
	}
	b[4] = 2
	got, err := FromBytes(b)
	if err != nil || got.Version != 2 || !slices.Equal(got.Keys(), want.Keys()) || !reflect.DeepEqual(got.Tensors(), want.Tensors()) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestGettersConvertWhatFitsAndNameTheTypeOfTheRest(t *testing.T) {
	f, err := FromBytes(build(t, sample()))
	if err != nil {
		t.Fatal(err)
	}
	call := func(v any, err error) any {
		if err != nil {
			return err.Error()
		}
		return v
	}
	for _, c := range []struct{ what, got, want any }{
		{"Int u8", call(f.Int("u8")), int64(200)},
		{"Int i16", call(f.Int("i16")), int64(-30000)},
		{"Int i64", call(f.Int("i64")), int64(math.MinInt64)},
		{"Int u64", call(f.Int("u64")), `gguf: key "u64": 18446744073709551615 is out of range`},
		{"Uint u64", call(f.Uint("u64")), uint64(math.MaxUint64)},
		{"Uint i32", call(f.Uint("i32")), `gguf: key "i32": -2000000000 is negative`},
		{"Uint string", call(f.Uint("string")), `gguf: key "string" is of type string, not an integer`},
		{"Uint array", call(f.Uint("i32s")), `gguf: key "i32s" is of type array of i32, not an integer`},
		{"Float f32", call(f.Float("f32")), float64(float32(0.1))},
		{"Float f64", call(f.Float("f64")), 0.1},
		{"Float u32", call(f.Float("u32")), `gguf: key "u32" is of type u32, not f32 or f64`},
		{"Bool", call(f.Bool("bool")), true},
		{"Bool u8", call(f.Bool("u8")), `gguf: key "u8" is of type u8, not bool`},
		{"String", call(f.String("string")), "Grüße, \x00 and \xff"},
		{"String absent", call(f.String("nothing")), `gguf: key "nothing": missing from the metadata`},
		{"Strings", call(f.Strings("strings")), []string{"", "a", "bc"}},
		{"Strings nested", call(f.Strings("nested")), `gguf: key "nested" is of type array of array, not array of string`},
		{"Ints", call(f.Ints("i32s")), []int64{-1, 0, 1}},
		{"Ints u8", call(f.Ints("bytes")), []int64{1, 2, 3}},
		{"Ints u64", call(f.Ints("u64s")), `gguf: key "u64s": element 1, 18446744073709551615, is out of range`},
		{"Floats f32", call(f.Floats("f32s")), []float32{1, float32(math.Inf(-1))}},
		{"Floats f64", call(f.Floats("f64s")), []float32{0.5}},
		{"Bools", call(f.Bools("bools")), []bool{true, false}},
		{"StringOr", call(f.StringOr("nothing", "x")), "x"},
		{"UintOr", call(f.UintOr("u16", 1)), uint64(60000)},
		{"FloatOr", call(f.FloatOr("nothing", 1e-5)), 1e-5},
		{"BoolOr of another type", call(f.BoolOr("string", true)), `gguf: key "string" is of type string, not bool`},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %#v, want %#v", c.what, c.got, c.want)
		}
	}
	if _, err := f.Int("nothing"); !errors.Is(err, ErrNoKey) {
		t.Errorf("%v does not wrap ErrNoKey", err)
	}
}

func TestTensorsAreReadBackAndAligned(t *testing.T) {
	each(t, build(t, sample()), func(t *testing.T, f *File) {
		want := []Tensor{
			{Name: "scalar", Type: F32, Dims: []int{}, Bytes: 4},
			{Name: "empty", Type: F32, Dims: []int{3, 0}},
			{Name: "odd", Type: I8, Dims: []int{127, 3}, Bytes: 381},
			{Name: "q4_k", Type: Q4_K, Dims: []int{256, 2, 1, 3}, Bytes: 864},
		}
		elements := []int{1, 0, 381, 1536}
		first := []byte{1, 0, 7, 9}
		if len(f.Tensors()) != len(want) {
			t.Fatalf("%d tensors", len(f.Tensors()))
		}
		for i, got := range f.Tensors() {
			if got.Offset%int64(f.Alignment) != 0 {
				t.Errorf("%s: offset %d", got.Name, got.Offset)
			}
			if got.Elements() != elements[i] {
				t.Errorf("%s: %d elements, want %d", got.Name, got.Elements(), elements[i])
			}
			data, err := f.Data(&got)
			if err != nil || int64(len(data)) != got.Bytes || (len(data) > 0 && (data[0] != first[i])) {
				t.Errorf("%s: data %v... %v", got.Name, data[:min(4, len(data))], err)
			}
			if cap(data) != len(data) {
				t.Errorf("%s: an append to its data would write into the next tensor", got.Name)
			}
			got.Offset = 0
			if !reflect.DeepEqual(got, want[i]) {
				t.Errorf("%+v, want %+v", got, want[i])
			}
		}
		if q, err := f.Tensor("q4_k"); err != nil || q.Type != Q4_K || !f.HasTensor("q4_k") {
			t.Errorf("Tensor: %v %v", q, err)
		}
		if _, err := f.Tensor("none"); !errors.Is(err, ErrNoTensor) || !strings.Contains(err.Error(), `"none"`) {
			t.Errorf("Tensor of an unknown name: %v", err)
		}
		if _, err := f.Data(&Tensor{Name: "forged", Offset: f.Size - 1, Bytes: 2}); err == nil {
			t.Error("Data of a tensor outside the file")
		}
		if _, err := f.Data(&Tensor{Name: "forged", Offset: math.MaxInt64, Bytes: math.MaxInt64}); err == nil {
			t.Error("Data of a tensor far outside the file")
		}
	})
}

func TestCloseIsIdempotentAndMetadataOutlivesIt(t *testing.T) {
	each(t, build(t, sample()), func(t *testing.T, f *File) {
		s, err := f.Strings("strings")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.Data(&f.Tensors()[0]); !errors.Is(err, ErrClosed) {
			t.Errorf("Data after Close: %v", err)
		}
		if again, _ := f.Strings("strings"); !reflect.DeepEqual(s, again) || s[2] != "bc" {
			t.Errorf("%q after Close", s)
		}
	})
}

func TestOpenNamesThePath(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.gguf")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, empty, filepath.Join(dir, "absent.gguf")} {
		if _, err := Open(path); err == nil || strings.Count(err.Error(), path) != 1 {
			t.Errorf("%v should name %s once", err, path)
		}
	}
}

func TestFilesOfOtherFormatsAreNamed(t *testing.T) {
	for start, want := range map[string]string{
		"\x20\x00\x00\x00\x00\x00\x00\x00{\"a\":{}}": "safetensors", "PK\x03\x04rest": "PyTorch", "tjgg\x03\x00\x00\x00": "before GGUF",
		"version https://git-lfs.github.com/spec/v1\n": "Git LFS", "<!DOCTYPE html>": "a web page", "junk": `starts with "junk"`,
	} {
		if _, err := FromBytes([]byte(start)); !errors.Is(err, ErrNotGGUF) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", start, err, want)
		}
	}
}

func TestAlignmentOfTheFileIsFollowed(t *testing.T) {
	for _, align := range []uint32{1, 8, 64, 4096} {
		w := &Writer{}
		w.Set("general.alignment", align)
		w.AddTensor("a", I8, []int{1}, []byte{1})
		w.AddTensor("b", I8, []int{1}, []byte{2})
		f, err := FromBytes(build(t, w))
		if err != nil {
			t.Fatal(err)
		}
		a, b := f.Tensors()[0], f.Tensors()[1]
		if data, err := f.Data(&b); err != nil || data[0] != 2 || b.Offset-a.Offset != int64(align) || f.DataStart%int64(align) != 0 {
			t.Errorf("alignment %d: offsets %d and %d, data %v %v", align, a.Offset, b.Offset, data, err)
		}
	}
}

func TestWriterRefusesWhatReadersWould(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(w *Writer)
		want string
	}{
		"int":            {func(w *Writer) { w.Set("k", 1) }, "no GGUF type for Go type int"},
		"nil":            {func(w *Writer) { w.Set("k", nil) }, "nil"},
		"deep":           {func(w *Writer) { w.Set("k", [][][][][]int8{}) }, "nested"},
		"twice":          {func(w *Writer) { w.Set("k", true); w.Set("k", true) }, "twice"},
		"no key":         {func(w *Writer) { w.Set("", true) }, "1 to 65535 bytes"},
		"alignment":      {func(w *Writer) { w.Set("general.alignment", uint32(3)) }, "power of two"},
		"alignment type": {func(w *Writer) { w.Set("general.alignment", uint64(32)) }, "power of two"},
		"tensor twice": {func(w *Writer) {
			w.AddTensor("a", I8, []int{1}, []byte{1})
			w.AddTensor("a", I8, []int{1}, []byte{1})
		}, "twice"},
		"data":      {func(w *Writer) { w.AddTensor("a", F32, []int{2}, []byte{1}) }, "1 bytes of data; dimensions [2] of F32 take 8"},
		"dims":      {func(w *Writer) { w.AddTensor("a", F32, []int{1, 1, 1, 1, 1}, nil) }, "5 dimensions"},
		"negative":  {func(w *Writer) { w.AddTensor("a", F32, []int{-1}, nil) }, "negative"},
		"row":       {func(w *Writer) { w.AddTensor("a", Q4_K, []int{255}, nil) }, "multiple of the block size 256"},
		"type":      {func(w *Writer) { w.AddTensor("a", 77, []int{1}, nil) }, "unknown type 77"},
		"no name":   {func(w *Writer) { w.AddTensor("", F32, nil, make([]byte, 4)) }, "1 to 65535 bytes"},
		"too large": {func(w *Writer) { w.AddTensor("a", F64, []int{math.MaxInt, 2}, nil) }, "overflow"},
	} {
		w := &Writer{}
		c.set(w)
		if _, err := w.WriteTo(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	if err := (&Writer{}).WriteFile(filepath.Join(t.TempDir(), "no", "such", "folder")); err == nil {
		t.Error("WriteFile into an absent folder")
	}
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	key := rapid.StringMatching(`[a-z][a-z0-9_.]{0,30}`)
	value := rapid.OneOf(
		rapid.Just(any(true)),
		rapid.Map(rapid.Uint32(), func(v uint32) any { return v }),
		rapid.Map(rapid.Int64(), func(v int64) any { return v }),
		rapid.Map(rapid.Float32(), func(v float32) any { return v }),
		rapid.Map(rapid.String(), func(v string) any { return v }),
		rapid.Map(rapid.SliceOf(rapid.String()), func(v []string) any { return v }),
		rapid.Map(rapid.SliceOf(rapid.Int16()), func(v []int16) any { return v }),
		rapid.Map(rapid.SliceOf(rapid.Float64()), func(v []float64) any { return v }),
		rapid.Map(rapid.SliceOf(rapid.Bool()), func(v []bool) any { return v }),
	)
	var known []Type
	for id := range types {
		if Type(id).Known() && Type(id) != I2_S { // a scale follows its codes, and only files of BitNet have it
			known = append(known, Type(id))
		}
	}
	type tensor struct {
		typ  Type
		dims []int
		data []byte
	}
	rapid.Check(t, func(t *rapid.T) {
		w := &Writer{}
		if rapid.Bool().Draw(t, "aligned") {
			w.Set(alignmentKey, uint32(1)<<rapid.IntRange(0, 10).Draw(t, "alignment"))
		}
		values := rapid.MapOf(key, value).Draw(t, "values")
		for k, v := range values {
			w.Set(k, v)
		}
		names := rapid.SliceOfDistinct(key, rapid.ID[string]).Draw(t, "names")
		tensors := map[string]tensor{}
		for _, name := range names {
			x := tensor{typ: rapid.SampledFrom(known).Draw(t, "type")}
			blocks := 1
			for j := range rapid.IntRange(0, maxDims).Draw(t, "dims") {
				d := rapid.IntRange(0, 5).Draw(t, "dim")
				blocks *= d
				if j == 0 {
					d *= x.typ.BlockSize()
				}
				x.dims = append(x.dims, d)
			}
			if len(x.dims) == 0 && x.typ.BlockSize() > 1 {
				x.dims = []int{x.typ.BlockSize()}
			}
			x.data = rapid.SliceOfN(rapid.Byte(), blocks*x.typ.TypeSize(), blocks*x.typ.TypeSize()).Draw(t, "data")
			tensors[name] = x
			w.AddTensor(name, x.typ, x.dims, x.data)
		}
		var b bytes.Buffer
		if _, err := w.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		f, err := Parse(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil {
			t.Fatal(err)
		}
		for k, want := range values {
			v, _ := f.Value(k)
			if got := v.Any(); !reflect.DeepEqual(got, want) && reflect.ValueOf(want).Kind() == reflect.Slice && reflect.ValueOf(want).Len() > 0 {
				t.Fatalf("%s: %#v, want %#v", k, got, want)
			}
		}
		for i, name := range names {
			got, want := f.Tensors()[i], tensors[name]
			data, err := f.Data(&got)
			if err != nil || got.Name != name || got.Type != want.typ || !bytes.Equal(data, want.data) || len(got.Dims) != len(want.dims) {
				t.Fatalf("%+v with %d bytes, want %s %+v; %v", got, len(data), name, want, err)
			}
			for j, d := range got.Dims {
				if d != want.dims[j] {
					t.Fatalf("%s: dims %v, want %v", name, got.Dims, want.dims)
				}
			}
		}
	})
}

// The golden blocks name each type's id and sizes as ggml has them.
func TestTypeSizesAgreeWithGgml(t *testing.T) {
	b, err := os.ReadFile(testdata.Path(t, "quants", "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Types map[string]struct {
			ID        Type `json:"ggml_type"`
			BlockSize int  `json:"block_size"`
			TypeSize  int  `json:"type_size"`
		}
	}
	if err := json.Unmarshal(b, &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Types) < 24 {
		t.Fatalf("only %d types", len(index.Types))
	}
	for name, want := range index.Types {
		if want.ID.String() != name || want.ID.BlockSize() != want.BlockSize || want.ID.TypeSize() != want.TypeSize {
			t.Errorf("%d is %s (%d, %d), want %s %+v", want.ID, want.ID, want.ID.BlockSize(), want.ID.TypeSize(), name, want)
		}
	}
	if x := Type(1 << 31); x.Known() || x.String() != "type 2147483648" || x.BlockSize() != 0 || x.TypeSize() != 0 {
		t.Errorf("an unknown type: %s", x)
	}
}

func TestFilesOfOtherEnginesAreRead(t *testing.T) {
	for _, c := range []struct {
		path    string
		tensors int
		tokens  int
		arch    string
		tensor  Tensor // Offset left out
	}{
		{"vocab/ggml-vocab-qwen2.gguf", 0, 151936, "qwen2", Tensor{}},
		{"vocab/ggml-vocab-llama-bpe.gguf", 0, 128256, "llama", Tensor{}},
		{"vocab/ggml-vocab-llama-spm.gguf", 0, 32000, "llama", Tensor{}},
		{"vocab/ggml-vocab-gpt-2.gguf", 0, 50257, "gpt2", Tensor{}},
		{"models/stories260K-f32.gguf", 48, 512, "llama", Tensor{Name: "blk.0.ffn_down.weight", Type: F32, Dims: []int{172, 64}, Bytes: 172 * 64 * 4}},
		{"models/stories260K-q4_0.gguf", 0, 512, "llama", Tensor{Name: "blk.4.ffn_up.weight", Type: Q4_0, Dims: []int{64, 172}, Bytes: 64 / 32 * 172 * 18}},
		{"models/tiny-qwen3.gguf", 0, 512, "qwen3", Tensor{Name: "blk.0.attn_q_norm.weight", Type: F32, Dims: []int{64}, Bytes: 256}},
	} {
		t.Run(filepath.Base(c.path), func(t *testing.T) {
			f, err := Open(testdata.Path(t, c.path))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if arch, err := f.String("general.architecture"); arch != c.arch {
				t.Errorf("architecture %q, %v", arch, err)
			}
			if tokens, err := f.Strings("tokenizer.ggml.tokens"); len(tokens) != c.tokens {
				t.Errorf("%d tokens, %v", len(tokens), err)
			}
			if c.tensors > 0 && len(f.Tensors()) != c.tensors {
				t.Errorf("%d tensors", len(f.Tensors()))
			}
			for i := range f.Tensors() {
				if data, err := f.Data(&f.Tensors()[i]); err != nil || len(data) == 0 {
					t.Errorf("%s: %d bytes, %v", f.Tensors()[i].Name, len(data), err)
				}
			}
			if c.tensor.Name == "" {
				return
			}
			got, err := f.Tensor(c.tensor.Name)
			if err != nil {
				t.Fatal(err)
			}
			c.tensor.Offset = got.Offset
			if !reflect.DeepEqual(*got, c.tensor) {
				t.Errorf("%+v, want %+v", *got, c.tensor)
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	path := testdata.Path(b, "vocab", "ggml-vocab-qwen2.gguf")
	b.ReportAllocs()
	for b.Loop() {
		f, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		for _, key := range []string{"tokenizer.ggml.tokens", "tokenizer.ggml.merges"} {
			if _, err := f.Strings(key); err != nil {
				b.Fatal(err)
			}
		}
		f.Close()
	}
}

// TestType39IsNamedByTheArchitecture: it is MXFP4, but TL2 in Microsoft's files of BitNet, which nobody may read as the other.
func TestType39IsNamedByTheArchitecture(t *testing.T) {
	for architecture, refused := range map[string]bool{"gpt-oss": false, "llama": false, "bitnet": true, "bitnet-25": true, "bitnet-b1.58": true} {
		w := &Writer{}
		w.Set("general.architecture", architecture)
		w.AddTensor("blk.0.ffn_up.weight", MXFP4, []int{32, 2}, make([]byte, 34))
		var b bytes.Buffer
		if _, err := w.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		f, err := FromBytes(b.Bytes())
		switch {
		case refused && (err == nil || !strings.Contains(err.Error(), "TL2") || !strings.Contains(err.Error(), "TQ2_0")):
			t.Errorf("%s: %v, want an error that names TL2 and what to convert to", architecture, err)
		case !refused && err != nil:
			t.Errorf("%s: %v", architecture, err)
		case !refused && f.Tensors()[0].Type != MXFP4:
			t.Errorf("%s: type %s", architecture, f.Tensors()[0].Type)
		}
	}
}
