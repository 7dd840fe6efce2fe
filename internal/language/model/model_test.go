package model

import (
	"context"
	"encoding/binary"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// file returns a tiny llama after edit has spoilt or changed it.
func file(t *testing.T, edit func(w *gguf.Writer), shape testmodel.Shape) *gguf.File {
	t.Helper()
	w := testmodel.Writer(shape, func(string, int, int) float32 { return 0.5 })
	if edit != nil {
		edit(w)
	}
	f, err := gguf.FromBytes(testmodel.Bytes(w))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func f32(n int) []byte { return make([]byte, 4*n) }

// addBiases gives both layers of a tiny llama biases of queries.
func addBiases(w *gguf.Writer, t gguf.Type, n int) {
	w.AddTensor("blk.0.attn_q.bias", t, []int{n}, f32(n))
	w.AddTensor("blk.1.attn_q.bias", t, []int{n}, f32(n))
}

func TestFilesThatCannotBeComputedAreNamed(t *testing.T) {
	tiny := testmodel.Tiny
	with := func(change func(*testmodel.Shape)) testmodel.Shape {
		s := tiny
		change(&s)
		return s
	}
	add := func(key string, value any) func(*gguf.Writer) {
		return func(w *gguf.Writer) { w.Set(key, value) }
	}
	for _, c := range []struct {
		name  string
		shape testmodel.Shape
		edit  func(*gguf.Writer)
		want  string
	}{
		{"architecture", with(func(s *testmodel.Shape) { s.Architecture = "mamba" }), nil, `"mamba"`},
		{"heads that share unequally", with(func(s *testmodel.Shape) { s.KVHeads = 3 }), nil, "head_count_kv 3"},
		{"no layers", with(func(s *testmodel.Shape) { s.Layers = 0 }), nil, "llama.block_count"},
		{"odd rotation", with(func(s *testmodel.Shape) { s.HeadDim = 7 }), nil, "rope.dimension_count"},
		{"experts", with(func(s *testmodel.Shape) { s.Architecture = "qwen2" }), add("qwen2.expert_count", uint32(8)), "mixtures of experts"},
		{"context", with(func(s *testmodel.Shape) { s.Context = 1 << 30 }), nil, "llama.context_length"},
		{"scaling", tiny, add("llama.rope.scaling.type", "longrope"), `"longrope"`},
		{"factor", tiny, func(w *gguf.Writer) {
			w.Set("llama.rope.scaling.type", "linear")
			w.Set("llama.rope.scaling.factor", float32(math.NaN()))
		}, "rope.scaling.factor"},
		{"base", tiny, add("llama.rope.freq_base", float32(-1)), "rope.freq_base"},
		{"type of key", tiny, add("llama.rope.freq_base", "10000"), "llama.rope.freq_base"},
		{"windows by layer", tiny, add("llama.attention.sliding_window_pattern", uint32(2)), "sliding_window_pattern"},
		{"scaled logits", tiny, add("llama.logit_scale", float32(2)), "llama.logit_scale"},
		{"unknown tensor", tiny, func(w *gguf.Writer) { w.AddTensor("blk.0.ffn_gate_inp.weight", gguf.F32, []int{4}, f32(4)) }, "blk.0.ffn_gate_inp.weight"},
		{"scale of a matrix", tiny, func(w *gguf.Writer) { w.AddTensor("blk.0.ffn_up.scale", gguf.F32, []int{2}, f32(2)) }, "blk.0.ffn_up.scale is F32 [2]"},
		{"scale of 0", tiny, func(w *gguf.Writer) { w.AddTensor("output.scale", gguf.F32, []int{1}, f32(1)) }, "output.scale is 0"},
		{"scale of nothing", tiny, func(w *gguf.Writer) { w.AddTensor("blk.0.ffn_gat.input_scale", gguf.F32, []int{1}, f32(1)) }, "blk.0.ffn_gat.input_scale"},
		{"layer too many", tiny, func(w *gguf.Writer) { w.AddTensor("blk.2.attn_norm.weight", gguf.F32, []int{32}, f32(32)) }, "blk.2.attn_norm.weight"},
		{"norms of qwen3 in llama", tiny, func(w *gguf.Writer) { w.AddTensor("blk.0.attn_q_norm.weight", gguf.F32, []int{8}, f32(8)) }, "blk.0.attn_q_norm.weight"},
		{"shape of bias", tiny, func(w *gguf.Writer) { addBiases(w, gguf.F32, 31) }, "blk.0.attn_q.bias has shape [31]"},
		{"type of bias", tiny, func(w *gguf.Writer) { addBiases(w, gguf.I32, 32) }, "blk.0.attn_q.bias is of type I32"},
		{"bias of one layer", tiny, func(w *gguf.Writer) { w.AddTensor("blk.0.attn_q.bias", gguf.F32, []int{32}, f32(32)) },
			"blk.1.attn_q.bias is missing"},
		{"a tensor for each expert", tiny, func(w *gguf.Writer) {
			w.Set("llama.expert_count", uint32(2))
			w.Set("llama.expert_used_count", uint32(1))
			w.AddTensor("blk.0.ffn_gate.0.weight", gguf.F32, []int{4}, f32(4))
		}, "take a newer file"},
		{"frequencies", tiny, func(w *gguf.Writer) { w.AddTensor("rope_freqs.weight", gguf.F32, []int{4}, f32(4)) }, "rope_freqs.weight"},
	} {
		_, err := Load(context.Background(), file(t, c.edit, c.shape), gpu.CPU(), Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
		}
	}
}

func TestMissingKeysAndTensorsAreNamed(t *testing.T) {
	for _, key := range []string{"llama.embedding_length", "llama.block_count", "llama.context_length", "llama.feed_forward_length",
		"llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon", "general.architecture"} {
		_, err := ReadConfig(without(t, key))
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("without %s: %v", key, err)
		}
	}
	for _, name := range []string{"token_embd.weight", "output_norm.weight", "blk.1.ffn_down.weight"} {
		_, err := Load(context.Background(), without(t, name), gpu.CPU(), Options{})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// TestMoreLayersThanTensorsAreRefusedAtOnce has a file of twenty tensors say that it has 4,000 layers.
func TestMoreLayersThanTensorsAreRefusedAtOnce(t *testing.T) {
	w := testmodel.Copy(file(t, nil, testmodel.Tiny), testmodel.Without("llama.block_count"))
	w.Set("llama.block_count", uint32(4000))
	f, err := gguf.FromBytes(testmodel.Bytes(w))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = ReadConfig(f)
	runtime.ReadMemStats(&after)
	if want := `"llama.block_count" is 4000, and the file has 21 tensors`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want an error with %q", err, want)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 1<<20 {
		t.Errorf("%d bytes", taken)
	}
}

// TestSpoiltFilesOfEveryArchitectureAreNamed takes each tensor of a layer away or lengthens it, and spoils each key.
func TestSpoiltFilesOfEveryArchitectureAreNamed(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testdata.Path(t, "models"), "tiny-*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, path := range files {
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		architecture, _ := f.String("general.architecture")
		if seen[architecture] {
			continue
		}
		seen[architecture] = true
		spoilt := func(name string, edit func(w *gguf.Writer)) error {
			w := testmodel.Copy(f, testmodel.Without(name))
			if edit != nil {
				edit(w)
			}
			g, err := gguf.FromBytes(testmodel.Bytes(w))
			if err != nil {
				t.Fatal(err)
			}
			return Supported(g)
		}
		for _, x := range f.Tensors() {
			first, later := strings.HasPrefix(x.Name, "blk.0."), strings.HasPrefix(x.Name, "blk.3.")
			if strings.HasPrefix(x.Name, "blk.") && !first && !later {
				continue
			}
			err := spoilt(x.Name, nil)
			if tied := x.Name == "output.weight"; !tied && (err == nil || !strings.Contains(err.Error(), x.Name)) {
				t.Errorf("%s without %s: %v", architecture, x.Name, err)
			}
			dims := slices.Clone(x.Dims)
			dims[len(dims)-1]++
			elements := 1
			for _, d := range dims {
				elements *= d
			}
			err = spoilt(x.Name, func(w *gguf.Writer) { w.AddTensor(x.Name, gguf.F32, dims, f32(elements)) })
			// it counts the tokens
			if x.Name != "token_embd.weight" && (err == nil || !strings.Contains(err.Error(), x.Name)) {
				t.Errorf("%s with %s %v: %v", architecture, x.Name, dims, err)
			}
		}
		for _, key := range f.Keys() {
			if !strings.HasPrefix(key, architecture+".") || strings.HasSuffix(key, ".vocab_size") {
				continue
			}
			for _, value := range []any{uint32(math.MaxUint32), "text", float32(math.NaN())} {
				err := spoilt(key, func(w *gguf.Writer) { w.Set(key, value) })
				if ignored := strings.Contains(key, "deepstack") || strings.HasSuffix(key, "_sections"); err == nil && !ignored {
					t.Errorf("%s with %s = %v: no error", architecture, key, value)
				}
			}
		}
	}
	if len(seen) < 20 {
		t.Errorf("files of %d architectures", len(seen))
	}
}

// TestKeysThatDecideAreNeeded takes away keys without which files would be computed as other models.
func TestKeysThatDecideAreNeeded(t *testing.T) {
	for name, keys := range map[string][]string{
		"granite":           {"embedding_scale", "residual_scale", "attention.scale", "logit_scale"},
		"granitemoe-shared": {"logit_scale"},
		"gpt-oss":           {"attention.sliding_window"},
	} {
		f, err := gguf.Open(filepath.Join(testdata.Path(t, "models"), "tiny-"+name+".gguf"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		architecture, _ := f.String("general.architecture")
		for _, key := range keys {
			g, err := gguf.FromBytes(testmodel.Bytes(testmodel.Copy(f, testmodel.Without(architecture+"."+key))))
			if err != nil {
				t.Fatal(err)
			}
			if err := Supported(g); err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("%s without %s: %v", name, key, err)
			}
		}
	}
}

// TestFirstFilesOfGemma2HaveItsBounds: converters of the first weeks wrote neither the window nor the bounds.
func TestFirstFilesOfGemma2HaveItsBounds(t *testing.T) {
	f, err := gguf.Open(filepath.Join(testdata.Path(t, "models"), "tiny-gemma2.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first, err := gguf.FromBytes(testmodel.Bytes(testmodel.Copy(f, testmodel.Without("gemma2.attention.sliding_window",
		"gemma2.attn_logit_softcapping", "gemma2.final_logit_softcapping"))))
	if err != nil {
		t.Fatal(err)
	}
	c, err := ReadConfig(first)
	if err != nil || c.Window != 4096 || c.window(0) != 4096 || c.window(1) != 0 || c.scoreCap != 50 || c.logitCap != 30 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestWidthsOfExpertsAreThoseOfTensors: the first converters of mixtures did not write them.
func TestWidthsOfExpertsAreThoseOfTensors(t *testing.T) {
	f, err := gguf.Open(filepath.Join(testdata.Path(t, "models"), "tiny-qwen2moe.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	first, err := gguf.FromBytes(testmodel.Bytes(testmodel.Copy(f, testmodel.Without("qwen2moe.expert_feed_forward_length",
		"qwen2moe.expert_shared_feed_forward_length"))))
	if err != nil {
		t.Fatal(err)
	}
	c, err := ReadConfig(first)
	if err != nil || c.mixture.width != want.mixture.width || c.mixture.sharedWidth != want.mixture.sharedWidth ||
		c.FeedForward == c.mixture.width {
		t.Errorf("%+v, %v, want %+v", c, err, want.mixture)
	}
}

