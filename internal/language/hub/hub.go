// Package hub finds model files by name in the folders where programs keep them, and brings them from a Hugging Face
// endpoint.
//
// A name is what the program that keeps a file calls it: "llama3.2:1b" of Ollama, "OWNER/REPO" or "OWNER/REPO:Q4_K_M" of
// Hugging Face's cache, LM Studio and Vibrant's own folder, or a file's name, with or without .gguf.
package hub

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/vibrant-ml/vibrant/internal/mapped"
)

var (
	// ErrNotFound is wrapped where no file has the name.
	ErrNotFound = errors.New("no such model")
	// ErrAmbiguous is wrapped where several files have the name.
	ErrAmbiguous = errors.New("several models have this name")
	// ErrNotGGUF is wrapped where a name or a file is that of something else than a model in GGUF.
	ErrNotGGUF = errors.New("not a model file")
)

// Model is a model file on this machine.
type Model struct {
	Name   string // under which Find finds it
	Path   string // of a split file the first part
	Source string // whose folder it is in: "vibrant", "huggingface", "ollama" or "lmstudio"
	Size   int64  // bytes of all parts
}

// Dir returns Vibrant's own folder of models: VIBRANT_MODELS, or vibrant/models in the user's cache folder.
func Dir() (string, error) {
	if dir := os.Getenv("VIBRANT_MODELS"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for models: %w (set VIBRANT_MODELS)", err)
	}
	return filepath.Join(dir, "vibrant", "models"), nil
}

// List returns the models in all known folders, by name. A folder or file that cannot be read is passed over.
func List() []Model {
	var all []Model
	if dir, err := Dir(); err == nil {
		all = append(all, repositories("vibrant", dir)...)
	}
	all = append(all, huggingFace()...)
	home, err := os.UserHomeDir()
	if err == nil {
		for _, dir := range []string{filepath.Join(home, ".lmstudio", "models"), filepath.Join(home, ".cache", "lm-studio", "models")} {
			all = append(all, repositories("lmstudio", dir)...)
		}
	}
	if dir := os.Getenv("OLLAMA_MODELS"); dir != "" {
		all = append(all, ollama(dir)...)
	} else {
		if err == nil {
			all = append(all, ollama(filepath.Join(home, ".ollama", "models"))...)
		}
		all = append(all, ollama("/usr/share/ollama/.ollama/models")...)
	}
	slices.SortFunc(all, func(a, b Model) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path)) })
	return all
}

// Find returns the path of a model: a path of an existing file as it is, else that of the model with this name, which may
// be a reference that Pull takes, or lack its owner. Of a repository with several files Q4_K_M is taken where it is there.
//
// Likely errors: ErrNotFound, ErrAmbiguous with the names to choose from, ErrNotGGUF.
func Find(name string) (string, error) {
	switch info, err := os.Stat(name); {
	case err == nil && info.IsDir():
		return "", describeFolder(name)
	case err == nil:
		return name, nil
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid):
		return "", err
	}
	return choose(name, List())
}

func choose(name string, all []Model) (string, error) {
	wanted := strings.TrimPrefix(name, "hf:")
	found := named(wanted, all)
	if found == nil { // nothing has the name itself
		for _, m := range all {
			short := m
			if short.Name = m.Name[strings.LastIndex(m.Name, "/")+1:]; short.has(wanted) {
				found = append(found, m)
			}
		}
	}
	usual := func(m Model) bool { return quantOf(m.Path) == "Q4_K_M" }
	if slices.ContainsFunc(found, usual) {
		found = slices.DeleteFunc(found, func(m Model) bool { return !usual(m) })
	}
	// The same model may be in several folders; other files of its repository may share its name.
	differs := func(m Model) bool {
		if m.Source == "ollama" || found[0].Source == "ollama" { // whose files are named after their content
			return m.Name != found[0].Name
		}
		return m.Name != found[0].Name || !strings.EqualFold(filepath.Base(m.Path), filepath.Base(found[0].Path))
	}
	switch {
	case len(found) == 0:
		if repo, _, ok := strings.Cut(wanted, ":"); ok {
			if others := named(repo, all); others != nil {
				return "", fmt.Errorf("%w: %.200q is not there, but %s", ErrNotFound, name, namesOf(others))
			}
		}
		return "", fmt.Errorf("%w: %.200q is neither a file nor a model in the folders of Vibrant, Hugging Face, Ollama or LM Studio "+
			"(vibrant list shows them, vibrant pull brings one)", ErrNotFound, name)
	case slices.ContainsFunc(found, differs):
		return "", fmt.Errorf("%w: %.200q could be %s", ErrAmbiguous, name, namesOf(found))
	}
	return found[0].Path, nil
}

