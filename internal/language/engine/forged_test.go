package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// forgery is a model file taken apart, to be put together otherwise.
type forgery struct {
	keys    []string
	values  []any
	tensors []gguf.Tensor
	data    [][]byte
}

func takenApart(f *gguf.File) *forgery {
	g := &forgery{}
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		g.keys, g.values = append(g.keys, key), append(g.values, v.Any())
	}
	for _, t := range f.Tensors() {
		data, err := f.Data(&t)
		if err != nil {
			panic(err)
		}
		g.tensors, g.data = append(g.tensors, t), append(g.data, bytes.Clone(data))
	}
	return g
}

// forge makes a change that eleven bytes say: what, of which key or tensor, and a value.
func (g *forgery) forge(edit []byte) {
	which, value := int(binary.LittleEndian.Uint16(edit[1:])), binary.LittleEndian.Uint64(edit[3:])
	if len(g.keys) == 0 || len(g.tensors) == 0 {
		return
	}
	k, x := which%len(g.keys), which%len(g.tensors)
	switch edit[0] % 10 {
	case 0:
		g.setNumber(k, value)
	case 1:
		g.setNumber(k, value%17)
	case 2:
		g.setNumber(k, 1<<(value%64)-value>>63)
	case 3:
		g.keys[k], g.values[k] = g.keys[len(g.keys)-1], g.values[len(g.keys)-1]
		g.keys, g.values = g.keys[:len(g.keys)-1], g.values[:len(g.values)-1]
	case 4:
		dims := append([]int(nil), g.tensors[x].Dims...)
		if len(dims) > 0 {
			dims[value>>60%uint64(len(dims))] = int(value % 130)
			g.resize(x, g.tensors[x].Type, dims)
		}
	case 5:
		g.resize(x, gguf.Type(value%40), g.tensors[x].Dims)
	case 6:
		last := len(g.tensors) - 1
		g.tensors[x], g.data[x] = g.tensors[last], g.data[last]
		g.tensors, g.data = g.tensors[:last], g.data[:last]
	case 7:
		y := int(value % uint64(len(g.tensors)))
		g.tensors[x].Name, g.tensors[y].Name = g.tensors[y].Name, g.tensors[x].Name
	case 8:
		if n := len(g.data[x]) / 8; n > 0 {
			binary.LittleEndian.PutUint64(g.data[x][8*(which/len(g.tensors)%n):], value)
		}
	case 9:
		dims := g.tensors[x].Dims
		if value%2 == 0 && len(dims) < 4 {
			g.resize(x, g.tensors[x].Type, append(append([]int(nil), dims...), int(value/2%3)))
		} else if len(dims) > 1 {
			g.resize(x, g.tensors[x].Type, dims[:len(dims)-1])
		}
	}
}

// setNumber sets a key that is a number, or a number of an array; a text is cut. The alignment stays: the file would become as large.
func (g *forgery) setNumber(k int, value uint64) {
	if g.keys[k] == "general.alignment" {
		return
	}
	old := reflect.ValueOf(g.values[k])
	to := reflect.New(old.Type()).Elem()
	to.Set(old)
	if to.Kind() == reflect.Slice {
		copied := reflect.MakeSlice(to.Type(), to.Len(), to.Len())
		reflect.Copy(copied, to)
		if g.values[k] = copied.Interface(); to.Len() == 0 {
			return
		}
		to = copied.Index(int(value >> 32 % uint64(to.Len())))
	}
	switch {
	case to.CanInt():
		to.SetInt(int64(value))
	case to.CanUint():
		to.SetUint(value)
	case to.CanFloat():
		to.SetFloat(float64(math.Float32frombits(uint32(value))))
	case to.Kind() == reflect.Bool:
		to.SetBool(value%2 == 1)
	case to.Kind() == reflect.String:
		to.SetString(to.String()[:value%uint64(to.Len()+1)])
	}
	if old.Kind() != reflect.Slice {
		g.values[k] = to.Interface()
	}
}

// resize gives a tensor another type or shape, where it stays small: data are cut, or zeros follow them.
func (g *forgery) resize(x int, typ gguf.Type, dims []int) {
	elements := 1
	for _, n := range dims {
		elements *= n
	}
	if !typ.Known() || elements > 1<<18 || len(dims) > 0 && dims[0]%typ.BlockSize() != 0 {
		return
	}
	data := make([]byte, elements/typ.BlockSize()*typ.TypeSize())
	copy(data, g.data[x])
	g.tensors[x].Type, g.tensors[x].Dims, g.data[x] = typ, dims, data
}

func (g *forgery) file() ([]byte, error) {
	w := &gguf.Writer{}
	for i, key := range g.keys {
		w.Set(key, g.values[i])
	}
	for i, t := range g.tensors {
		w.AddTensor(t.Name, t.Type, t.Dims, g.data[i])
	}
	var b bytes.Buffer
	_, err := w.WriteTo(&b)
	return b.Bytes(), err
}

// FuzzModels loads models of each architecture that is at hand, of which some keys, shapes, types and weights are others. It wants a
// short error, or a model that computes; a model that is closed leaves no memory behind.
func FuzzModels(f *testing.F) {
	files := [][]byte{}
	for _, architecture := range []string{"llama", "qwen2", "qwen3"} {
		s := testmodel.Tiny
		s.Architecture = architecture
		files = append(files, testmodel.Random(s))
	}
	paths, _ := filepath.Glob("testdata/*.gguf")
	for _, c := range randomModels { // more architectures where the golden data are
		paths = append(paths, filepath.Join(testdata.Folder(), "models", c.file+".gguf"))
	}
	for _, path := range paths {
		if b, err := os.ReadFile(path); err == nil {
			files = append(files, b)
		}
	}
	files = fewer(files)
	for i := range files {
		f.Add(byte(i), []byte(nil))
		for op := range byte(10) {
			f.Add(byte(i), append([]byte{op, 3 * byte(i), 0}, "\x07\x00\x00\x00\x01\x00\x00\x10"...))
			f.Add(byte(i), append([]byte{op, 5 + op, 1}, "\xff\xff\xff\xff\xff\xff\xff\xff"...))
		}
	}
	d := gpu.CPU()
	f.Fuzz(func(t *testing.T, which byte, edits []byte) {
		original, err := gguf.FromBytes(files[int(which)%len(files)])
		if err != nil {
			t.Fatal(err)
		}
		g := takenApart(original)
		for ; len(edits) >= 11; edits = edits[11:] {
			g.forge(edits)
		}
		b, err := g.file()
		if err != nil { // such as a name twice
			return
		}
		before := d.Pool().Stats().InUse
		err = compute(d, b)
		if after := d.Pool().Stats().InUse; after != before {
			t.Fatalf("%d bytes in use before, %d after: %v", before, after, err)
		}
		if err == nil {
			return
		}
		var wrong *tensor.ShapeError
		if len(err.Error()) > 1000 || errors.As(err, &wrong) || strings.Contains(err.Error(), "runtime error") {
			t.Fatalf("%.2000s", err)
		}
	})
}

// compute has a model that is a file make the logits of three ids, and one more.
func compute(d *gpu.Device, file []byte) error {
	f, err := gguf.FromBytes(file)
	if err != nil {
		return err
	}
	m, err := model.Load(context.Background(), f, d, model.Options{Context: 8}) // as callers do, of at most DefaultContext
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := New(m, Options{Context: 8, KVType: tensor.F32, Chunk: 2})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Prefill(context.Background(), []int32{0, 1, 0}); err != nil {
		return err
	}
	id, err := s.Next(nil)
	if err != nil {
		return err
	}
	return s.Step(id, nil)
}
