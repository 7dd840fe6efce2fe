package vibrant

import (
	"context"
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/hub"
)

var (
	// ErrModelNotFound is wrapped where neither a file nor a model has a name, here or at a hub.
	ErrModelNotFound = hub.ErrNotFound
	// ErrModelReference is wrapped where a text names no model of a hub.
	ErrModelReference = hub.ErrReference
	// ErrModelAmbiguous is wrapped where several models have a name; the text lists them.
	ErrModelAmbiguous = hub.ErrAmbiguous
	// ErrAccessDenied is wrapped where a hub wants a token.
	ErrAccessDenied = hub.ErrDenied
	// ErrNotAModel is wrapped for what holds no model that can be run: folders of other formats, adapters, vocabularies.
	ErrNotAModel = hub.ErrNotGGUF
)

// FindModel returns the path of a model's file: of an existing file as it is, else of the model that a program on this
// machine keeps by this name. "llama3.2:1b" is one of Ollama; "OWNER/REPO" and "OWNER/REPO:Q4_K_M" are of
// Hugging Face's cache, LM Studio and the folder of Pull; so are names of files.
//
// Likely errors: ErrModelNotFound, ErrModelAmbiguous, ErrNotAModel.
func FindModel(name string) (string, error) { return hub.Find(name) }

// Pull brings a model from a Hugging Face endpoint (HF_ENDPOINT, HF_TOKEN) into the folder VIBRANT_MODELS, by default
// vibrant/models in the user's cache folder, and returns its path. ref is "hf:OWNER/REPO" or "hf:OWNER/REPO:QUANT"; without
// a quantization Q4_K_M is taken where there is one. progress, which may be nil, is called often with the bytes of a file.
// After an error, or the end of ctx, the next Pull goes on where this one ended. What came is checked by its SHA-256.
//
// Likely errors: ErrModelReference, ErrModelNotFound, ErrModelAmbiguous, ErrAccessDenied, those of the network and the disk, that of ctx.
func Pull(ctx context.Context, ref string, progress func(file string, done, total int64)) (string, error) {
	return hub.Pull(ctx, ref, hub.PullOptions{Progress: progress})
}

// LocalModel is a model on this machine.
type LocalModel struct {
	Name         string `json:"name"` // for FindModel
	Path         string `json:"path"`
	Source       string `json:"source"` // whose folder it is in: "vibrant", "huggingface", "ollama" or "lmstudio"
	Bytes        int64  `json:"bytes"`
	Architecture string `json:"architecture,omitempty"`
	Quantization string `json:"quantization,omitempty"` // the mixture that the file names, else the type of most bytes of its tensors
	Fits         bool   `json:"fits"`
	Problem      string `json:"problem,omitempty"` // why it cannot be run, or not be read
}

// LocalModels lists the models that FindModel knows by name, and whether they fit a device as Open would use it with these
// options. No weights are read.
func LocalModels(options ...Option) ([]LocalModel, error) {
	c, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	devices, _, err := c.open()
	if err != nil {
		return nil, err
	}
	defer closeDevices(devices)
	var all []LocalModel
	for _, m := range hub.List() {
		local := LocalModel{Name: m.Name, Path: m.Path, Source: m.Source, Bytes: m.Size}
		if err := local.describe(devices, c); err != nil {
			local.Problem = err.Error()
		}
		all = append(all, local)
	}
	return all, nil
}

// The values of general.file_type that stand for a mixture of types: in small models most bytes are of another type.
var mixtures = map[uint64]string{
	10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K",
	19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
	29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 38: "MXFP4",
}

func (m *LocalModel) describe(devices []*gpu.Device, c config) error {
	f, err := gguf.Open(m.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	if m.Architecture, err = f.StringOr("general.architecture", ""); err != nil {
		return err
	}
	bytes := map[gguf.Type]int64{}
	most := int64(0)
	for _, t := range f.Tensors() {
		if bytes[t.Type] += int64(t.Bytes); bytes[t.Type] > most {
			most, m.Quantization = bytes[t.Type], t.Type.String()
		}
	}
	kind, err := f.UintOr("general.file_type", 0)
	if err != nil {
		return err
	}
	if name, ok := mixtures[kind]; ok {
		m.Quantization = name
	}
	fit, err := predict(f, placement{devices: devices}, c)
	if err != nil {
		return err
	}
	m.Fits = fit.Fits
	return nil
}

// isModel returns what a file is that holds no weights of a model.
func isModel(f *gguf.File) error {
	kind, err := f.StringOr("general.type", "model")
	if err != nil {
		return err
	}
	arch, err := f.StringOr("general.architecture", "")
	switch {
	case err != nil:
		return err
	case kind == "adapter":
		return fmt.Errorf("%w: it is an adapter (LoRA), which changes a model and is none: name the model that it was made for", ErrNotAModel)
	case kind == "mmproj" || arch == "clip": // files before 2025 have no type
		return fmt.Errorf("%w: it is the image part of a model: name the file of the language part", ErrNotAModel)
	case kind == "imatrix" || arch == "imatrix":
		return fmt.Errorf("%w: it is an importance matrix, which quantizing a model reads: name the model's file", ErrNotAModel)
	case arch == "controlvector":
		return fmt.Errorf("%w: it is a control vector, which changes a model and is none: name the model that it was made for", ErrNotAModel)
	case len(f.Tensors()) == 0:
		return fmt.Errorf("%w: it holds a vocabulary and no weights: only tokenize, render and inspect can use it", ErrNotAModel)
	}
	return nil
}
