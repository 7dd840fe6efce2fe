package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// relative returns the RMS of the difference by the RMS of what is wanted.
func relative(got, want [][]float32) float64 {
	diff, size := 0.0, 0.0
	for i := range want {
		for j, w := range want[i] {
			diff += math.Pow(float64(got[i][j])-float64(w), 2)
			size += math.Pow(float64(w), 2)
		}
	}
	return math.Sqrt(diff / size)
}

// TestBitNetMatchesTransformers holds BitNet to transformers' logits and greedy ids, whose activations are rounded to int8 too:
// by float products of ternary weights (F32), and by two-bit codes (TQ2_0, TQ1_0).
func TestBitNetMatchesTransformers(t *testing.T) {
	dir := testdata.Path(t, "models")
	var greedyIDs map[string][]int32
	readJSON(t, filepath.Join("testdata", "bitnet.json"), &greedyIDs)
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for _, name := range fewer([]string{"tiny-bitnet", "tiny-bitnet-tq2_0", "tiny-bitnet-tq1_0"}) {
			t.Run(name, func(t *testing.T) {
				golden, want := readGolden(t, dir, name), greedyIDs[name]
				if len(want) < 64 || !slices.Equal(want[:len(golden.Greedy)], golden.Greedy) {
					t.Fatalf("bitnet.json has %v, the golden ids are %v", want, golden.Greedy)
				}
				m := loadModel(t, d, filepath.Join(dir, name+".gguf"), 128)
				for _, chunk := range []int{0, 7} {
					s := newSession(t, m, Options{Context: 128, KVType: tensor.F32, Chunk: chunk, LogitRows: 16})
					logits := allLogits(t, s, golden.IDs)
					// A value at a half may round either way, and the next layers carry it on: the data's own bound of one logit. The
					// quantized files' embedding, which is their output matrix, is Q8_0: a GPU may round what it multiplies to int8.
					tolerance := golden.Tolerance["logits"]
					if name != "tiny-bitnet" && !d.Info().HostMemory {
						tolerance = 0.1
					}
					if w := worst(logits, golden.rows); !(w <= tolerance) {
						t.Errorf("chunks of %d: logits differ by %g", chunk, w)
					}
					if r := relative(logits, golden.rows); name == "tiny-bitnet" && !(r <= 1e-3) || !(r <= 5e-3) {
						t.Errorf("chunks of %d: logits differ by %g of their size", chunk, r)
					}
					if ids := greedy(t, s, golden.IDs, len(want)); !slices.Equal(ids, want) {
						t.Errorf("chunks of %d: greedy ids %v, want %v", chunk, ids, want)
					}
				}
			})
		}
	})
}

// microsofts returns a file of TQ2_0 matrices as Microsoft's converters write it: these in I2_S, by another architecture's name,
// and where apart is set the scale in a tensor beside each.
func microsofts(t *testing.T, path, architecture string, apart bool) *gguf.File {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	key := func(key string) string {
		if key == "general.architecture" {
			return ""
		}
		return strings.Replace(key, "bitnet-b1.58.", architecture+".", 1)
	}
	w := testmodel.Copy(f, testmodel.Edit{Key: key, Tensor: func(w *gguf.Writer, x *gguf.Tensor, data []byte) {
		if x.Type != gguf.TQ2_0 {
			w.AddTensor(x.Name, x.Type, x.Dims, data)
			return
		}
		stored, err := tensor.FromMemory(gpu.CPU(), tensor.TQ2_0, slices.Clone(data), nil, x.Dims[1], x.Dims[0])
		if err != nil {
			t.Fatal(err)
		}
		values := stored.Float32s()
		scale := float32(0)
		for _, v := range values {
			scale = max(scale, v)
		}
		codes := make([]byte, len(values)/4+32)
		for i, v := range values {
			codes[i/128*32+i%32] |= byte(math.Round(float64(v/scale))+1) << (6 - i%128/32*2)
		}
		kept := scale
		if apart {
			kept = 1
			w.AddTensor(strings.TrimSuffix(x.Name, "weight")+"scale", gguf.F32, []int{1}, binary.LittleEndian.AppendUint32(nil, math.Float32bits(scale)))
		}
		binary.LittleEndian.PutUint32(codes[len(values)/4:], math.Float32bits(kept))
		w.AddTensor(x.Name, gguf.I2_S, x.Dims, codes)
	}})
	w.Set("general.architecture", architecture)
	g, err := gguf.FromBytes(testmodel.Bytes(w))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestMicrosoftsBitNetFilesComputeAlike holds I2_S, scales beside matrices and the other names of the architecture to the same model
// in TQ2_0. bitnet has another activation, so that its logits differ.
func TestMicrosoftsBitNetFilesComputeAlike(t *testing.T) {
	path := filepath.Join(testdata.Path(t, "models"), "tiny-bitnet-tq2_0.gguf")
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		ids := randomIDs(1, 20, 512)
		logits := func(m *model.Model) [][]float32 {
			return allLogits(t, newSession(t, m, Options{Context: 64, KVType: tensor.F32, LogitRows: 16}), ids)
		}
		want := logits(loadModel(t, d, path, 64))
		for _, c := range []struct {
			architecture string
			apart, same  bool
		}{{"bitnet-b1.58", false, true}, {"bitnet-25", true, true}, {"bitnet", true, false}} {
			m, err := model.Load(context.Background(), microsofts(t, path, c.architecture, c.apart), d, model.Options{Context: 64})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(m.Close)
			w := worst(logits(m), want)
			if c.same && !(w <= 2e-2) || !c.same && !(w > 0.1 && w < 100) {
				t.Errorf("%s: logits differ by %g", c.architecture, w)
			}
		}
	})
}