// without returns a tiny llama without one key or tensor.
func without(t *testing.T, name string) *gguf.File {
	t.Helper()
	w := testmodel.Copy(file(t, nil, testmodel.Tiny), testmodel.Without(name))
	f, err := gguf.FromBytes(testmodel.Bytes(w))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestOutputIsTiedWhereTheFileHasNone(t *testing.T) {
	m, err := Load(context.Background(), without(t, "output.weight"), gpu.CPU(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if !m.Tied || m.weights.output != m.weights.embedding {
		t.Error("the output matrix is not the embedding")
	}
}

// TestDraftLayersTakeNoMemory adds a draft layer, as Qwen3.5 files have one, to a model with a delta net.
func TestDraftLayersTakeNoMemory(t *testing.T) {
	plain, err := gguf.Open(filepath.Join(testdata.Path(t, "models"), "tiny-qwen35.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	w := testmodel.Copy(plain, testmodel.Without("qwen35.block_count"))
	w.Set("qwen35.block_count", uint32(9))
	w.Set("qwen35.nextn_predict_layers", uint32(1))
	w.AddTensor("blk.8.nextn.eh_proj.weight", gguf.F32, []int{64, 32}, f32(64*32))
	drafting, err := gguf.FromBytes(testmodel.Bytes(w))
	if err != nil {
		t.Fatal(err)
	}
	var bytes []int64
	for _, f := range []*gguf.File{plain, drafting} {
		c, err := ReadConfig(f)
		if err != nil {
			t.Fatal(err)
		}
		n, _, err := c.ModelBytes(f, gpu.CPU(), 128)
		if err != nil || c.Layers != 8 {
			t.Fatalf("%d layers, %v", c.Layers, err)
		}
		bytes = append(bytes, n)
	}
	if bytes[0] != bytes[1] {
		t.Errorf("%d bytes with a draft layer, %d without", bytes[1], bytes[0])
	}
}

func TestLoadStopsWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Load(ctx, file(t, nil, testmodel.Tiny), gpu.CPU(), Options{}); err != context.Canceled {
		t.Error(err)
	}
}

// TestRoPEScaling holds the frequencies to the formulas of the papers, for the parameters of published models.
func TestRoPEScaling(t *testing.T) {
	plain := RoPE{Dim: 128, Base: 1e6, Scaling: "none", Factor: 1}
	base, one := plain.frequencies()
	if one != 1 || base[0] != 1 || !(math.Abs(base[63]-math.Pow(1e6, -126./128)) < 1e-15) {
		t.Errorf("plain: %v ... %v, scale %v", base[0], base[63], one)
	}

	linear := plain
	linear.Scaling, linear.Factor = "linear", 4
	got, _ := linear.frequencies()
	for i := range got {
		if got[i] != base[i]/4 {
			t.Fatalf("linear: pair %d: %v, want %v", i, got[i], base[i]/4)
		}
	}

	// Qwen2.5 with YaRN, factor 4 over 32768. Pairs that turn more than 32 times within the original context are kept,
	// those that turn less than once are interpolated.
	yarn := plain
	yarn.Scaling, yarn.Factor, yarn.OriginalContext = "yarn", 4, 32768
	yarn.BetaFast, yarn.BetaSlow, yarn.AttentionFactor = 32, 1, 1
	got, scale := yarn.frequencies()
	if want := 0.1*math.Log(4) + 1; !(math.Abs(scale-want) < 1e-12) {
		t.Errorf("yarn: attention factor %v, want %v", scale, want)
	}
	for i := range got {
		turns := 32768 * base[i] / (2 * math.Pi)
		ratio := base[i] / got[i]
		switch {
		case turns > 32*1.3 && ratio != 1, turns < 1/1.3 && ratio != 4, !(ratio >= 1 && ratio <= 4):
			t.Errorf("yarn: pair %d turns %.2f times and is slowed by %.3f", i, turns, ratio)
		}
	}

	// Llama 3.1: the converter writes the divisors.
	f := file(t, func(w *gguf.Writer) {
		b := binary.LittleEndian.AppendUint32(nil, math.Float32bits(1))
		for range 3 {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(8))
		}
		w.AddTensor("rope_freqs.weight", gguf.F32, []int{4}, b)
	}, testmodel.Tiny)
	c, err := ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	got, _ = c.RoPE.frequencies()
	for i, divisor := range []float64{1, 8, 8, 8} {
		if want := math.Pow(10000, -float64(i)/4) / divisor; !(math.Abs(got[i]-want) < 1e-15) {
			t.Errorf("rope_freqs: pair %d: %v, want %v", i, got[i], want)
		}
	}
}

// TestPredictedMemoryIsAllocated compares what is computed in advance with what a GPU's pool hands out.
func TestPredictedMemoryIsAllocated(t *testing.T) {
	d, err := gpu.OpenBackend(fake.New(fake.Config{}), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	shape := testmodel.Tiny
	shape.Hidden, shape.FeedForward = 256, 512
	stored := file(t, nil, shape)
	quantized, err := gguf.FromBytes(testmodel.Retype(stored, quantize))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*gguf.File{"f32": stored, "q8_0, halves as vectors": quantized} {
		t.Run(name, func(t *testing.T) { checkMemory(t, d, f) })
	}
}

// TestGraphsOfEveryArchitecture checks the memory of every architecture, and the places of its values, fused and not.
func TestGraphsOfEveryArchitecture(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(testdata.Path(t, "models"), "tiny-*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, path := range paths {
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		name, err := f.String("general.architecture")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := findArchitecture(name); err != nil {
			continue
		}
		tested[name] = true
		for _, fuse := range []string{"on", "off"} {
			t.Run(filepath.Base(path)+"/"+fuse, func(t *testing.T) {
				t.Setenv("VIBRANT_FUSE", fuse)
				d, err := gpu.OpenBackend(fake.New(fake.Config{}), 0)
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				c, err := ReadConfig(f)
				if err != nil {
					t.Fatal(err)
				}
				checkPlaces(t, c.graph)
				checkPlaces(t, c.adapted)
				checkPlaces(t, c.within)
				checkMemory(t, d, f)
			})
		}
	}
	// No other engine computes these two: TestMicrosoftsBitNetFilesComputeAlike of the engine holds them to bitnet-b1.58.
	tested["bitnet"], tested["bitnet-25"] = tested["bitnet-b1.58"], tested["bitnet-b1.58"]
	// TestTextOfQwen3VLWithExpertsIsQwen3MoE holds the first to the second.
	tested["qwen3vlmoe"] = tested["qwen3moe"]
	for _, a := range architectures {
		if !tested[a.name] {
			t.Errorf("no model of architecture %s is tested", a.name)
		}
	}
}

// checkMemory compares the memory that a model is predicted to take with what it takes.
func checkMemory(t *testing.T, d *gpu.Device, f *gguf.File) {
	t.Helper()
	used := func() int64 { return d.Pool().Stats().InUse }
	var before int64
	step := func(what string, predicted int64) {
		t.Helper()
		if n := used() - before; n != predicted {
			t.Errorf("%s: predicted %d bytes, are %d", what, predicted, n)
		}
		before = used()
	}
	before = used()
	m, err := Load(context.Background(), f, d, Options{})
	if err != nil {
		t.Fatal(err)
	}
	predicted, _, err := m.Config.ModelBytes(f, d, m.MaxContext())
	if err != nil || predicted != m.Bytes() {
		t.Errorf("predicted %d, %v, said to be %d", predicted, err, m.Bytes())
	}
	step("model", predicted)
	options := CacheOptions{Sequences: 3, Capacity: 100, Type: kernel.F16, Rows: 17, Checkpoints: 2}
	one, err := gpu.NewCommunicator(d.Stream())
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.NewCache(one, options)
	if err != nil {
		t.Fatal(err)
	}
	step("cache", m.CacheBytes(options))
	w, err := m.NewWorkspace(one, 17, 5)
	if err != nil {
		t.Fatal(err)
	}
	step("workspace", m.WorkspaceBytes(17, 5))
	w.Free()
	step("no workspace", -m.WorkspaceBytes(17, 5))
	if w, err = m.NewAdaptedWorkspace(one, 17, 5); err != nil {
		t.Fatal(err)
	}
	step("workspace for adapters", m.AdaptedWorkspaceBytes(17, 5))
	w.Free()
	c.Free()
	m.Close()
	if n := used(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
	if s := d.Pool().Stats(); s.Cached > 1<<20 {
		t.Errorf("%d bytes are kept", s.Cached)
	}
}

// A field that is missing would show as a panic when the first file is opened.
func TestArchitecturesAreWhole(t *testing.T) {
	for _, a := range architectures {
		if a.name == "" || a.example == "" || a.tested == "" || a.outer == nil || a.layer == nil || a.forward == nil {
			t.Errorf("architecture %q: name, example, tested, outer, layer and forward are needed", a.name)
		}
	}
}

// quantize makes matrices Q8_0 and vectors F16, with whatever values.
func quantize(t *gguf.Tensor, data []byte) (gguf.Type, []byte) {
	if len(t.Dims) == 2 {
		return gguf.Q8_0, make([]byte, len(data)/4/32*34)
	}
	return gguf.F16, make([]byte, len(data)/2)
}
