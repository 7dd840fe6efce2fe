package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/tensor"
)

// weights holds the tensors of a model; what the file or the architecture lacks is nil.
type weights struct {
	all    []*weight // in the order of computation
	layers []layer
	scales []string // names of the tensors that weight.scale was read from

	embedding, positions       *weight
	outputNorm, outputNormBias *weight
	output                     *weight // the embedding where it is tied
}

// layer holds one layer's tensors.
type layer struct {
	attnNorm, attnNormBias *weight
	q, k, v, output        *weight
	qBias, kBias, vBias    *weight
	outputBias             *weight
	qNorm, kNorm           *weight
	postAttnNorm           *weight // of the attention's output

	ffnNorm, ffnNormBias *weight
	gate, up, down       *weight
	gateBias             *weight
	upBias, downBias     *weight
	postFFNNorm          *weight // of the feed-forward's output

	attnSubNorm, ffnSubNorm *weight // before the last product of either half (BitNet)

	sinks *weight // of attention, one score a head

	queryDown      *weight // of latent attention: compresses queries
	keyUp, valueUp *weight // of latent attention, one matrix a head: queries into the compressed space, and values out of it

	qkv, outputGate, conv        *weight // of a delta net
	alpha, beta, rate, timeShift *weight

	router, routerBias, choiceBias               *weight
	expertGate, expertUp, expertDown             *weight // matrices of all experts
	expertGateBias, expertUpBias, expertDownBias *weight
	sharedRouter                                 *weight // of the expert that every token has
	sharedGate, sharedUp, sharedDown             *weight
}

// weight is a tensor of a model, on its device once it is loaded.
type weight struct {
	spec
	whole              spec // of which this is a rank's part, from these on; the same where there is one device
	firstRow, firstCol int
	tensor             *tensor.Tensor
	scale              float32 // of products, from a tensor beside it as files in NVFP4 have them; 0 for none
	scales             *weight // of products with each expert; nil for none
	// In the place of tensor, of matrices that are kept as two-bit codes: twoBits says so before they are loaded.
	ternary *tensor.Ternary
	twoBits bool
	// elsewhere says that another stage's device has it.
	elsewhere bool
}

// get returns the tensor, nil for a weight that the model lacks.
func (w *weight) get() *tensor.Tensor {
	if w == nil {
		return nil
	}
	return w.tensor
}

// spec is one tensor that a model has: a matrix [rows][cols], or a vector of cols elements (rows 0).
type spec struct {
	name       string
	rows, cols int
	need       need
	field      **weight
	// Of a part of a tensor: its first row (or element), and how many the file's tensor has; 0 for all.
	first, of int
	// How many matrices or vectors of this shape lie one after another, of experts, heads or channels; 0 for one.
	experts int
	chosen  bool // and a token has some of them only
	flat    bool // and the file has them as one matrix, the rows of one behind those of the other
	turned  bool // the file has the transposed matrices: first and of count the columns of these
	rounded bool // what it multiplies is rounded to int8 (BitNet)
}

type need int

const (
	absent need = iota
	optional
	required
)

func matrix(name string, rows, cols int, n need, field **weight) spec {
	return spec{name: name, rows: rows, cols: cols, need: n, field: field}
}

func vector(name string, n int, need need, field **weight) spec {
	return spec{name: name, cols: n, need: need, field: field}
}

// part says that the file's tensor has so many rows (or elements), of each expert, of which these are those from first on;
// of 0 that it has these alone.
func (s spec) part(first, of int) spec {
	s.first, s.of = first, of
	return s
}

// each says that the tensor holds one for each expert, head or channel, of which a token has all.
func (s spec) each(experts int) spec {
	s.experts = experts
	return s
}

// choice says that the tensor holds one for each expert, of which a token has some.
func (s spec) choice(experts int) spec {
	s.chosen = true
	return s.each(experts)
}

