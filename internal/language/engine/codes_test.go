package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// codesOf adds random adapter.codes.* to an adapter of so many ranks, and returns what computes its codes on the host from the
// embeddings of a model that merged has made.
func codesOf(seed uint64, ranks int, s testmodel.Shape, bias bool) (edit func(*gguf.Writer), f CodeSource) {
	r := rand.New(rand.NewPCG(seed, 9))
	weight, shift := make([]float32, ranks*s.Hidden), make([]float32, ranks)
	for i := range weight {
		weight[i] = float32(r.NormFloat64())
	}
	for i := range shift {
		if bias {
			shift[i] = float32(r.NormFloat64())
		}
	}
	raw := func(v []float32) []byte {
		var b bytes.Buffer
		binary.Write(&b, binary.LittleEndian, v)
		return b.Bytes()
	}
	edit = func(w *gguf.Writer) {
		w.AddTensor("adapter.codes.weight", gguf.F32, []int{s.Hidden, ranks}, raw(weight))
		if bias {
			w.AddTensor("adapter.codes.bias", gguf.F32, []int{ranks}, raw(shift))
		}
	}
	return edit, func(ids []int32, codes [][]float32) {
		for i, row := range codes {
			embedding := embeddingOf(s, ids[i])
			for j := range row {
				sum := float64(shift[j])
				for k, x := range embedding {
					sum += float64(weight[j*s.Hidden+k]) * float64(x)
				}
				row[j] *= float32(sum)
			}
		}
	}
}

// embeddingOf returns a row of token_embd.weight of the models that merged makes.
func embeddingOf(s testmodel.Shape, id int32) []float32 {
	row := make([]float32, s.Hidden)
	r := rand.New(rand.NewPCG(3, 4))
	testmodel.Writer(s, func(name string, at, col int) float32 {
		x := float32(r.NormFloat64() / 4)
		if name == "token_embd.weight" && at == int(id) {
			row[col] = x
		}
		return x
	})
	return row
}

// TestCodesOfAFileEqualThoseOfTheHost holds codes that the device makes from embeddings against a source that computes them in Go: in
// prompts, in steps, and in a batch beside adapters without codes.
func TestCodesOfAFileEqualThoseOfTheHost(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		shape := testmodel.Tiny
		m := merged(t, d, shape, nil)
		edit, source := codesOf(1, 5, shape, true)
		other, _ := codesOf(2, 5, shape, false)
		base, plain := newLoRA(1, shape, 5, allMatrices...), newLoRA(2, shape, 3, "attn_v")
		made := load(t, m, plain.write(t, "llama", nil), base.write(t, "llama", edit))
		asked := load(t, m, base.write(t, "llama", nil), plain.write(t, "llama", nil))
		unlike := load(t, m, base.write(t, "llama", other))
		use := func(scale float32, all ...*model.Adapter) (active []model.ActiveAdapter) {
			for _, a := range all {
				active = append(active, model.ActiveAdapter{Adapter: a, Scale: scale})
			}
			return active
		}
		session := func(active []model.ActiveAdapter, f CodeSource) *Session {
			s := newSession(t, m, Options{Context: 64, KVType: tensor.F32, Chunk: 16, LogitRows: 16})
			if err := s.SetAdapters(active); err != nil {
				t.Fatal(err)
			}
			if f != nil {
				if err := s.SetCodes(active[0].Adapter, f); err != nil {
					t.Fatal(err)
				}
			}
			return s
		}
		ids := randomIDs(4, 40, m.Vocab)
		byDevice, byHost := session(use(0.5, made[1], made[0]), nil), session(use(0.5, asked...), source)
		want := allLogits(t, byHost, ids)
		closeTo(t, "prompt", allLogits(t, byDevice, ids), want)
		for what, active := range map[string][]model.ActiveAdapter{"none": nil, "other codes": use(0.5, unlike...)} {
			if w := worst(allLogits(t, session(active, nil), ids), want); w < 1e-2 {
				t.Errorf("%s: logits differ by %g alone", what, w)
			}
		}
		steps := greedy(t, byHost, ids[:7], 20)
		if got := greedy(t, byDevice, ids[:7], 20); !slices.Equal(got, steps) {
			t.Errorf("%v, with codes of the host %v", got, steps)
		}

		b, err := NewBatch(m, 3, Options{Context: 64, KVType: tensor.F32})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		calls := 0
		var joined []*Sequence
		var alone [][]int32
		for i, c := range []struct {
			active []model.ActiveAdapter
			f      CodeSource
		}{{use(0.5, made[1], made[0]), nil}, {use(0.5, asked...), source}, {use(1, made[0]), nil}} {
			b.SetCodes(nil, nil)
			if c.f != nil {
				b.SetCodes(c.active[0].Adapter, func(ids []int32, codes [][]float32) { calls++; c.f(ids, codes) })
			}
			s, err := b.Join(context.Background(), ids[i:7], nil, false, c.active...)
			if err != nil {
				t.Fatal(err)
			}
			joined = append(joined, s)
			alone = append(alone, greedy(t, session(c.active, c.f), ids[i:7], 20))
		}
		got := make([][]int32, len(joined))
		for range 20 {
			if err := b.Step(); err != nil {
				t.Fatal(err)
			}
			for i, s := range joined {
				got[i] = append(got[i], s.Newest())
			}
		}
		for i := range joined {
			if !slices.Equal(got[i], alone[i]) {
				t.Errorf("sequence %d: %v, alone %v", i, got[i], alone[i])
			}
		}
		if calls != 20 { // the prompt, and the steps after the one that gives its token out
			t.Errorf("the source of one sequence was asked %d times", calls)
		}
	})
}

