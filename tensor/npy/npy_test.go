package npy_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
	"github.com/vibrant-ml/vibrant/tensor/npy"
)

// values returns the elements as float64.
func values(x *tensor.Tensor) (all []float64) {
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

func ramp(n int, start float64) (all []float64) {
	for i := range n {
		all = append(all, start+float64(i))
	}
	return all
}

func path(name string) string { return filepath.Join("testdata", name+".npy") }

func bytesOf(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var whole = []float64{math.MinInt32, -1, 5, 0, 7, math.MaxInt32}

// arrays are what testdata/golden.py writes.
var arrays = map[string]struct {
	dtype  tensor.DType
	shape  []int
	values []float64
}{
	"f4": {tensor.F32, []int{2, 3, 4}, ramp(24, -7.5)}, "f4_v2": {tensor.F32, []int{2, 3, 4}, ramp(24, -7.5)},
	"f4_v3": {tensor.F32, []int{2, 3, 4}, ramp(24, -7.5)}, "f4_fortran": {tensor.F32, []int{2, 3, 4}, ramp(24, -7.5)},
	"f4_big": {tensor.F32, []int{2, 3, 4}, ramp(24, -7.5)}, "f4_big_fortran": {tensor.F32, []int{2, 3, 4}, ramp(24, -7.5)},
	"f2": {tensor.F16, []int{2, 3, 4}, ramp(24, -7.5)}, "i4": {tensor.I32, []int{2, 3}, whole}, "i4_fortran": {tensor.I32, []int{2, 3}, whole},
	"i1": {tensor.I8, []int{8}, ramp(8, -4)}, "u1": {tensor.U8, []int{4}, []float64{0, 1, 254, 255}},
	"b1": {tensor.BOOL, []int{3}, []float64{1, 0, 1}}, "scalar": {tensor.F32, []int{}, []float64{2.5}}, "empty": {tensor.F32, []int{0, 4}, nil},
}

func TestNumpysFilesAreRead(t *testing.T) {
	for name, want := range arrays {
		b := bytesOf(t, path(name))
		r := bytes.NewReader(append(slices.Clone(b), "next"...))
		read, err := npy.Read(r)
		if err != nil {
			t.Error(name, err)
			continue
		}
		if r.Len() != 4 {
			t.Errorf("%s: %d bytes behind the array are left, want 4", name, r.Len())
		}
		mapped, err := npy.Load(path(name))
		if err != nil {
			t.Error(name, err)
			continue
		}
		for _, x := range []*tensor.Tensor{read, mapped} {
			if x.DType() != want.dtype || !slices.Equal(x.Shape(), want.shape) || !slices.Equal(values(x), want.values) {
				t.Errorf("%s: %+v, want %v", name, x, want)
			}
			if fortran := strings.HasSuffix(name, "fortran"); fortran && x.Strides()[0] != 1 || x.Contiguous() == fortran {
				t.Errorf("%s: strides %v", name, x.Strides())
			}
		}
	}
}

func TestWrittenFilesAreNumpys(t *testing.T) {
	d, err := gpu.OpenBackend(fake.New(fake.Config{}), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, name := range []string{"f4", "f2", "i4", "i1", "u1", "b1", "scalar", "empty"} {
		want := bytesOf(t, path(name))
		x, err := npy.Load(path(name))
		if err != nil {
			t.Fatal(err)
		}
		away, err := x.ToDevice(tensor.On(d))
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []*tensor.Tensor{x, away} {
			var b bytes.Buffer
			if err := npy.Write(&b, x); err != nil || !bytes.Equal(b.Bytes(), want) {
				t.Errorf("%s: %v\n%q\n%q", name, err, b.Bytes(), want)
			}
		}
	}
	fortran, err := npy.Load(path("f4_fortran")) // numpy.save of it would keep the order
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "x.npy")
	if err := npy.Save(file, fortran); err != nil || !bytes.Equal(bytesOf(t, file), bytesOf(t, path("f4"))) {
		t.Error(err)
	}
	if err := npy.Save(file, tensor.Zeros(1)); err != nil {
		t.Fatal(err)
	}
	before := bytesOf(t, file)
	for dtype, x := range map[string]*tensor.Tensor{"BF16": tensor.Convert(tensor.Zeros(1), tensor.BF16), "Q8_0": tensor.Quantize(tensor.Zeros(32), tensor.Q8_0)} {
		if err := npy.Save(file, x); !errors.Is(err, npy.ErrType) || !strings.Contains(err.Error(), dtype) {
			t.Error(err)
		}
	}
	freed := tensor.Zeros(1)
	freed.Free()
	if err := npy.Save(file, freed); err == nil {
		t.Error("a freed tensor was written")
	}
	if entries, _ := os.ReadDir(filepath.Dir(file)); len(entries) != 1 || !bytes.Equal(before, bytesOf(t, file)) {
		t.Errorf("the file changed, or something is left: %v", entries)
	}
}

func TestTypesThatTensorsLackConvertOnRequest(t *testing.T) {
	pi := []float64{float64(float32(0.1)), math.Inf(-1), float64(float32(math.Pi))}
	for _, c := range []struct {
		name string
		to   tensor.DType
		want []float64
	}{
		{"f8", tensor.F32, pi}, {"f8_big", tensor.F32, pi}, {"i8", tensor.I32, []float64{math.MinInt32, 7, math.MaxInt32}},
		{"i8_large", tensor.F32, []float64{1, 1 << 31}}, {"i2", tensor.I32, []float64{-1 << 15, 1<<15 - 1}}, {"u4", tensor.F32, []float64{5, 1 << 32}},
	} {
		if _, err := npy.Load(path(c.name)); !errors.Is(err, npy.ErrType) || !strings.Contains(err.Error(), "LoadAs") {
			t.Errorf("%s: %v", c.name, err)
		}
		x, err := npy.LoadAs(path(c.name), c.to)
		if err != nil || x.DType() != c.to || !slices.Equal(values(x), c.want) {
			t.Errorf("%s: %v %v, want %v", c.name, x, err, c.want)
		}
		if x, err = npy.ReadAs(bytes.NewReader(bytesOf(t, path(c.name))), c.to); err != nil || !slices.Equal(values(x), c.want) {
			t.Errorf("%s: %v %v, want %v", c.name, x, err, c.want)
		}
	}
	if _, err := npy.LoadAs(path("i8_large"), tensor.I32); err == nil || !strings.Contains(err.Error(), "element 1, 2147483648, does not fit I32") {
		t.Error(err)
	}
	if x, err := npy.LoadAs(path("f4_fortran"), tensor.F16); err != nil || !slices.Equal(values(x), ramp(24, -7.5)) {
		t.Error(x, err)
	}
	object := npyFile(1, "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "\x80\x04cposix\nsystem\n") // a pickle, which nobody runs
	if _, err := npy.ReadAs(bytes.NewReader(object), tensor.F32); !errors.Is(err, npy.ErrType) || !strings.Contains(err.Error(), `"|O"`) {
		t.Error(err)
	}
	for name, kind := range map[string]string{"c8": `"<c8"`, "text": `"<U2"`, "record": `[('a', '<f4')`} {
		if _, err := npy.LoadAs(path(name), tensor.F32); !errors.Is(err, npy.ErrType) || errors.Is(err, npy.ErrInvalid) || !strings.Contains(err.Error(), kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestArchives(t *testing.T) {
	check := func(path string) {
		t.Helper()
		a, err := npy.OpenArchive(path)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		all, err := a.ReadAll()
		if err != nil || len(all) != 3 || len(a.Names()) != 3 {
			t.Fatal(path, err, a.Names())
		}
		for name, golden := range map[string]string{"x": "f4", "y": "i4", "b": "b1"} {
			want := arrays[golden]
			if x := all[name]; x.DType() != want.dtype || !slices.Equal(x.Shape(), want.shape) || !slices.Equal(values(x), want.values) {
				t.Errorf("%s: %s: %+v", path, name, x)
			}
		}
		if h, err := a.Header("x"); err != nil || h.Type != "<f4" || !slices.Equal(h.Shape, []int{2, 3, 4}) || h.Fortran {
			t.Error(h, err)
		}
		if x, err := a.TensorAs("y", tensor.F32); err != nil || x.DType() != tensor.F32 {
			t.Error(x, err)
		}
		if _, err := a.Tensor("z"); !errors.Is(err, npy.ErrNoArray) || !strings.Contains(err.Error(), `"z"`) {
			t.Error(err)
		}
	}
	a, err := npy.OpenArchive("testdata/stored.npz")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	all, err := a.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	check("testdata/stored.npz")
	check("testdata/compressed.npz")
	for _, compressed := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "x.npz")
		if err := npy.SaveArchive(file, all, compressed); err != nil {
			t.Fatal(err)
		}
		check(file)
		if err := npy.SaveArchive(file, map[string]*tensor.Tensor{"": tensor.Zeros(1)}, compressed); err == nil {
			t.Error("an array without a name was written")
		}
		check(file)
	}
}

// zipped is an archive of entries.
func zipped(t testing.TB, method uint16, entries ...[2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		w, err := z.CreateHeader(&zip.FileHeader{Name: e[0], Method: method})
		if err == nil {
			_, err = io.WriteString(w, e[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestHostileArchives(t *testing.T) {
	good := string(bytesOf(t, path("i1")))
	bomb := string(npyFile(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (25165824,), }", "")) + strings.Repeat("\x00", 24<<20)
	packed := zipped(t, zip.Deflate, [2]string{"x.npy", bomb})
	a, err := npy.NewArchive(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	a.MaxBytes = 1 << 20
	if _, err := a.Tensor("x"); err == nil || !strings.Contains(err.Error(), `array "x": 25165824 bytes are compressed; Archive.MaxBytes allows 1048576`) {
		t.Error(err)
	}
	if _, err := a.ReadAll(); err == nil {
		t.Error("ReadAll of a bomb")
	}
	a.MaxBytes = 24 << 20
	if x, err := a.Tensor("x"); err != nil || x.Len() != 24<<20 {
		t.Error(err)
	}
	// Ten entries of the directory lead to the data of one.
	one := zipped(t, zip.Store, [2]string{"0.npy", string(npyFile(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4096,)}", strings.Repeat("1", 4096)))})
	at := bytes.Index(one, []byte("PK\x01\x02"))
	entry, end := one[at:len(one)-22], bytes.Clone(one[len(one)-22:])
	shared := bytes.Clone(one[:at])
	for i := range 10 {
		shared = append(shared, bytes.Replace(entry, []byte("0.npy"), fmt.Appendf(nil, "%d.npy", i), 1)...)
	}
	end[8], end[10], end[12], end[13] = 10, 10, byte(10*len(entry)), byte(10*len(entry)>>8)
	if a, err = npy.NewArchive(bytes.NewReader(append(shared, end...)), int64(len(shared)+len(end))); err != nil || len(a.Names()) != 10 {
		t.Fatal(a, err)
	}
	if _, err := a.ReadAll(); !errors.Is(err, npy.ErrInvalid) || !strings.Contains(err.Error(), "all arrays more than the file has") {
		t.Error(err)
	}
	damaged := bytes.Replace(zipped(t, zip.Store, [2]string{"x.npy", good}), []byte("\xfc\xfd\xfe\xff"), []byte("\xfc\xfd\xfe\xfe"), 1)
	for what, c := range map[string]struct {
		file []byte
		want string
	}{
		"no zip":    {[]byte("not a zip"), "not a valid zip file"},
		"twice":     {zipped(t, zip.Store, [2]string{"x.npy", good}, [2]string{"x.npy", good}), `array "x" is there twice`},
		"more data": {zipped(t, zip.Deflate, [2]string{"x.npy", good + "1"}), "more than the 8 bytes of shape [8]"},
		"less data": {zipped(t, zip.Deflate, [2]string{"x.npy", good[:len(good)-1]}), "takes 8 bytes"},
		"announced": {zipped(t, zip.Deflate, [2]string{"x.npy", bomb[:200]}), "takes 25165824 bytes: unexpected EOF"},
		"no npy":    {zipped(t, zip.Store, [2]string{"x.npy", "{}"}), "ends within the header"},
		"damaged":   {damaged, "checksum"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a, err := npy.NewArchive(bytes.NewReader(c.file), int64(len(c.file)))
		if err == nil {
			_, err = a.Tensor("x")
		}
		runtime.ReadMemStats(&after)
		if !errors.Is(err, npy.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
		if made := after.TotalAlloc - before.TotalAlloc; made > 20<<20 { // 16 MiB are taken on trust
			t.Errorf("%s: %d bytes of memory", what, made)
		}
	}
}

// npyFile is a file of a header and data.
func npyFile(version byte, header, data string) []byte {
	b := append([]byte("\x93NUMPY"), version, 0)
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	}
	return append(append(b, header...), data...)
}

// hostile files, each with a part of the error that is expected.
var hostile = map[string]struct {
	file []byte
	want string
}{
	"empty":           {nil, "ends within the header"},
	"other":           {[]byte("PK\x03\x04....."), `starts with "PK\x03\x04.."`},
	"version 0":       {npyFile(0, "", ""), "version 0.0"},
	"version 4":       {npyFile(4, "", ""), "version 4.0"},
	"long header":     {append([]byte("\x93NUMPY\x02\x00"), 255, 255, 255, 255), "a header of 4294967295 bytes; the limit is 65536"},
	"header cut":      {npyFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "")[:40], "ends within the header"},
	"no dictionary":   {npyFile(1, "[]", ""), `want "{", not "[]"`},
	"not UTF-8":       {npyFile(3, "{'\xff': 1}", ""), "not UTF-8"},
	"no descr":        {npyFile(1, "{'fortran_order': False, 'shape': (), }", "1234"), `no "descr"`},
	"no shape":        {npyFile(1, "{'descr': '<f4', 'fortran_order': False}", "1234"), `no "shape"`},
	"no order":        {npyFile(1, "{'descr': '<f4', 'shape': ()}", "1234"), `no "fortran_order"`},
	"key twice":       {npyFile(1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", "1234"), `"descr": "descr" is there twice`},
	"unknown key":     {npyFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1}", "1234"), `unknown key "x"`},
	"order":           {npyFile(1, "{'descr': '<f4', 'fortran_order': 1, 'shape': ()}", "1234"), `"fortran_order": want "False"`},
	"negative":        {npyFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", ""), `"shape": want a number, not "-1,)}"`},
	"no tuple":        {npyFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", "1234"), `"shape": want ",", not ")}"`},
	"code":            {npyFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2**9,)}", ""), `"shape": want ",", not "**9,)}"`},
	"large dimension": {npyFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", ""), "99999999999999999999 is too large"},
	"product":         {npyFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", ""), "has too many elements"},
	"product of 0":    {npyFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296)}", ""), "has too many elements"},
	"dimensions":      {npyFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': ("+strings.Repeat("1, ", 65)+")}", "1234"), "more than 64 dimensions"},
	"giant":           {npyFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (100000000000,)}", "1234"), "shape [100000000000] of <f4 takes 400000000000 bytes"},
	"data cut":        {npyFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "1234567"), "shape [2] of <f4 takes 8 bytes"},
	"no data":         {npyFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", ""), "takes 8 bytes"},
	"open string":     {npyFile(1, "{'descr", ""), "a string that does not end"},
	"escape":          {npyFile(1, `{'\x64escr': '<f4'}`, ""), "or with an escape"},
	"more":            {npyFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': ()} 1", "1234"), `"1" behind the dictionary`},
	"no end":          {npyFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (", "1234"), `want a number, not ""`},
}

func TestHostileFilesAreClearErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hostile.npy")
	for name, c := range hostile {
		if err := os.WriteFile(file, c.file, 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := npy.Read(bytes.NewReader(c.file))
		_, err2 := npy.Load(file)
		runtime.ReadMemStats(&after)
		for _, err := range []error{err, err2} {
			if !errors.Is(err, npy.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
		}
		if made := after.TotalAlloc - before.TotalAlloc; made > 20<<20 { // 16 MiB are taken on trust
			t.Errorf("%s: %d bytes of memory", name, made)
		}
	}
	if _, err := npy.Load(filepath.Dir(file)); err == nil || !strings.Contains(err.Error(), "a directory") {
		t.Error(err)
	}
	if _, err := npy.Read(bytes.NewReader(npyFile(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", "\x01\x02"))); err == nil ||
		!strings.Contains(err.Error(), "element 1 is a bool of value 2") {
		t.Error(err)
	}
}

func TestMappedArraysMayBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.npy")
	x := tensor.Arange(gpu.CPU().Stream(), 0, 1, 6<<20, tensor.F32)
	if err := npy.Save(file, x); err != nil {
		t.Fatal(err)
	}
	before := bytesOf(t, file)
	y, err := npy.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	tensor.AddInto(y, y, x)
	if got := y.Float32s(); got[1] != 2 || got[6<<20-1] != 2*(6<<20-1) || !bytes.Equal(bytesOf(t, file), before) {
		t.Error(got[1], got[6<<20-1])
	}
	if z, err := npy.Read(bytes.NewReader(before)); err != nil || !slices.Equal(z.Float32s(), x.Float32s()) {
		t.Error(err)
	}
}

// FuzzRead wants an error or a tensor that is written as it was read.
func FuzzRead(f *testing.F) {
	for _, c := range hostile {
		f.Add(c.file)
	}
	for name := range arrays {
		f.Add(bytesOf(f, path(name)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := npy.Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := npy.Write(&again, x); err != nil {
			t.Fatal(err)
		}
		y, err := npy.Read(&again)
		if err != nil || fmt.Sprint(y) != fmt.Sprint(x) || !slices.Equal(x.Shape(), y.Shape()) {
			t.Fatalf("%v: %v, %v", err, x, y)
		}
	})
}

// FuzzArchive wants an error, or arrays that take no more memory than MaxBytes and the file together.
func FuzzArchive(f *testing.F) {
	good := string(bytesOf(f, path("i1")))
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		f.Add(zipped(f, method, [2]string{"x.npy", good}, [2]string{"../y.npy", string(bytesOf(f, path("f4_fortran")))}))
	}
	f.Add(zipped(f, zip.Deflate, [2]string{"x.npy", string(npyFile(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4194304,)}", strings.Repeat("\x00", 4<<20)))}))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := npy.NewArchive(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			if !errors.Is(err, npy.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		a.MaxBytes = 1 << 20
		all, err := a.ReadAll()
		total := 0
		for name, x := range all {
			total += int(x.Bytes())
			if h, err := a.Header(name); err != nil || !slices.Equal(h.Shape, x.Shape()) {
				t.Fatal(name, h, err)
			}
		}
		if err == nil && (len(all) != len(a.Names()) || total > 1<<20+len(b)) {
			t.Fatalf("%d bytes of %d arrays in %d", total, len(a.Names()), len(b))
		}
	})
}