// inOne says that the tensor holds one for each head, as one matrix.
func (s spec) inOne(heads int) spec {
	s.flat = true
	return s.each(heads)
}

// transposed says that the file has the transposed matrices.
func (s spec) transposed() spec {
	s.turned = true
	return s
}

// shape returns the shape of the tensor: (experts, rows, cols) of those that there are. Vectors lie flat.
func (s spec) shape() []int {
	switch {
	case s.rows == 0:
		return []int{s.cols * max(s.experts, 1)}
	case s.experts > 0:
		return []int{s.experts, s.rows, s.cols}
	}
	return []int{s.rows, s.cols}
}

// dims returns the shape of the file's tensor as GGUF writes it.
func (s spec) dims() []int {
	dims := []int{s.rowInFile(), s.inFile()}
	if s.rows == 0 {
		dims = dims[1:]
	}
	switch {
	case s.flat:
		dims[1] *= s.experts
	case s.experts > 0:
		dims = append(dims, s.experts)
	}
	return dims
}

// rowInFile returns how many elements a row of the file's tensor has.
func (s spec) rowInFile() int {
	if s.turned {
		return s.rows
	}
	return s.cols
}

// inFile returns how many rows (or elements) the file's tensor has, of each expert.
func (s spec) inFile() int {
	switch {
	case s.of > 0:
		return s.of
	case s.rows == 0:
		return s.cols
	}
	return s.rows
}

// bind makes the weights of a model, without their data: those that it must have, and those of the others that the file
// has.
func (c *Config) bind(f *gguf.File) (*weights, error) {
	w := &weights{layers: make([]layer, c.Layers)}
	var failed error
	has := map[string]string{} // by the name within a layer, an optional tensor that is there
	type absence struct{ within, name string }
	var absences []absence // of optional tensors
	bind := func(prefix string, specs []spec) {
		for _, s := range specs {
			within := s.name
			s.name = prefix + s.name
			if s.need == optional {
				if f.HasTensor(s.name) {
					has[within] = s.name
				} else {
					absences = append(absences, absence{within, s.name})
				}
			}
			if s.need == required || has[within] == s.name {
				*s.field = &weight{spec: s, whole: s}
				if t, err := f.Tensor(s.name); err == nil {
					(*s.field).twoBits = s.rounded && twoBitTypes(t.Type)
				}
				w.all = append(w.all, *s.field)
				if err := w.bindScale(f, *s.field); err != nil && failed == nil {
					failed = err
				}
			}
		}
	}
	bind("", c.arch.outer(c, w))
	for i := range w.layers {
		bind(fmt.Sprintf("blk.%d.", i), c.arch.layer(c, i, &w.layers[i]))
	}
	for _, a := range absences {
		if other := has[a.within]; other != "" && failed == nil {
			failed = fmt.Errorf("tensor %s is missing, while the file has %s", a.name, other)
		}
	}
	if w.output == nil {
		w.output = w.embedding
	}
	return w, failed
}

// bindScale finds what products with a matrix are multiplied by: one number, or one for each expert.
func (w *weights) bindScale(f *gguf.File, m *weight) error {
	stem, ok := strings.CutSuffix(m.name, ".weight")
	if !ok || m.rows == 0 || stem == "token_embd" {
		return nil
	}
	t, err := f.Tensor(stem + ".scale")
	if errors.Is(err, gguf.ErrNoTensor) {
		return nil
	}
	if err != nil {
		return err
	}
	n := max(m.experts, 1)
	if t.Type != gguf.F32 || len(t.Dims) != 1 || t.Dims[0] != 1 && t.Dims[0] != n {
		return fmt.Errorf("tensor %s is %s %v, want F32 [%d]", t.Name, t.Type, t.Dims, n)
	}
	if t.Dims[0] > 1 {
		if f.HasTensor(stem + ".bias") {
			return fmt.Errorf("tensors %s and %s.bias: numbers for each expert beside a bias are not supported", t.Name, stem)
		}
		s := vector(t.Name, n, required, nil)
		m.scales = &weight{spec: s, whole: s}
		w.all = append(w.all, m.scales)
		return nil
	}
	data, err := f.Data(t)
	if err != nil {
		return err
	}
	m.scale = float32s(data)[0]
	if m.scale == 0 || m.scale-m.scale != 0 {
		return fmt.Errorf("tensor %s is %v, want a number other than 0", t.Name, m.scale)
	}
	w.scales = append(w.scales, t.Name)
	return nil
}

