package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/mapped"
	"github.com/vibrant-ml/vibrant/tensor"
	"github.com/vibrant-ml/vibrant/tensor/safetensors"
)

// peftConfig is adapter_config.json of Hugging Face's PEFT.
type peftConfig struct {
	Type         string         `json:"peft_type"`
	Alpha        *float64       `json:"lora_alpha"`
	RootScaled   bool           `json:"use_rslora"`
	DoRA         bool           `json:"use_dora"`
	QALoRA       bool           `json:"use_qalora"`
	FanInFanOut  bool           `json:"fan_in_fan_out"`
	Bias         string         `json:"bias"`
	AlphaPattern map[string]any `json:"alpha_pattern"`
	Beginning    any            `json:"init_lora_weights"`
	Replication  []any          `json:"layer_replication"`
}

// peftAlpha is lora_alpha where the configuration has none.
const peftAlpha = 8

// changesBase reports whether training began with a change of the model's own weights, which a file of the model does not have.
func (p *peftConfig) changesBase() bool {
	name, _ := p.Beginning.(string)
	return name != "" && !slices.Contains([]string{"gaussian", "eva", "orthogonal"}, name)
}

// peftModules are the matrices of a layer by their names in transformers.
var peftModules = map[string]string{
	"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
	"self_attn.qkv_proj": "attn_qkv", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
	"mlp.gate_up_proj": "ffn_up",
}

var peftLayer = regexp.MustCompile(`^base_model\.model\.model\.layers\.(\d+)\.(.+)$`)

// readPEFTAdapter reads the head of a folder with adapter_config.json and adapter_model.safetensors.
func (c *Config) readPEFTAdapter(folder string) (_ *adapterFile, err error) {
	text, err := mapped.ReadFile(filepath.Join(folder, "adapter_config.json"), 1<<20)
	if err != nil {
		return nil, err
	}
	var p peftConfig
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("%w: adapter_config.json: %.200s", ErrAdapter, err.Error())
	}
	alpha := float64(peftAlpha)
	if p.Alpha != nil {
		alpha = *p.Alpha
	}
	for _, bad := range []struct {
		is   bool
		what string
	}{
		{p.Type != "LORA", fmt.Sprintf("peft_type is %.200q, want LORA", p.Type)}, {p.DoRA, "use_dora is not supported"},
		{p.FanInFanOut, "fan_in_fan_out is not supported"}, {p.Bias != "" && p.Bias != "none", fmt.Sprintf("bias is %.200q, want none", p.Bias)},
		{len(p.AlphaPattern) > 0, "alpha_pattern is not supported"}, {alpha == 0, "lora_alpha is 0"}, {p.QALoRA, "use_qalora is not supported"},
		{len(p.Replication) > 0, "layer_replication is not supported"},
		{p.changesBase(), fmt.Sprintf("init_lora_weights is %.32q, which changes the model's own weights: convert the adapter to LoRA", p.Beginning)},
	} {
		if bad.is {
			return nil, fmt.Errorf("%w: adapter_config.json: %s", ErrAdapter, bad.what)
		}
	}
	file, err := safetensors.Open(filepath.Join(folder, "adapter_model.safetensors"))
	if errors.Is(err, safetensors.ErrInvalid) {
		return nil, fmt.Errorf("%w: %w", ErrAdapter, err)
	}
	if err != nil {
		return nil, err
	}
	a := &adapterFile{alpha: alpha, rootScaled: p.RootScaled, pairs: map[string]*pair{}, close: file.Close}
	for _, t := range file.Tensors() {
		if err := c.readPEFTTensor(a, file, t); err != nil {
			file.Close()
			return nil, fmt.Errorf("adapter_model.safetensors: %w", err)
		}
	}
	return a, nil
}

// readPEFTTensor adds a matrix to those of an adapter.
func (c *Config) readPEFTTensor(a *adapterFile, file *safetensors.File, t safetensors.Info) error {
	module, isA := strings.CutSuffix(t.Name, ".lora_A.weight")
	isB := false
	if !isA {
		module, isB = strings.CutSuffix(t.Name, ".lora_B.weight")
	}
	// PEFT saves the model's own vocabulary matrix beside an adapter of it. Another one would be of a vocabulary that grew.
	if t.Name == "base_model.model.lm_head.base_layer.weight" {
		if !slices.Equal(t.Shape, []int{c.Vocab, c.Hidden}) {
			return fmt.Errorf("%w: tensor %.100q has shape %.100s, and the model's is [%d %d]: the vocabulary was changed", ErrAdapter, t.Name,
				fmt.Sprint(t.Shape), c.Vocab, c.Hidden)
		}
		return nil
	}
	weight := ggufName(module)
	switch {
	case !isA && !isB || weight == "":
		return fmt.Errorf("%w: tensor %.100q is no lora_A or lora_B of a matrix that is known", ErrAdapter, t.Name)
	case !slices.Contains([]string{"F32", "F16", "BF16"}, t.Type) || len(t.Shape) != 2 || t.Shape[0] < 1 || t.Shape[1] < 1 ||
		t.Shape[0] > 1<<24 || t.Shape[1] > 1<<24:
		return fmt.Errorf("%w: tensor %.64q of type %.32s has shape %.100s, want a matrix of F32, F16 or BF16", ErrAdapter, t.Name, t.Type,
			fmt.Sprint(t.Shape))
	}
	half := &matrixHalf{name: shown(t.Name), rows: t.Shape[0], cols: t.Shape[1], half: t.Type == "F16"}
	half.values = func() ([]float32, error) {
		stored, err := file.TensorAs(gpu.CPU(), t.Name, tensor.F32)
		if err != nil {
			return nil, err
		}
		defer stored.Free()
		values := make([]float32, half.rows*half.cols)
		if err = stored.ReadFloat32s(values); err == nil {
			err = file.Intact()
		}
		if isB {
			values = c.permuted(weight, values, half)
		}
		return values, err
	}
	return a.add(weight, half, isA)
}

// ggufName returns the tensor of a module's weight, "" for one that is not known.
func ggufName(module string) string {
	if module == "base_model.model.lm_head" {
		return "output.weight"
	}
	m := peftLayer.FindStringSubmatch(module)
	if m == nil || peftModules[m[2]] == "" {
		return ""
	}
	return "blk." + m[1] + "." + peftModules[m[2]] + ".weight"
}

// permutedArchitectures are those whose converter orders the rows of queries and keys anew.
var permutedArchitectures = []string{"llama", "granite", "smollm3", "mistral3"}

// permuted orders the rows of a B for queries and keys as the converter of these architectures does those of the weights: element
// i and i + half of each head become neighbours, for interleaved rotation.
func (c *Config) permuted(weight string, values []float32, b *matrixHalf) []float32 {
	query, key := strings.HasSuffix(weight, ".attn_q.weight"), strings.HasSuffix(weight, ".attn_k.weight")
	if !slices.Contains(permutedArchitectures, c.Architecture) || !query && !key || b.rows%c.HeadDim != 0 {
		return values
	}
	out := make([]float32, len(values))
	half := c.HeadDim / 2
	for row := range b.rows {
		head, i := row/c.HeadDim, row%c.HeadDim
		to := head*c.HeadDim + i%half*2 + i/half
		copy(out[to*b.cols:(to+1)*b.cols], values[row*b.cols:(row+1)*b.cols])
	}
	return out
}
