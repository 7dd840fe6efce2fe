package model

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/tensor"
)

// adapterFile is what a file or a folder says of an adapter.
type adapterFile struct {
	path         string
	architecture string // "" where it does not say
	alpha        float64
	rootScaled   bool // the scale is alpha / sqrt(ranks) (Kalajdzievski 2023, "rsLoRA")
	pairs        map[string]*pair
	codes        codesFile
	close        func() error
}

// codesFile is what makes the codes of a token: weight [ranks][hidden], which its embedding is multiplied with, and bias [ranks], which
// may be missing. Without a weight all codes are 1.
type codesFile struct{ weight, bias *matrixHalf }

// pair is the two matrices of a change: a [ranks][cols of the weight], b [rows of the weight][ranks].
type pair struct{ a, b *matrixHalf }

// matrixHalf is one of them. Its rows are its outer dimension.
type matrixHalf struct {
	name       string // as errors show it
	rows, cols int
	half       bool // all its values are F16
	values     func() ([]float32, error)
}

// shown is the beginning of a tensor's name: a file may have one of any length.
func shown(name string) string { return fmt.Sprintf("%.200s", name) }

// copyTo copies the values to the first elements of a slice.
func (m *matrixHalf) copyTo(to []float32) error {
	values, err := m.values()
	if err != nil {
		return fmt.Errorf("tensor %s: %w", m.name, err)
	}
	copy(to, values)
	return nil
}

// add has the file change a weight by a matrix: A where isA, else B.
func (f *adapterFile) add(weight string, m *matrixHalf, isA bool) error {
	if f.pairs[weight] == nil {
		f.pairs[weight] = &pair{}
	}
	half := &f.pairs[weight].b
	if isA {
		half = &f.pairs[weight].a
	}
	if *half != nil {
		return fmt.Errorf("%w: tensors %s and %s both change %.200s", ErrAdapter, (*half).name, m.name, weight)
	}
	*half = m
	return nil
}

// checkScale says what is wrong with alpha, for the ranks that matrices have.
func (f *adapterFile) checkScale() error {
	for _, p := range f.pairs {
		if scale := float64(f.scale(p.a.rows)); scale == 0 || math.IsNaN(scale) || math.IsInf(scale, 0) {
			return fmt.Errorf("alpha is %g, which makes a scale of %g of %d ranks", f.alpha, scale, p.a.rows)
		}
	}
	return nil
}

// ranks returns the most that a matrix's change has.
func (f *adapterFile) ranks() (most int) {
	for _, p := range f.pairs {
		most = max(most, p.a.rows)
	}
	return most
}

// scale returns the factor of B A for so many ranks.
func (f *adapterFile) scale(ranks int) float32 {
	switch {
	case f.alpha == 0: // as llama.cpp has it
		return 1
	case f.rootScaled:
		return float32(f.alpha / math.Sqrt(float64(ranks)))
	}
	return float32(f.alpha / float64(ranks))
}

func (p *pair) check() error {
	switch {
	case p.a == nil:
		return fmt.Errorf("tensor %s has no A beside it", p.b.name)
	case p.b == nil:
		return fmt.Errorf("tensor %s has no B beside it", p.a.name)
	case p.a.rows != p.b.cols:
		return fmt.Errorf("tensor %s has %d ranks and %s %d", p.a.name, p.a.rows, p.b.name, p.b.cols)
	case p.a.rows < 1 || p.a.rows > mostRanks:
		return fmt.Errorf("tensor %s has %d ranks, want 1 to %d", p.a.name, p.a.rows, mostRanks)
	}
	return nil
}

// closeAll closes what readAdapters has opened.
func closeAll(files []*adapterFile) {
	for _, f := range files {
		f.close()
	}
}

// readAdapters reads the heads of adapters. The caller closes those that it returns, also with an error.
func (c *Config) readAdapters(paths []string) (files []*adapterFile, err error) {
	if len(paths) == 0 {
		return nil, errors.New("model: no adapter to load")
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return files, fmt.Errorf("model: adapter: %w", err)
		}
		read := readGGUFAdapter
		if info.IsDir() {
			read = c.readPEFTAdapter
		}
		f, err := read(path)
		if err != nil {
			return files, fmt.Errorf("%s: %w", path, err)
		}
		f.path = path
		files = append(files, f)
	}
	return files, nil
}