// Supported says why the model of a file cannot be computed, nil where it can.
func Supported(f *gguf.File) error {
	c, err := ReadConfig(f)
	if err == nil {
		_, err = c.find(f)
	}
	return err
}

// find returns the file's tensor of each weight of the model, after checking names, shapes and types. A tensor that the
// architecture does not know is an error too: a model computed without it would be another model.
func (c *Config) find(f *gguf.File) (map[string]*gguf.Tensor, error) {
	found := map[string]*gguf.Tensor{}
	for _, w := range c.weights.all {
		t, err := f.Tensor(w.name)
		if errors.Is(err, gguf.ErrNoTensor) && w.need != required {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := w.whole.check(t); err != nil {
			return nil, err
		}
		found[w.name] = t
	}
	for _, t := range f.Tensors() {
		if found[t.Name] == nil && !c.ignored(t.Name) {
			return nil, fmt.Errorf("tensor %s is not part of architecture %s with %d layers", t.Name, c.Architecture, c.Layers)
		}
	}
	return found, nil
}

// ignored tells tensors of draft layers, those that readRoPE reads, and those that old converters wrote though they
// follow from the metadata.
func (c *Config) ignored(name string) bool {
	layer := 0
	if n, _ := fmt.Sscanf(name, "blk.%d.", &layer); n == 1 && layer >= c.Layers && layer < c.Layers+c.drafts {
		return true
	}
	if stem, ok := strings.CutSuffix(name, ".input_scale"); ok && slices.ContainsFunc(c.weights.all, func(w *weight) bool {
		return w.name == stem+".weight"
	}) {
		return true // of activations in 4 bits, which are not rounded here
	}
	return slices.Contains(c.RoPE.tensors, name) || slices.Contains(c.weights.scales, name) || strings.HasSuffix(name, "attn_rot_embd.weight") ||
		strings.HasSuffix(name, "rotary_emb.inv_freq") || strings.HasSuffix(name, "rope_freqs.weight")
}

func (s spec) check(t *gguf.Tensor) error {
	want := s.dims()
	if got := t.Dims; !slices.Equal(want, got) && !(s.rows == 1 && s.experts == 0 && slices.Equal(want[:1], got)) {
		return fmt.Errorf("tensor %s has shape %v (contiguous dimension first), want %v", s.name, t.Dims, want)
	}
	d := kernel.DType(t.Type)
	if s.rows == 0 {
		if d != kernel.F32 && d != kernel.F16 && d != kernel.BF16 {
			return fmt.Errorf("tensor %s is of type %s: not supported (a vector must be F32, F16 or BF16)", s.name, t.Type)
		}
		return nil
	}
	if t.Type == gguf.I2_S && s.rounded && s.cols%4 == 0 && s.rows*s.cols%128 == 0 {
		return nil
	}
	if !d.Known() || d == kernel.I32 || d == kernel.I8 {
		return fmt.Errorf("tensor %s is of type %s: not supported", s.name, t.Type)
	}
	if row := s.rowInFile(); row%d.BlockSize() != 0 {
		return fmt.Errorf("tensor %s: rows of %d elements are no whole blocks of %s", s.name, row, t.Type)
	}
	return nil
}

// float32s decodes little-endian F32.
func float32s(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(uint32(b[4*i]) | uint32(b[4*i+1])<<8 | uint32(b[4*i+2])<<16 | uint32(b[4*i+3])<<24)
	}
	return v
}
