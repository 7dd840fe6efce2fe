package model

import (
	"fmt"
	"math"

	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// Config is the shape of a decoder-only transformer, read from the metadata of a GGUF file.
type Config struct {
	Architecture string // general.architecture
	Name         string // general.name, may be empty
	Context      int    // tokens that the model was trained on
	Hidden       int    // width of the residual stream
	Layers       int
	FeedForward  int
	Heads        int
	KVHeads      int
	HeadDim      int // of queries, keys and values alike
	Vocab        int // rows of the token embedding
	Epsilon      float32
	Window       int // keys that a query sees, the newest; 0 for all
	RoPE         RoPE
	Tied         bool // the output matrix is the token embedding

	arch    *architecture
	sliding []bool // which layers see no more than Window; nil for all

	latent      *latent  // attention of compressed keys, nil for none
	mixture     *mixture // of experts, nil for none
	delta       *deltaNet
	mixtureStep int    // every so many layers have experts, where not all have (Llama 4)
	sideBySide  bool   // the blocks of a layer read one norm, and are both added (StableLM 2 12B)
	drafts      int    // layers after the last one that draft tokens; they are not used
	recurrent   []bool // which layers carry on a state instead of keys and values; nil for none

	localRoPE *RoPE // of the layers with a window, where it differs
	queryRoPE *RoPE // of queries, where it differs

	// Multipliers: of embeddings, of a branch before it is added, of scores (0 for 1 / sqrt(head size)), and what
	// logits are divided by. Bounds of scores and logits, 0 for none.
	embeddingScale, residualScale, attentionScale, logitDivisor, scoreCap, logitCap float32

	weights *weights
	graph   *graph
	adapted *graph // the same with the updates of adapters behind products, and so with fewer fused operations
	within  *graph // the same whose fused operations add what one stack of adapters changes

	guest      *graph // of a stage, for prompts whose weights are lent to the last device; nil for none
	streamFrom int    // tokens of such a prompt, or more
	together   int    // chunks of a prompt that are computed at a time; 0 for one
}

// window returns how many keys a query of a layer sees, 0 for all.
func (c *Config) window(layer int) int {
	if c.sliding != nil && !c.sliding[layer] {
		return 0
	}
	return c.Window
}

// layerRoPE returns how a layer rotates.
func (c *Config) layerRoPE(layer int) *RoPE {
	if c.localRoPE != nil && c.window(layer) > 0 {
		return c.localRoPE
	}
	return &c.RoPE
}

// unknownKeys change what a model computes, in ways that some architectures use: a file that has one which its
// architecture does not read would be computed wrongly.
var unknownKeys = []string{
	"attention.sliding_window_pattern", "attention.scale", "attention.clamp_kqv", "attention.max_alibi_bias",
	"attention.temperature_scale", "attn_logit_softcapping", "final_logit_softcapping",
	"embedding_scale", "residual_scale", "logit_scale", "rope.dimension_sections", "use_parallel_residual",
	"rope.freq_base_swa", "rope.scaling.yarn_log_multiplier",
}

// Limits on what a header may ask for, far above any model known, so that sizes computed from a hostile file can
// neither overflow nor be allocated.
const (
	maxWidth   = 1 << 20
	maxLayers  = 1 << 12
	maxContext = 1 << 24
	maxHeadDim = 256 // the attention kernels' limit

	maxLatentDim = 576 // the same for keys that all heads share
)

// ReadConfig reads and checks the shape of the model in f. Errors name the key or tensor.
func ReadConfig(f *gguf.File) (*Config, error) {
	name, err := f.String("general.architecture")
	if err != nil {
		return nil, err
	}
	arch, err := findArchitecture(name)
	if err != nil {
		return nil, err
	}
	c := &Config{Architecture: name, arch: arch}
	if c.Name, err = f.StringOr("general.name", ""); err != nil {
		return nil, err
	}
	r := reader{f: f, prefix: name + ".", known: map[string]bool{}}
	c.Context = r.size("context_length", maxContext)
	c.Hidden = r.size("embedding_length", maxWidth)
	c.Layers = r.size("block_count", maxLayers)
	if tensors := len(f.Tensors()); r.err == nil && c.Layers > tensors { // before their operations are listed
		r.fail(fmt.Errorf("key %q is %d, and the file has %d tensors", r.key("block_count"), c.Layers, tensors))
	}
	c.FeedForward = r.perLayer("feed_forward_length", r.sizeOr("expert_feed_forward_length", 0, maxWidth), maxWidth)
	c.Heads = r.perLayer("attention.head_count", 0, maxWidth)
	c.KVHeads = r.perLayer("attention.head_count_kv", c.Heads, maxWidth)
	epsilon := "attention.layer_norm_rms_epsilon"
	if arch.layerNorm {
		epsilon = "attention.layer_norm_epsilon"
	}
	c.Epsilon = float32(r.float(epsilon))
	c.Window = r.sizeOr("attention.sliding_window", 0, maxContext)
	if r.err != nil {
		return nil, r.err
	}

	widest := maxHeadDim
	if arch.latent {
		widest = maxLatentDim
	}
	c.HeadDim = r.sizeOr("attention.key_length", 0, widest)
	if c.HeadDim == 0 {
		if c.Hidden%c.Heads != 0 {
			return nil, fmt.Errorf("%s.embedding_length %d is no multiple of attention.head_count %d, and attention.key_length is missing", name, c.Hidden, c.Heads)
		}
		c.HeadDim = c.Hidden / c.Heads
	}
	valueDim := r.sizeOr("attention.value_length", c.HeadDim, widest)
	experts := r.sizeOr("expert_count", 0, maxWidth)
	if r.err == nil {
		c.RoPE, r.err = readRoPE(&r, c)
	}
	if r.err != nil {
		return nil, r.err
	}
	switch {
	case c.HeadDim > widest:
		return nil, fmt.Errorf("%s: head size %d is not supported (at most %d)", name, c.HeadDim, widest)
	case valueDim != c.HeadDim && !arch.latent:
		return nil, fmt.Errorf("%s.attention.value_length %d differs from key_length %d: not supported", name, valueDim, c.HeadDim)
	case c.Heads%c.KVHeads != 0:
		return nil, fmt.Errorf("%s.attention.head_count %d is no multiple of head_count_kv %d", name, c.Heads, c.KVHeads)
	case !(c.Epsilon > 0) || math.IsInf(float64(c.Epsilon), 0):
		return nil, fmt.Errorf("%s.%s is %v", name, epsilon, c.Epsilon)
	}
	if arch.read != nil {
		arch.read(&r, c)
	}
	if r.err != nil {
		return nil, r.err
	}

	if experts > 0 && c.mixture == nil {
		return nil, fmt.Errorf("%s.expert_count is %d: mixtures of experts are not supported", name, experts)
	}
	for _, key := range unknownKeys {
		if f.Has(name+"."+key) && !r.known[key] {
			return nil, fmt.Errorf("key %q: not supported", name+"."+key)
		}
	}

	embedding, err := f.Tensor("token_embd.weight")
	if err != nil {
		return nil, err
	}
	if len(embedding.Dims) != 2 || embedding.Dims[0] != c.Hidden || embedding.Dims[1] < 1 || embedding.Dims[1] > 1<<24 {
		return nil, fmt.Errorf("tensor token_embd.weight has shape %v (contiguous dimension first), want [%d vocabulary]", embedding.Dims, c.Hidden)
	}
	c.Vocab = embedding.Dims[1]
	c.Tied = !f.HasTensor("output.weight")
	fused, err := fusing()
	if err != nil {
		return nil, err
	}
	if c.weights, err = c.bind(f); err != nil {
		return nil, err
	}
	c.graph, c.adapted, c.within = c.record(c.weights, fused, plainly), c.record(c.weights, fused, adaptedBehind), c.record(c.weights, fused, adaptedWithin)
	return c, nil
}

// reader reads the keys of one architecture and keeps the first error, so that a list of keys reads as a list.
type reader struct {
	f      *gguf.File
	prefix string
	known  map[string]bool // keys that were asked for
	err    error
}

// key returns the whole name of a key, which counts as known from now on.
func (r *reader) key(name string) string {
	r.known[name] = true
	return r.prefix + name
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// size reads an integer of 1..limit.
func (r *reader) size(key string, limit int) int {
	v, err := r.f.Uint(r.key(key))
	return r.checked(key, v, 1, limit, err)
}

// sizeOr reads an integer of 0..limit, or takes the default where the key is missing.
func (r *reader) sizeOr(key string, def, limit int) int {
	v, err := r.f.UintOr(r.key(key), uint64(def))
	return r.checked(key, v, 0, max(limit, def), err)
}

// perLayer reads an integer that some files write once a layer; layers that differ are not supported.
// def 0 means that the key must be there.
func (r *reader) perLayer(key string, def, limit int) int {
	if v, ok := r.f.Value(r.key(key)); ok && v.Type == gguf.TypeArray {
		list, err := r.f.Ints(r.prefix + key)
		if err == nil && len(list) == 0 {
			err = fmt.Errorf("key %q is an empty array", r.prefix+key)
		}
		if err != nil {
			r.fail(err)
			return 1
		}
		for _, x := range list {
			if x != list[0] {
				r.fail(fmt.Errorf("key %q differs between layers (%d and %d): not supported", r.prefix+key, list[0], x))
			}
		}
		return r.checked(key, uint64(list[0]), 1, limit, nil)
	}
	if def > 0 && !r.f.Has(r.prefix+key) {
		return def
	}
	return r.size(key, limit)
}

// checked returns v, or records why not and returns 1, which is safe to divide by.
func (r *reader) checked(key string, v uint64, low, high int, err error) int {
	if err == nil && (v < uint64(low) || v > uint64(high)) {
		err = fmt.Errorf("key %q is %d, want %d to %d", r.prefix+key, v, low, high)
	}
	if err != nil {
		r.fail(err)
		return 1
	}
	return int(v)
}

func (r *reader) float(key string) float64 {
	v, err := r.f.Float(r.key(key))
	if err != nil {
		r.fail(err)
	}
	return v
}

func (r *reader) floatOr(key string, def float64) float64 {
	v, err := r.f.FloatOr(r.key(key), def)
	if err != nil {
		r.fail(err)
	}
	return v
}

// logMultiplier reads YaRN's m, 0 for none.
func (r *reader) logMultiplier() float64 {
	const key = "rope.scaling.yarn_log_multiplier"
	m := r.floatOr(key, 0)
	if !(m >= 0) || math.IsInf(m, 0) {
		r.fail(fmt.Errorf("key %q is %v, want 0 or more", r.prefix+key, m))
	}
	return m
}

func (r *reader) stringOr(key, def string) string {
	v, err := r.f.StringOr(r.key(key), def)
	if err != nil {
		r.fail(err)
	}
	return v
}

func (r *reader) boolOr(key string, def bool) bool {
	v, err := r.f.BoolOr(r.key(key), def)
	if err != nil {
		r.fail(err)
	}
	return v
}

// need says that the model would be another one without these keys.
func (r *reader) need(keys ...string) {
	for _, key := range keys {
		if name := r.key(key); !r.f.Has(name) {
			r.fail(fmt.Errorf("gguf: key %q: %w", name, gguf.ErrNoKey))
		}
	}
}

// ignore says that a key makes no difference to what is computed here.
func (r *reader) ignore(key string) { r.known[key] = true }

// scale reads a positive factor, or takes the default where the key is missing or 0, as converters write "none".
func (r *reader) scale(key string, def float32) float32 {
	v := r.floatOr(key, 0)
	if v == 0 {
		return def
	}
	if !(v > 0) || math.IsInf(v, 0) {
		r.fail(fmt.Errorf("key %q is %v, want more than 0", r.prefix+key, v))
		return 1
	}
	return float32(v)
}

// windows reads which layers see a window alone: a list, or a period of which the last layer sees all, of 0 none; where the
// file has neither what the architecture says.
func (r *reader) windows(c *Config, slides func(layer int) bool) {
	const key = "attention.sliding_window_pattern"
	v, ok := r.f.Value(r.key(key))
	period := 0
	if ok = ok && v.Type != gguf.TypeArray; ok {
		period = r.sizeOr(key, 0, maxLayers)
	}
	c.sliding = make([]bool, c.Layers)
	for i := range c.sliding {
		c.sliding[i] = slides(i)
		if ok {
			c.sliding[i] = period == 0 || (i+1)%period != 0
		}
	}
	if !ok {
		r.perLayerBools(key, c.sliding)
	}
}

// perLayerBools reads a list of one element a layer, and leaves values as they are where the file has none.
func (r *reader) perLayerBools(key string, values []bool) {
	if !r.f.Has(r.key(key)) {
		return
	}
	list, err := r.f.Bools(r.prefix + key)
	if err == nil && len(list) < len(values) {
		err = fmt.Errorf("key %q has %d elements for %d layers", r.prefix+key, len(list), len(values))
	}
	if err != nil {
		r.fail(err)
		return
	}
	copy(values, list)
}

// unscaledRoPE returns the rotation of layers with a window: by a base of its own, and without scaling.
func (r *reader) unscaledRoPE(c *Config, base float64) *RoPE {
	base = r.floatOr("rope.freq_base_swa", base)
	p := &RoPE{Mode: c.RoPE.Mode, Dim: c.RoPE.Dim, Base: base, Scaling: "none", Factor: 1}
	if !(p.Base > 1) || math.IsInf(p.Base, 0) {
		r.fail(fmt.Errorf("key %q is %v, want more than 1", r.prefix+"rope.freq_base_swa", p.Base))
	}
	return p
}

// draftLayers takes the layers that draft tokens, which come last, from those that are computed.
func (r *reader) draftLayers(c *Config) {
	c.drafts = r.sizeOr("nextn_predict_layers", 0, maxLayers)
	if c.drafts >= c.Layers {
		r.fail(fmt.Errorf("key %q is %d, of %d layers", r.prefix+"nextn_predict_layers", c.drafts, c.Layers))
		c.drafts = 0
	}
	c.Layers -= c.drafts
}

// growingQueries makes queries grow with their position: see RoPE.Growth. What grows is the rotation's cosines and
// sines, so whole heads must rotate.
func (r *reader) growingQueries(c *Config, growth float64, every, ahead int) {
	c.queryRoPE = &c.RoPE
	switch {
	case growth == 0:
	case !(growth > 0) || math.IsInf(growth, 0):
		r.fail(fmt.Errorf("key %q is %v, want more than 0", r.prefix+"attention.temperature_scale", growth))
	case c.RoPE.Dim != c.HeadDim || every < 1:
		r.fail(fmt.Errorf("key %q in a model with heads of %d elements, of which %d rotate: not supported",
			r.prefix+"attention.temperature_scale", c.HeadDim, c.RoPE.Dim))
	default:
		grown := c.RoPE
		grown.Growth, grown.GrowthEvery, grown.GrowthAhead = growth, every, ahead
		c.queryRoPE = &grown
	}
}