// TestTernaryWeightsInPlainGraphs holds llama and qwen3 files with matrices of one or two bits, as Falcon-E, TriLM and Bonsai have
// them, to the same models with these values in F32.
func TestTernaryWeightsInPlainGraphs(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for _, architecture := range []string{"llama", "qwen3"} {
			for _, typ := range fewer([]tensor.DType{tensor.TQ1_0, tensor.TQ2_0, tensor.Q1_0, tensor.Q2_0}) {
				shape := testmodel.Shape{Architecture: architecture, Hidden: 256, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 64, FeedForward: 512, Vocab: 64, Context: 64}
				plain, err := gguf.FromBytes(testmodel.Random(shape))
				if err != nil {
					t.Fatal(err)
				}
				ids := randomIDs(1, 12, shape.Vocab)
				var logits [2][][]float32
				for i := range logits {
					m, err := model.Load(context.Background(), withMatrices(t, plain, typ, i == 1), d, model.Options{Context: 64})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(m.Close)
					logits[i] = allLogits(t, newSession(t, m, Options{Context: 64, KVType: tensor.F32, LogitRows: 16}), ids)
				}
				// Quantized weights may be multiplied with activations rounded to int8: 0.5 % a product, a dozen in a row.
				if r := relative(logits[1], logits[0]); !(r <= 0.03) {
					t.Errorf("%s of %v: logits differ by %g of their size", architecture, typ, r)
				}
			}
		}
	})
}

// withMatrices returns a file whose layers' matrices are random blocks of a type, as stored or in F32.
func withMatrices(t *testing.T, f *gguf.File, typ tensor.DType, stored bool) *gguf.File {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(typ), 3))
	w := testmodel.Copy(f, testmodel.Edit{Tensor: func(w *gguf.Writer, x *gguf.Tensor, data []byte) {
		if !strings.HasPrefix(x.Name, "blk.") || len(x.Dims) < 2 {
			w.AddTensor(x.Name, x.Type, x.Dims, data)
			return
		}
		blocks := make([]byte, typ.Bytes(x.Dims[0]*x.Dims[1]))
		for i := range blocks {
			blocks[i] = byte(random.Uint32())
		}
		scale := map[tensor.DType]int{tensor.TQ1_0: 52, tensor.TQ2_0: 64}[typ] // Q1_0 and Q2_0 begin with it
		for b := scale; b < len(blocks); b += typ.BlockBytes() {
			binary.LittleEndian.PutUint16(blocks[b:], 0x2c00+uint16(random.IntN(256))) // about 1/16
		}
		if stored {
			w.AddTensor(x.Name, gguf.Type(typ), x.Dims, blocks)
			return
		}
		values, err := tensor.FromMemory(gpu.CPU(), typ, blocks, nil, x.Dims[1], x.Dims[0])
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		binary.Write(&b, binary.LittleEndian, values.Float32s())
		w.AddTensor(x.Name, gguf.F32, x.Dims, b.Bytes())
	}})
	g, err := gguf.FromBytes(testmodel.Bytes(w))
	if err != nil {
		t.Fatal(err)
	}
	return g
}