// named returns the models that a user may mean by a name.
func named(name string, all []Model) (found []Model) {
	for _, m := range all {
		if m.has(name) {
			found = append(found, m)
		}
	}
	return found
}

// namesOf lists models by name, or by file where they share a name.
func namesOf(found []Model) string {
	oneName := !slices.ContainsFunc(found, func(m Model) bool { return m.Name != found[0].Name })
	var names []string
	for _, m := range found[:min(len(found), 5)] {
		if oneName && len(found) > 1 {
			m.Name = filepath.Base(m.Path)
		}
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// has reports whether a user may mean the model by this name.
func (m Model) has(name string) bool {
	file := filepath.Base(m.Path)
	base := splitSuffix.ReplaceAllString(strings.TrimSuffix(file, ".gguf"), "")
	names := []string{m.Name, strings.TrimSuffix(m.Name, ":latest"), file, strings.TrimSuffix(file, ".gguf"), base}
	if m.Source != "ollama" {
		repo, _, _ := strings.Cut(m.Name, ":")
		names = append(names, repo)
	}
	return slices.ContainsFunc(names, func(s string) bool { return strings.EqualFold(s, name) })
}

// splitSuffix is what the name of a part of a split file ends with.
var splitSuffix = regexp.MustCompile(`-(\d{5})-of-(\d{5})$`)

// isModelFile reports whether a file's name is that of a model or of a part of one: not of an image projector or of an
// importance matrix, which repositories keep beside models.
func isModelFile(name string) bool {
	base, ok := strings.CutSuffix(strings.ToLower(name), ".gguf")
	return ok && !strings.Contains(base, "mmproj") && !strings.Contains(base, "imatrix")
}

// isFirstPart reports whether a file's name is that of a model, of a split one the first part.
func isFirstPart(name string) bool {
	part := splitSuffix.FindStringSubmatch(strings.TrimSuffix(strings.ToLower(name), ".gguf"))
	return isModelFile(name) && (part == nil || part[1] == "00001")
}

// quantPattern finds the quantization in a file's name, the last one.
var quantPattern = regexp.MustCompile(`(?i)(?:^|[-._])((?:UD-)?(?:I?Q\d[A-Z0-9_]*|TQ\d_\d|MXFP4[A-Z0-9_]*|NVFP4|BF16|F16|F32|FP16|FP32))(?:[-.]|$)`)

// quantOf returns the quantization that a file's name says, such as Q4_K_M, or "".
func quantOf(path string) string {
	all := quantPattern.FindAllStringSubmatch(strings.TrimSuffix(filepath.Base(path), ".gguf"), -1)
	if all == nil {
		return ""
	}
	return strings.ToUpper(all[len(all)-1][1])
}

// repositories lists a folder of OWNER/REPO/.../FILE.gguf.
func repositories(source, dir string) (all []Model) {
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !isFirstPart(e.Name()) {
			return nil
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return nil
		}
		parts := strings.Split(filepath.ToSlash(relative), "/")
		name := strings.TrimSuffix(e.Name(), ".gguf")
		if len(parts) > 2 {
			name = repositoryName(parts[0]+"/"+parts[1], e.Name())
		}
		return appendModel(&all, Model{Name: name, Path: path, Source: source})
	})
	return all
}

func repositoryName(repo, file string) string {
	if q := quantOf(file); q != "" {
		return repo + ":" + q
	}
	return repo + ":" + strings.TrimSuffix(file, ".gguf")
}

// appendModel adds a model with its size, if it can be read.
func appendModel(all *[]Model, m Model) error {
	parts := []string{m.Path}
	if i := strings.LastIndex(strings.ToLower(m.Path), "-00001-of-"); i >= 0 {
		if found, err := filepath.Glob(globQuote(m.Path[:i]) + "-?????" + globQuote(m.Path[i+len("-00001"):])); err == nil && found != nil {
			parts = found
		}
	}
	for _, p := range parts {
		info, err := os.Stat(p) // follows links, which Hugging Face's cache is made of
		if err != nil || !info.Mode().IsRegular() {
			return nil
		}
		m.Size += info.Size()
	}
	*all = append(*all, m)
	return nil
}