// readGGUFAdapter reads the head of what llama.cpp's convert_lora_to_gguf.py writes.
func readGGUFAdapter(path string) (_ *adapterFile, err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	for _, want := range [][2]string{{"general.type", "adapter"}, {"adapter.type", "lora"}} {
		got, err := f.StringOr(want[0], "")
		if err != nil {
			return nil, err
		}
		if got != want[1] {
			return nil, fmt.Errorf("%w: key %q is %.200q, want %q", ErrAdapter, want[0], got, want[1])
		}
	}
	a := &adapterFile{pairs: map[string]*pair{}, close: f.Close}
	if a.architecture, err = f.String("general.architecture"); err != nil {
		return nil, err
	}
	if a.alpha, err = f.FloatOr("adapter.lora.alpha", 0); err != nil {
		return nil, err
	}
	for i := range f.Tensors() {
		t := &f.Tensors()[i]
		if strings.HasPrefix(t.Name, codesPrefix) {
			if err := a.codes.read(f, t); err != nil {
				return nil, err
			}
			continue
		}
		name, isA := strings.CutSuffix(t.Name, ".lora_a")
		isB := false
		if !isA {
			name, isB = strings.CutSuffix(t.Name, ".lora_b")
		}
		if !isA && !isB {
			return nil, fmt.Errorf("%w: tensor %.200s is neither .lora_a nor .lora_b of one", ErrAdapter, t.Name)
		}
		half, err := ggufMatrix(f, t)
		if err != nil {
			return nil, err
		}
		if err := a.add(name, half, isA); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// codesPrefix begins the names of tensors that make codes.
const codesPrefix = "adapter.codes."

func (c *codesFile) read(f *gguf.File, t *gguf.Tensor) (err error) {
	switch t.Name {
	case codesPrefix + "weight":
		c.weight, err = ggufMatrix(f, t)
	case codesPrefix + "bias":
		c.bias, err = ggufMatrix(f, t)
	default:
		err = fmt.Errorf("%w: tensor %.200s: want %sweight or %sbias", ErrAdapter, t.Name, codesPrefix, codesPrefix)
	}
	return err
}

// check says what does not fit an adapter of so many ranks and embeddings of hidden numbers.
func (c *codesFile) check(ranks, hidden int) error {
	switch {
	case c.weight == nil && c.bias == nil:
	case c.weight == nil:
		return fmt.Errorf("tensor %s has no %sweight beside it", c.bias.name, codesPrefix)
	case c.weight.rows != ranks || c.weight.cols != hidden:
		return fmt.Errorf("tensor %s makes %d codes from embeddings of %d, the adapter has %d ranks and the model embeddings of %d",
			c.weight.name, c.weight.rows, c.weight.cols, ranks, hidden)
	case c.bias != nil && (c.bias.rows != 1 || c.bias.cols != ranks):
		return fmt.Errorf("tensor %s has %d elements, the adapter %d ranks", c.bias.name, c.bias.rows*c.bias.cols, ranks)
	}
	return nil
}

// ggufMatrix describes a tensor of one or two dimensions.
func ggufMatrix(f *gguf.File, t *gguf.Tensor) (*matrixHalf, error) {
	d := kernel.DType(t.Type)
	vector := len(t.Dims) == 1 && strings.HasPrefix(t.Name, codesPrefix)
	if len(t.Dims) != 2 && !vector || !d.Known() || d == kernel.I32 {
		return nil, fmt.Errorf("%w: tensor %.200s of type %s has shape %v, want a matrix of numbers", ErrAdapter, t.Name, t.Type, t.Dims)
	}
	m := &matrixHalf{name: shown(t.Name), rows: 1, cols: t.Dims[0], half: d == kernel.F16}
	if !vector {
		m.rows = t.Dims[1]
	}
	m.values = func() ([]float32, error) {
		data := make([]byte, t.Bytes)
		if err := f.ReadTensor(t, data, 0); err != nil {
			return nil, err
		}
		return float32Values(d, data, m.rows, m.cols)
	}
	return m, nil
}

// float32Values decodes a matrix of any type.
func float32Values(d tensor.DType, data []byte, rows, cols int) (values []float32, err error) {
	stored, err := tensor.NewTensorOnDevice(gpu.CPU(), d, rows, cols)
	if err != nil {
		return nil, err
	}
	defer stored.Free()
	if err := stored.WriteBytes(data); err != nil {
		return nil, err
	}
	values = make([]float32, rows*cols)
	e := tensor.Try(func() {
		exact := stored
		if d != tensor.F32 {
			exact = tensor.Convert(stored, tensor.F32)
			defer exact.Free()
		}
		err = exact.ReadFloat32s(values)
	})
	return values, errors.Join(e, err)
}