// quantized returns a model whose matrices are of Q8_0, or of F32 with the same values and adapters merged into them.
func quantized(t testing.TB, d *gpu.Device, s testmodel.Shape, kind gguf.Type, adapters ...*lora) *model.Model {
	t.Helper()
	const unit = 1.0 / 512 // of all blocks
	r := rand.New(rand.NewPCG(5, 6))
	w := testmodel.Writer(s, func(name string, row, col int) float32 {
		x := float64(r.IntN(255)-127) * unit
		for _, l := range adapters {
			if a, ok := l.a[name]; ok {
				for k := range l.ranks {
					x += float64(l.alpha) / float64(l.ranks) * float64(l.b[name][row*l.ranks+k]) * float64(a[k*len(a)/l.ranks+col])
				}
			}
		}
		return float32(x)
	})
	w.Set("tokenizer.ggml.model", "no_vocab")
	f, err := gguf.FromBytes(testmodel.Bytes(w))
	if err != nil {
		t.Fatal(err)
	}
	if kind == gguf.Q8_0 {
		f, err = gguf.FromBytes(testmodel.Retype(f, func(x *gguf.Tensor, data []byte) (gguf.Type, []byte) {
			if len(x.Dims) != 2 || x.Dims[0]%32 != 0 {
				return x.Type, data
			}
			var out []byte
			for i := 0; i < len(data); i += 4 {
				if i%128 == 0 {
					out = binary.LittleEndian.AppendUint16(out, 0x1800) // 2^-9 as F16
				}
				out = append(out, byte(int8(math.Float32frombits(binary.LittleEndian.Uint32(data[i:]))/unit)))
			}
			return gguf.Q8_0, out
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := model.Load(context.Background(), f, d, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// TestAdaptersOverQuantizedWeights holds an adapter beside Q8_0 weights against the same weights in F32 with it merged. Products with
// Q8_0 round their input to 8 bits, so that logits differ by about one in a hundred.
func TestAdaptersOverQuantizedWeights(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		shape := testmodel.Tiny
		l := newLoRA(1, shape, 4, allMatrices...)
		ids := randomIDs(5, 40, shape.Vocab)
		logits := func(m *model.Model, active ...model.ActiveAdapter) [][]float32 {
			s := newSession(t, m, Options{Context: 64, KVType: tensor.F32, LogitRows: 64})
			if err := s.SetAdapters(active); err != nil {
				t.Fatal(err)
			}
			return allLogits(t, s, ids)
		}
		m := quantized(t, d, shape, gguf.Q8_0)
		got := logits(m, model.ActiveAdapter{Adapter: load(t, m, l.write(t, "llama", nil))[0], Scale: 1})
		want, base := logits(quantized(t, d, shape, gguf.F32, l)), logits(m)
		zeros := make([][]float32, len(want))
		for i := range zeros {
			zeros[i] = make([]float32, len(want[i]))
		}
		largest := worst(want, zeros)
		if w := worst(got, want); !(w <= 0.03*largest) {
			t.Errorf("logits of up to %g differ by %g", largest, w)
		}
		if w := worst(base, want); w < 0.1*largest {
			t.Errorf("without the adapter logits of up to %g differ by %g alone", largest, w)
		}
	})
}