func globQuote(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// huggingFace lists the hub's cache (https://huggingface.co/docs/huggingface_hub/guides/manage-cache), of each repository
// the snapshot that main is, or the only one where nobody asked for main.
func huggingFace() (all []Model) {
	dir := firstOf(os.Getenv("HF_HUB_CACHE"), os.Getenv("HUGGINGFACE_HUB_CACHE"))
	if dir == "" {
		if dir = huggingFaceHome(); dir == "" {
			return nil
		}
		dir = filepath.Join(dir, "hub")
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		repo, ok := strings.CutPrefix(e.Name(), "models--")
		if !ok {
			continue
		}
		repo = strings.Replace(repo, "--", "/", 1)
		revision, err := mapped.ReadFile(filepath.Join(dir, e.Name(), "refs", "main"), 4096)
		rev := strings.TrimSpace(string(revision))
		if errors.Is(err, fs.ErrNotExist) {
			if only, _ := os.ReadDir(filepath.Join(dir, e.Name(), "snapshots")); len(only) == 1 {
				rev, err = only[0].Name(), nil
			}
		}
		if err != nil || !filepath.IsLocal(rev) {
			continue
		}
		snapshot := filepath.Join(dir, e.Name(), "snapshots", rev)
		filepath.WalkDir(snapshot, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !isFirstPart(e.Name()) {
				return nil
			}
			return appendModel(&all, Model{Name: repositoryName(repo, e.Name()), Path: path, Source: "huggingface"})
		})
	}
	return all
}

// huggingFaceHome returns the folder of Hugging Face's programs, or "".
func huggingFaceHome() string {
	if dir := os.Getenv("HF_HOME"); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "huggingface")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".cache", "huggingface")
}

// ollama lists a folder of manifests, which name the blob of the model.
func ollama(dir string) (all []Model) {
	manifests := filepath.Join(dir, "manifests")
	filepath.WalkDir(manifests, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		relative, err := filepath.Rel(manifests, path)
		if err != nil {
			return nil
		}
		parts := strings.Split(filepath.ToSlash(relative), "/") // REGISTRY/OWNER/NAME/TAG
		if len(parts) != 4 {
			return nil
		}
		data, err := mapped.ReadFile(path, 1<<20)
		if err != nil {
			return nil
		}
		var m struct {
			Layers []struct{ MediaType, Digest string }
		}
		if json.Unmarshal(data, &m) != nil {
			return nil
		}
		for _, l := range m.Layers {
			digest := strings.Replace(l.Digest, ":", "-", 1)
			if l.MediaType != "application/vnd.ollama.image.model" || !filepath.IsLocal(digest) {
				continue
			}
			name := strings.TrimPrefix(strings.TrimPrefix(strings.Join(parts[:3], "/"), "registry.ollama.ai/"), "library/")
			appendModel(&all, Model{Name: name + ":" + parts[3], Path: filepath.Join(dir, "blobs", digest), Source: "ollama"})
			break
		}
		return nil
	})
	return all
}

// describeFolder says what a folder is that is not a model, and what to do.
func describeFolder(dir string) error {
	has := func(pattern string) bool {
		found, _ := filepath.Glob(filepath.Join(globQuote(dir), pattern))
		return len(found) > 0
	}
	switch {
	case has("adapter_model.*") || has("adapter_config.json"):
		return fmt.Errorf("%w: %.200s is a folder with an adapter (LoRA), which changes a model and is none: name the model that it was made for", ErrNotGGUF, dir)
	case has("*.safetensors") || has("pytorch_model*.bin"):
		return fmt.Errorf("%w: %.200s is a folder of weights for Python's transformers (safetensors): take the model's GGUF file, or make one "+
			"with llama.cpp's convert_hf_to_gguf.py", ErrNotGGUF, dir)
	case has("*.gguf"):
		return fmt.Errorf("%w: %.200s is a folder: name one of the GGUF files in it", ErrNotGGUF, dir)
	}
	return fmt.Errorf("%w: %.200s is a folder", ErrNotGGUF, dir)
}
