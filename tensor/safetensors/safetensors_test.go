package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/tensor"
	"github.com/vibrant-ml/vibrant/tensor/safetensors"
)

func open(t testing.TB, path string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func openFake(t *testing.T) *gpu.Device {
	t.Helper()
	d, err := gpu.OpenBackend(fake.New(fake.Config{}), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// values returns the elements as float64.
func values(t *testing.T, x *tensor.Tensor) (all []float64) {
	t.Helper()
	switch x.DType() {
	case tensor.I8, tensor.U8, tensor.BOOL, tensor.I32:
		for _, v := range tensor.Convert(x, tensor.I32).Int32s() {
			all = append(all, float64(v))
		}
	default:
		for _, v := range x.Float32s() {
			all = append(all, float64(v))
		}
	}
	return all
}

// golden is what testdata/golden.py puts into stored.safetensors.
func golden(t *testing.T) map[string][]float64 {
	t.Helper()
	text, err := os.ReadFile("testdata/stored.json")
	if err != nil {
		t.Fatal(err)
	}
	var floats []float64
	if err := json.Unmarshal(text, &floats); err != nil {
		t.Fatal(err)
	}
	rounded := func(to tensor.DType) (all []float64) {
		single := make([]float32, len(floats))
		for i, v := range floats {
			single[i] = float32(v)
		}
		for _, v := range tensor.Convert(tensor.FromSlice(single), to).Float32s() {
			all = append(all, float64(v))
		}
		return all
	}
	return map[string][]float64{
		"f32": floats, "f16": rounded(tensor.F16), "bf16": rounded(tensor.BF16), "i32": {math.MinInt32, -1, 0, math.MaxInt32},
		"i8": {-4, -3, -2, -1, 0, 1, 2, 3}, "u8": {0, 1, 254, 255}, "bool": {1, 0, 1}, "scalar": {2.5}, "empty": nil, "quote \" \\ \n <&> é\u2028": {1},
	}
}

// The files are by the format's own library: testdata/golden.py.
func TestFilesOfTheFormatsLibraryAreRead(t *testing.T) {
	for _, d := range []*gpu.Device{gpu.CPU(), openFake(t)} {
		f := open(t, "testdata/stored.safetensors")
		if m := f.Metadata(); len(m) != 1 || m["format"] != "np" {
			t.Errorf("metadata %v", m)
		}
		want := golden(t)
		all, err := f.ReadAll(d)
		if err != nil || len(all) != len(want) {
			t.Fatalf("%d tensors, %v", len(all), err)
		}
		for name, x := range all {
			if got := values(t, x); !slices.Equal(got, want[name]) || x.Device() != d {
				t.Errorf("%q: %v, want %v", name, got, want[name])
			}
		}
		for name, shape := range map[string][]int{"f32": {3, 5}, "i8": {2, 2, 2}, "scalar": {}, "empty": {0, 4}} {
			if info, err := f.Info(name); err != nil || !slices.Equal(info.Shape, shape) || !slices.Equal(all[name].Shape(), shape) {
				t.Errorf("%s: %v, tensor %v, %v", name, info, all[name].Shape(), err)
			}
		}
		if _, err := f.Tensor(d, "f31"); !errors.Is(err, safetensors.ErrNoTensor) || !strings.Contains(err.Error(), `"f31"`) {
			t.Error(err)
		}
		if err := f.Intact(); err != nil {
			t.Error(err)
		}
	}
}

// The header and the data are those of the format's own library, but for the number of spaces between them.
func TestFilesAreThoseOfTheFormatsLibrary(t *testing.T) {
	const source = "testdata/stored.safetensors"
	for _, d := range []*gpu.Device{gpu.CPU(), openFake(t)} {
		f := open(t, source)
		all, err := f.ReadAll(d)
		if err != nil {
			t.Fatal(err)
		}
		all["f32"] = tensor.Copy(all["f32"].T()).T() // a view
		path := filepath.Join(t.TempDir(), "out.safetensors")
		if err := safetensors.Write(path, all, f.Metadata()); err != nil {
			t.Fatal(err)
		}
		parts := func(path string) (header, data []byte) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			n := 8 + binary.LittleEndian.Uint64(b)
			return bytes.TrimRight(b[8:n], " "), b[n:]
		}
		header, data := parts(path)
		wantHeader, wantData := parts(source)
		// The library's JSON has U+2028 as it is; Go's escapes it.
		if got := bytes.ReplaceAll(header, []byte(`\u2028`), []byte("\u2028")); !bytes.Equal(got, wantHeader) {
			t.Errorf("header\n%s\nwant\n%s", got, wantHeader)
		}
		if !bytes.Equal(data, wantData) {
			t.Error("other data")
		}
		if info, _ := os.Stat(path); (info.Size()-int64(len(data)))%64 != 0 {
			t.Error("the data is not aligned")
		}
	}
}

func TestTypesThatTensorsLackConvertOnRequest(t *testing.T) {
	f := open(t, "testdata/other.safetensors")
	for _, name := range []string{"f64", "i64", "i16", "u16", "u32", "u64", "f8"} {
		_, err := f.Tensor(gpu.CPU(), name)
		info, _ := f.Info(name)
		if !errors.Is(err, safetensors.ErrType) || !strings.Contains(err.Error(), fmt.Sprintf("tensor %q of type %s", name, info.Type)) ||
			strings.Contains(err.Error(), "TensorAs") == (name == "f8") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []struct {
		name string
		to   tensor.DType
		want []float64
	}{
		{"f64", tensor.F32, []float64{float64(float32(0.1)), math.Inf(-1), float64(float32(math.Pi))}},
		{"i64", tensor.I32, []float64{math.MinInt32, 7, math.MaxInt32}}, {"large", tensor.F32, []float64{1, 1 << 31}},
		{"i16", tensor.I32, []float64{-1 << 15, 1<<15 - 1}}, {"u16", tensor.F32, []float64{0, 1<<16 - 1}},
		{"u32", tensor.F32, []float64{5, 1 << 32}}, {"u64", tensor.F32, []float64{1 << 64, 3}}, {"i16", tensor.F16, []float64{-1 << 15, 1 << 15}},
	} {
		x, err := f.TensorAs(gpu.CPU(), c.name, c.to)
		if err != nil || x.DType() != c.to || !slices.Equal(values(t, x), c.want) {
			t.Errorf("%s: %v %v, want %v", c.name, x, err, c.want)
		}
	}
	for name, want := range map[string]string{"large": "element 1, 2147483648, does not fit I32", "u32": "element 1, 4294967295, does not",
		"u64": "element 0, 18446744073709551616, does not", "f8": "type not supported"} {
		if _, err := f.TensorAs(gpu.CPU(), name, tensor.I32); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if x, err := open(t, "testdata/stored.safetensors").TensorAs(gpu.CPU(), "i8", tensor.F32); err != nil || x.Float32s()[0] != -4 {
		t.Error(x, err)
	}
}

func TestFoldersOfSeveralFiles(t *testing.T) {
	for _, path := range []string{"testdata/sharded", "testdata/sharded/model.safetensors.index.json"} {
		f := open(t, path)
		c, err := f.Tensor(gpu.CPU(), "c")
		if err != nil || len(f.Tensors()) != 3 {
			t.Fatal(err, f.Tensors())
		}
		if got := values(t, c); !slices.Equal(got, golden(t)["f32"][5:]) || f.Metadata()["format"] != "pt" {
			t.Errorf("%v %v", got, f.Metadata())
		}
	}
	folder := t.TempDir()
	file := func(name string, tensors ...string) {
		all := map[string]*tensor.Tensor{}
		for _, n := range tensors {
			all[n] = tensor.FromSlice([]float32{1})
		}
		if err := safetensors.Write(filepath.Join(folder, name), all, nil); err != nil {
			t.Fatal(err)
		}
	}
	file("1.safetensors", "a", "b")
	file("2.safetensors", "c", "b")
	index := filepath.Join(folder, "model.safetensors.index.json")
	for text, want := range map[string]string{
		`{"weight_map": {"a": "1.safetensors", "c": "3.safetensors"}}`: `1 of 2 files are missing: ["3.safetensors"]`,
		`{"weight_map": {"a": "1.safetensors", "c": "1.safetensors"}}`: `tensor "c" is not in 1.safetensors`,
		`{"weight_map": {"a": "1.safetensors", "c": "2.safetensors"}}`: `2.safetensors: invalid safetensors file: tensor "b" is in another file`,
		`{"weight_map": {"a": "../1.safetensors"}}`:                    `"weight_map": "a": "../1.safetensors" is no name of a file`,
		`{"weight_map": {"a": "..\\1.safetensors"}}`:                   `is no name of a file`,
		`{"weight_map": {"a": ".."}}`:                                  `is no name of a file`,
		`{"weight_map": {"a": "` + strings.Repeat("1", 256) + `"}}`:    `is no name of a file`,
		`{"weight_map": {"a": 1}}`:                                     `"a": byte 22: want a string`,
		`{"weight_map": {"a": "1.safetensors", "a": "2.safetensors"}}`: `"a" is there twice`,
		`{"metadata": {}}`: "no weight_map",
		"{\"weight_map\": {\"\xff\": \"1.safetensors\"}}": "not UTF-8",
		`{"weight_map": {"a": "1.safetensors"}} {}`:       "more than one value",
		`{"weight_map": {"a": "1.safe`:                    "unexpected EOF",
	} {
		if err := os.WriteFile(index, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := safetensors.Open(folder); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	os.Remove(index)
	if _, err := safetensors.Open(folder); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "model.safetensors") {
		t.Error(err)
	}
}

// file is a file of a header and so many bytes of data.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

// hostile files, each with a part of the error that is expected.
var hostile = map[string]struct {
	file []byte
	want string
}{
	"empty":             {nil, "0 bytes long"},
	"short":             {[]byte("1234567"), "7 bytes long"},
	"length":            {binary.LittleEndian.AppendUint64(nil, math.MaxUint64), "a header of 18446744073709551615 bytes in a file of 8"},
	"length past end":   {append(binary.LittleEndian.AppendUint64(nil, 3), "{}"...), "a header of 3 bytes in a file of 10"},
	"length over limit": {append(binary.LittleEndian.AppendUint64(nil, 100_000_001), "{}"...), "the limit is 100000000"},
	"no header":         {file("", 0), "does not begin with {"},
	"space first":       {file(" {}", 0), "does not begin with {"},
	"array":             {file("[]", 0), "does not begin with {"},
	"cut":               {file(`{"a": {"dtype`, 0), "unexpected EOF"},
	"two values":        {file(`{}{}`, 0), "more than one value"},
	"not UTF-8":         {file("{\"a\xff\": 1}", 0), "header: not UTF-8"},
	"no object":         {file(`{"a": 1}`, 0), `tensor "a": byte 7: want {`},
	"name twice": {file(`{"a": {"dtype":"U8","shape":[1],"data_offsets":[0,1]}, "a": {"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2),
		`"a" is there twice`},
	"field twice":       {file(`{"a": {"dtype":"U8","dtype":"F32","shape":[1],"data_offsets":[0,1]}}`, 1), `tensor "a": "dtype" is there twice`},
	"metadata":          {file(`{"__metadata__": {"a": 1}}`, 0), `"__metadata__": "a": byte 24: want a string`},
	"metadata twice":    {file(`{"__metadata__": {"a": "1", "a": "2"}}`, 0), `"__metadata__": "a" is there twice`},
	"no dtype":          {file(`{"a": {"shape":[1],"data_offsets":[0,1]}}`, 1), `tensor "a": no dtype`},
	"dtype in capitals": {file(`{"a": {"DTYPE":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), `tensor "a": no dtype`},
	"no shape":          {file(`{"a": {"dtype":"U8","data_offsets":[0,1]}}`, 1), `tensor "a": no shape`},
	"no offsets":        {file(`{"a": {"dtype":"U8","shape":[1]}}`, 1), `tensor "a": no data_offsets`},
	"dtype a number":    {file(`{"a": {"dtype":8,"shape":[1],"data_offsets":[0,1]}}`, 1), `tensor "a": "dtype": byte 16: want a string`},
	"shape a number":    {file(`{"a": {"dtype":"U8","shape":1,"data_offsets":[0,1]}}`, 1), `tensor "a": "shape": byte 29: want [`},
	"negative":          {file(`{"a": {"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1), `"shape": -1 is no whole number`},
	"fraction":          {file(`{"a": {"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, 1), `"shape": 1.0 is no whole number`},
	"beyond 2^64":       {file(`{"a": {"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1]}}`, 1), "is no whole number below 2^63"},
	"giant shape":       {file(`{"a": {"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,1]}}`, 1), `tensor "a": shape [4294967296 4294967296] has too many`},
	"wraps to 1":        {file(`{"a": {"dtype":"F64","shape":[2305843009213693952,8],"data_offsets":[0,0]}}`, 0), "too many elements"},
	"many dimensions":   {file(`{"a": {"dtype":"U8","shape":[`+strings.Repeat("1,", 64)+`1],"data_offsets":[0,1]}}`, 1), `"shape": more than 64 numbers`},
	"one offset":        {file(`{"a": {"dtype":"U8","shape":[1],"data_offsets":[1]}}`, 1), `"data_offsets": [1]: want where`},
	"three offsets":     {file(`{"a": {"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, 1), `"data_offsets": more than 2 numbers`},
	"backwards":         {file(`{"a": {"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 1), `"data_offsets": [1 0]`},
	"size":              {file(`{"a": {"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}}`, 20), `tensor "a": data_offsets [0 20] are 20 bytes, F32 of shape [2 3] takes 24`},
	"bits":              {file(`{"a": {"dtype":"F4","shape":[3],"data_offsets":[0,1]}}`, 1), "no whole number of bytes"},
	"past the end":      {file(`{"a": {"dtype":"U8","shape":[9],"data_offsets":[0,9]}}`, 8), `tensor "a": data_offsets [0 9] reach beyond the 8 bytes`},
	"far past the end":  {file(`{"a": {"dtype":"U8","shape":[9223372036854775],"data_offsets":[0,9223372036854775]}}`, 8), `reach beyond the 8 bytes`},
	"overlap": {file(`{"a": {"dtype":"U8","shape":[4],"data_offsets":[0,4]}, "b": {"dtype":"U8","shape":[4],"data_offsets":[3,7]}}`, 7),
		`tensor "b": data_offsets [3 7] overlap those of tensor "a"`},
	"gap": {file(`{"a": {"dtype":"U8","shape":[4],"data_offsets":[0,4]}, "b": {"dtype":"U8","shape":[4],"data_offsets":[5,9]}}`, 9),
		`tensor "b": data_offsets [5 9] leave a gap of 1 bytes behind "a"`},
	"gap first": {file(`{"a": {"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8), `leave a gap of 4 bytes behind the header`},
	"data left": {file(`{"a": {"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 5), `1 bytes of data behind "a"`},
}

func TestHostileFilesAreClearErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hostile.safetensors")
	for name, c := range hostile {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := safetensors.NewReader(bytes.NewReader(c.file), int64(len(c.file)))
		runtime.ReadMemStats(&after)
		if !errors.Is(err, safetensors.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if made := after.TotalAlloc - before.TotalAlloc; made > 1<<20 {
			t.Errorf("%s: %d bytes of memory", name, made)
		}
		if err := os.WriteFile(path, c.file, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := safetensors.Open(path); !errors.Is(err, safetensors.ErrInvalid) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: Open: %v", name, err)
		}
	}
	bad := file(`{"a": {"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}}`, 2)
	bad[len(bad)-1] = 2
	f, err := safetensors.NewReader(bytes.NewReader(bad), int64(len(bad)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Tensor(gpu.CPU(), "a"); err == nil || !strings.Contains(err.Error(), "element 1 is a bool of value 2") {
		t.Error(err)
	}
	if _, err := safetensors.Open(filepath.Dir(path) + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestEveryTruncationIsAnError(t *testing.T) {
	whole, err := os.ReadFile("testdata/stored.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		if _, err := safetensors.NewReader(bytes.NewReader(whole[:n]), int64(n)); !errors.Is(err, safetensors.ErrInvalid) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(whole), err)
		}
	}
}

// A tensor that lies in the file outlives File.Close, may be written, and leaves the file as it is.
func TestTensorsOutliveTheirFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	x := tensor.Arange(gpu.CPU().Stream(), 0, 1, 1<<18, tensor.F32)
	if err := safetensors.Write(path, map[string]*tensor.Tensor{"x": x}, nil); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	f := open(t, path)
	y, err := f.Tensor(gpu.CPU(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		runtime.GC()
	}
	tensor.AddInto(y, y, x)
	if got := y.Float32s(); got[1] != 2 || got[1<<18-1] != 2*(1<<18-1) {
		t.Errorf("%v, %v", got[1], got[1<<18-1])
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("the file changed")
	}
	if _, err := f.Tensor(gpu.CPU(), "x"); !errors.Is(err, safetensors.ErrClosed) {
		t.Error(err)
	}
	if err := f.Intact(); !errors.Is(err, safetensors.ErrClosed) {
		t.Error(err)
	}
}

// What is gone reads as zeros, or is an error; the program lives.
func TestFilesThatAreCutShortWhileTheyAreOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	x := tensor.Full(gpu.CPU().Stream(), 1, tensor.BOOL, 1<<20)
	if err := safetensors.Write(path, map[string]*tensor.Tensor{"x": x, "y": tensor.Ones(gpu.CPU().Stream(), tensor.F32, 4)}, nil); err != nil {
		t.Fatal(err)
	}
	f := open(t, path)
	if err := os.Truncate(path, 1<<16); err != nil {
		t.Fatal(err)
	}
	if y, err := f.Tensor(gpu.CPU(), "x"); err == nil {
		if n := tensor.Sum(tensor.Convert(y, tensor.F32)).Float32s()[0]; n > 1<<16 {
			t.Errorf("the sum is %v", n)
		}
	} else if !errors.Is(err, safetensors.ErrFileChanged) {
		t.Error(err)
	}
	if err := f.Intact(); !errors.Is(err, safetensors.ErrFileChanged) {
		t.Error(err)
	}
}

type failing struct{ left int }

func (w *failing) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func TestWritingIsWholeOrNotAtAll(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "x.safetensors")
	good := map[string]*tensor.Tensor{"x": tensor.FromSlice([]float32{1, 2})}
	if err := safetensors.Write(path, good, nil); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	freed := tensor.FromSlice([]float32{1})
	freed.Free()
	for what, tensors := range map[string]map[string]*tensor.Tensor{
		`tensor "w" of type Q8_0: type not supported`: {"w": tensor.Quantize(tensor.Zeros(32), tensor.Q8_0)},
		`tensor "gone"`:             {"gone": freed},
		`tensor "none" is nil`:      {"none": nil},
		`"__metadata__" is no name`: {"__metadata__": good["x"]},
		`"\xff" is no name`:         {"\xff": good["x"]},
	} {
		if err := safetensors.Write(path, tensors, nil); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
	if err := safetensors.Write(path, good, map[string]string{"a": "\xff"}); err == nil || !strings.Contains(err.Error(), `metadata "a"`) {
		t.Error(err)
	}
	if err := safetensors.Write(folder, good, nil); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
	if err := safetensors.WriteTo(&failing{70}, good, nil); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
	after, _ := os.ReadFile(path)
	entries, _ := os.ReadDir(folder)
	if !bytes.Equal(before, after) || len(entries) != 1 {
		t.Errorf("the file changed, or something is left: %v", entries)
	}
	var b bytes.Buffer
	if err := safetensors.WriteTo(&b, nil, nil); err != nil {
		t.Fatal(err)
	}
	if f, err := safetensors.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len())); err != nil || len(f.Tensors()) != 0 {
		t.Error(err)
	}
}

// FuzzReader wants an error or tensors that can be read and written again.
func FuzzReader(f *testing.F) {
	for _, c := range hostile {
		f.Add(c.file)
	}
	for _, name := range []string{"stored", "other"} {
		b, err := os.ReadFile("testdata/" + name + ".safetensors")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := safetensors.NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			if !errors.Is(err, safetensors.ErrInvalid) {
				t.Error(err)
			}
			return
		}
		all, err := file.ReadAll(gpu.CPU())
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := safetensors.WriteTo(&again, all, file.Metadata()); err != nil {
			t.Fatal(err)
		}
		second, err := safetensors.NewReader(bytes.NewReader(again.Bytes()), int64(again.Len()))
		if err != nil || len(second.Tensors()) != len(all) || !maps.Equal(second.Metadata(), file.Metadata()) && len(file.Metadata()) > 0 {
			t.Fatalf("%v: %v", err, second)
		}
	})
}

// FuzzIndex wants a short error, or the tensors of two files by an index.
func FuzzIndex(f *testing.F) {
	text := []byte(`{"metadata": {"total_size": 8}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}`)
	one, two := file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4), file(`{"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4)
	f.Add(text, one, two)
	f.Add(text, one, one)
	f.Add(text, one, two[:9])
	for _, c := range hostile {
		f.Add(text, c.file, two)
	}
	for _, name := range []string{"../1.safetensors", ".", "", strings.Repeat("a", 300), strings.Repeat("\x1b", 3000), strings.Repeat("n/", 30000), "\x00", "model.safetensors.index.json"} {
		index, err := json.Marshal(map[string]any{"weight_map": map[string]string{"a": name, name: "2.safetensors"}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(index, one, two)
	}
	folder := f.TempDir()
	f.Fuzz(func(t *testing.T, index, first, second []byte) {
		for name, text := range map[string][]byte{"model.safetensors.index.json": index, "1.safetensors": first, "2.safetensors": second} {
			if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		g, err := safetensors.Open(folder)
		if err == nil {
			defer g.Close()
			if len(g.Tensors()) == 0 {
				return
			}
			_, err = g.ReadAll(gpu.CPU())
		}
		if err != nil && len(err.Error()) > 1000+2*len(folder) {
			t.Fatalf("%.2000s", err)
		}
	})
}
