// Package environment lists the variables of the environment that Vibrant reads. The table of docs/command.md and the man page are
// made from the list, and a value without meaning is refused by it. A policy test holds the list to the sources.
package environment

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Variable is a row of the list: one variable, or several of one subject.
type Variable struct {
	Names  []string
	About  string   // in Markdown, its links as from docs/
	Values []string // all that have a meaning, for a variable that chooses among few
	List   bool     // several of Values, separated by commas
	wants  string   // what means says of a value, for variables without Values
	means  func(value string) bool
}

// All is the list, in the order of the documents.
var All = []Variable{
	{Names: []string{"VIBRANT_LIBRARY"}, About: "the library of kernels to use, a file ([README](../README.md#builds))"},
	{Names: []string{"VIBRANT_CUDA"}, Values: []string{"library", "ptx"},
		About: "`library` or `ptx`: whose kernels GPUs run ([ptx.md](ptx.md))"},
	{Names: []string{"VIBRANT_CUDA_CAPABILITY"}, About: "`86`: run the compiled kernels of a GPU of 8.6, on a newer one",
		wants: "a compute capability without its point, such as 86", means: func(v string) bool {
			n, err := strconv.Atoi(v)
			return err == nil && n >= 53
		}},
	{Names: []string{"VIBRANT_CPU"}, Values: []string{"go", "c"}, About: "`go` or `c`: the kernels of the CPU, in pure Go or in C"},
	{Names: []string{"VIBRANT_SIMD"}, Values: []string{"plain", "avx2", "avx512", "amx"},
		About: "`plain`, `avx2`, `avx512` or `amx`: the best instructions that C kernels may use"},
	{Names: []string{"VIBRANT_FUSE"}, Values: []string{"on", "off"},
		About: "`on` or `off`, which computes models by plain operations ([models.md](models.md))"},
	{Names: []string{"VIBRANT_TRACE"}, Values: []string{"kernels", "ptx", "start"}, List: true,
		About: "`kernels`, `ptx`, `start`, by commas: lines on stderr about calls, compiled kernels, the start ([profiling.md](profiling.md))"},
	{Names: []string{"VIBRANT_CACHE"}, About: "the folder of kernels that the driver has compiled (`~/.cache/vibrant/ptx`)"},
	{Names: []string{"VIBRANT_MODELS", "OLLAMA_MODELS", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME"}, About: "folders of models"},
	{Names: []string{"HF_ENDPOINT", "HF_TOKEN", "HF_TOKEN_PATH"}, About: "the hub of `pull`, and a token for it or the token's file"},
	{Names: []string{"VIBRANT_PORT", "VIBRANT_RANKS_TOKEN", "VIBRANT_NCCL"},
		About: "of several processes ([distributed.md](distributed.md))"},
	{Names: []string{"XDG_STATE_HOME", "XDG_CACHE_HOME", "TERM"},
		About: "where the history and compiled kernels lie; `dumb` has no line editing"},
	{Names: []string{"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS"},
		About: "the driver's own: the GPUs that there are, and its queues ([profiling.md](profiling.md#start))"},
}

// Check refuses a value without meaning, by its variable's name: of one variable, or of all where none is named. An empty value
// counts as not set. A status of C cannot say which variable it was.
func Check(names ...string) error {
	for _, v := range All {
		for _, name := range v.Names {
			if len(names) > 0 && !slices.Contains(names, name) {
				continue
			}
			if err := v.check(name, os.Getenv(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v Variable) check(name, text string) error {
	values, wants, means := []string{text}, v.wants, v.means
	if v.Values != nil {
		wants = strings.Join(v.Values, ", ")
		means = func(value string) bool { return slices.Contains(v.Values, value) }
	}
	if v.List {
		values = strings.Split(text, ",")
	}
	for _, value := range values {
		if value != "" && means != nil && !means(value) {
			return fmt.Errorf("%s is %.40q: want %s", name, value, wants)
		}
	}
	return nil
}

// Markdown is the table of docs/command.md, with an empty line before and after it.
func Markdown() string {
	var out strings.Builder
	out.WriteString("\n| variable | value |\n|---|---|\n")
	for _, v := range All {
		fmt.Fprintf(&out, "| `%s` | %s |\n", strings.Join(v.Names, "`, `"), v.About)
	}
	return out.String() + "\n"
}
