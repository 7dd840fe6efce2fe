package main

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

// modelFlags choose the model, where it runs and how much it may hold.
type modelFlags struct {
	model          string
	device         string
	context        int
	threads        int
	batch          int
	kvType         string
	memoryFraction float64
	verbose        bool
	preTokenizer   string
	enough         int // tokens that the command will not exceed, where it knows
	hub            string
	lora           []string
	profiling      bool

	ranks     rankFlags
	gpuLayers string
	cpuMoE    bool
	nCPUMoE   string
	override  string
	stream    string
	split     string

	notes []string // about flags of other programs that mean nothing here
}

func (m *modelFlags) add(c *cobra.Command) {
	m.addModel(c)
	f := c.Flags()
	f.StringVar(&m.device, "device", "auto", "auto, cpu, cuda, cuda:N, gpu or metal; auto takes a GPU where one is, cuda insists; cuda:0,cuda:1 divides the model among GPUs")
	f.IntVarP(&m.context, "ctx", "c", 0, "tokens of context (0: the model's own, at most 4096)")
	f.IntVarP(&m.threads, "threads", "t", 0, "CPU threads (0: one a core)")
	f.IntVarP(&m.batch, "batch", "b", 0, "prompt tokens computed at once (0: 2048 on Hopper GPUs, else 512)")
	f.StringVar(&m.kvType, "kv-type", "auto", "type of the key-value cache: f16, f32, bf16, q8_0 (about half the memory of f16), or auto (f32 for models in F32 and BitNet's, else f16)")
	f.Float64Var(&m.memoryFraction, "memory-fraction", 0, "part of the device's memory that may be used (0: 0.8)")
	f.StringVar(&m.gpuLayers, "gpu-layers", "", "layers on the GPU (-ngl): a number, auto for as many as fit, or all; the CPU has the others, 0 means --device cpu (default: all, or an error)")
	f.BoolVar(&m.cpuMoE, "cpu-moe", false, "keep the experts of all layers in RAM, computed by the CPU; the rest stays on the GPU (-cmoe)")
	f.StringVar(&m.nCPUMoE, "n-cpu-moe", "", "keep the experts of the first N layers in RAM (-ncmoe)")
	f.StringVar(&m.override, "override-tensor", "", "PATTERN=CPU where the pattern is of experts, such as exps=CPU: what --cpu-moe or --n-cpu-moe says (-ot)")
	f.StringVar(&m.stream, "stream-prompts", "auto", "bring weights in RAM to the GPU for prompts: auto (long ones, where that can be), off, or from how many tokens of a pass on")
	f.StringVar(&m.split, "split", "tensor", "how several GPUs share a model: tensor (a part of every layer each) or layer (whole layers each)")
	f.BoolVarP(&m.verbose, "verbose", "v", false, "report device, memory and speed on stderr")
	f.StringArrayVar(&m.lora, "lora", nil, "low-rank adapter, FILE[:SCALE]: a GGUF file or a folder of PEFT (may be repeated)")
	complete(c, "device", func() []string {
		names := []string{"auto", "cpu", "cuda"}
		devices, _ := vibrant.Devices()
		for _, d := range devices {
			names = append(names, d.ID)
		}
		return names
	})
	complete(c, "gpu-layers", func() []string { return []string{"auto", "all"} })
	complete(c, "stream-prompts", func() []string { return []string{"auto", "off"} })
	complete(c, "split", func() []string { return []string{"tensor", "layer"} })
	complete(c, "kv-type", func() []string { return []string{"auto", "f16", "f32", "bf16", "q8_0"} })
}

// complete has shells complete the values of a flag.
func complete(c *cobra.Command, flag string, values func() []string) {
	c.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values(), cobra.ShellCompDirectiveNoFileComp
	})
}

// modelPath is the value of --model, which an empty variable of a script must not turn into the embedded model.
type modelPath string

func (p *modelPath) Set(path string) error {
	if path == "" {
		return errors.New("the path is empty")
	}
	*p = modelPath(path)
	return nil
}
func (p *modelPath) String() string { return string(*p) }
func (p *modelPath) Type() string   { return "FILE" }

// modelArgument takes a model file as the only argument, where a command knows it so.
func (m *modelFlags) modelArgument(args []string) error {
	if len(args) == 0 {
		return nil
	}
	if args[0] == "" {
		return usagef("the path of the model is empty")
	}
	if m.model != "" && m.model != args[0] {
		return usagef("two models: -m %s and %s", m.model, args[0])
	}
	path, err := vibrant.FindModel(args[0])
	m.model = path
	return err
}

func (m *modelFlags) addModel(c *cobra.Command) {
	c.Flags().VarP((*modelPath)(&m.model), "model", "m", "GGUF file, or the name of one that vibrant list shows (default: the embedded model)")
	c.MarkFlagFilename("model", "gguf")
	c.Flags().StringVar(&m.hub, "hf-repo", "", "model of Hugging Face, OWNER/REPO[:QUANT], that is brought where it is not here yet (-hf)")
	c.PreRunE = func(cmd *cobra.Command, _ []string) error { return m.locate(cmd) }
	c.Flags().StringVar(&m.preTokenizer, "force-pretokenizer", "", "cut text by this rule, such as qwen2, whatever the file names")
}

// locate brings the model of --hf-repo, and finds one that was named.
func (m *modelFlags) locate(cmd *cobra.Command) (err error) {
	switch {
	case m.hub != "" && m.model != "":
		return usagef("two models: -m %s and -hf %s", m.model, m.hub)
	case m.hub != "":
		m.model, err = m.pullOrFind(cmd)
	case m.model != "":
		m.model, err = vibrant.FindModel(m.model)
	}
	return err
}

// pullOrFind brings the model of --hf-repo. Where the hub cannot be reached, a model of this name that is here already does.
func (m *modelFlags) pullOrFind(cmd *cobra.Command) (string, error) {
	path, err := pull(cmd, m.hub)
	if unreachable := (*url.Error)(nil); !errors.As(err, &unreachable) || cmd.Context().Err() != nil {
		return path, err
	}
	path, missing := vibrant.FindModel(strings.TrimPrefix(m.hub, "hf:"))
	if missing != nil {
		return "", err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "vibrant: warning: %s: using %s\n", errorLine(err), oneLine(path))
	return path, nil
}

// options translates the flags; mistakes are usage errors.
func (m *modelFlags) options() ([]vibrant.Option, error) {
	kv, err := vibrant.ParseKVType(m.kvType)
	if err != nil {
		return nil, usageError{err}
	}
	for _, v := range []struct {
		flag  string
		value int
	}{{"ctx", m.context}, {"threads", m.threads}, {"batch", m.batch}} {
		if v.value < 0 {
			return nil, usagef("--%s is %d, want 0 or more", v.flag, v.value)
		}
	}
	if !(m.memoryFraction >= 0 && m.memoryFraction <= 1) {
		return nil, usagef("--memory-fraction is %v, want 0 to 1", m.memoryFraction)
	}
	placing, err := m.placing()
	if err != nil {
		return nil, err
	}
	options := append(placing, vibrant.WithContext(m.context), vibrant.WithThreads(m.threads),
		vibrant.WithPrefillChunk(m.batch), vibrant.WithKVType(kv), vibrant.WithMemoryFraction(m.memoryFraction),
		vibrant.WithPreTokenizer(m.preTokenizer), vibrant.WithEnoughContext(m.enough))
	if m.ranks.config != nil {
		options = append(options, vibrant.WithRanks(m.ranks.config))
	}
	if m.profiling {
		options = append(options, vibrant.WithProfiling())
	}
	for _, text := range m.lora {
		path, scale, err := parseAdapter(text)
		if err != nil {
			return nil, err
		}
		options = append(options, vibrant.WithAdapter(path, scale))
	}
	return options, nil
}

// placing says where the model is.
func (m *modelFlags) placing() ([]vibrant.Option, error) {
	options, layers := []vibrant.Option{vibrant.WithDevice(m.device)}, 0
	if m.gpuLayers != "" {
		var err error
		if layers, err = vibrant.ParseGPULayers(m.gpuLayers); err != nil {
			return nil, usagef("--gpu-layers: %v", err)
		}
		options = append(options, vibrant.WithGPULayers(layers))
	}
	experts, flag, err := m.expertsInRAM()
	if err != nil {
		return nil, err
	}
	streamed, notANumber := strconv.Atoi(m.stream)
	switch {
	case !slices.Contains([]string{"", "off", "auto"}, m.stream) && (notANumber != nil || streamed < 1):
		return nil, usagef("--stream-prompts is %q, want off, auto or a number of tokens", m.stream)
	case !slices.Contains([]string{"", "tensor", "row", "layer", "none"}, m.split): // two words of llama.cpp, whose rows are our tensors
		return nil, usagef("--split is %q, want tensor or layer", m.split)
	case m.split == "none" && strings.Contains(m.device, ","):
		return nil, usagef("--split none and --device %s: choose one", m.device)
	case m.gpuLayers != "" && layers == 0 && m.device != "cpu" && m.device != "auto":
		return nil, usagef("--gpu-layers %s and --device %s: choose one", m.gpuLayers, m.device)
	case flag != "" && m.gpuLayers != "" && layers == 0:
		return nil, usagef("%s and --gpu-layers 0: choose one", flag)
	case m.gpuLayers != "" && layers == 0:
		return []vibrant.Option{vibrant.WithDevice("cpu")}, nil
	}
	if m.split == "layer" {
		options = append(options, vibrant.WithLayerSplit())
	}
	if experts > 0 {
		options = append(options, vibrant.WithCPUExperts(experts))
	}
	switch {
	case m.stream == "" || m.stream == "off":
	case m.stream == "auto":
		if flag != "" || m.gpuLayers != "" {
			options = append(options, vibrant.WithStreamedPrompts(vibrant.StreamWherePossible))
		}
	case flag == "" && m.gpuLayers == "":
		return nil, usagef("--stream-prompts %s, and no part of the model in RAM (--gpu-layers, --cpu-moe)", m.stream)
	default:
		options = append(options, vibrant.WithStreamedPrompts(streamed))
	}
	if m.gpuLayers != "" {
		flag = "--gpu-layers " + m.gpuLayers
	}
	if why := m.onlyCPU(); flag != "" && why != "" {
		m.notes = append(m.notes, fmt.Sprintf("%s: the CPU has all layers, %s", flag, why))
		return []vibrant.Option{vibrant.WithDevice("cpu")}, nil
	}
	return options, nil
}

// onlyCPU says why the model can be on the CPU alone, "" where it can be elsewhere or a device was insisted on.
func (m *modelFlags) onlyCPU() string {
	switch m.device {
	case "cpu":
		return "as --device cpu says"
	case "auto":
		if err := vibrant.NoGPU(); err != nil {
			return "as there is no GPU: " + errorLine(err)
		}
	}
	return ""
}

// expertsInRAM returns of how many layers the experts are in RAM, 0 for none, and which flag says so.
func (m *modelFlags) expertsInRAM() (layers int, flag string, err error) {
	var given []string
	if m.cpuMoE {
		given, layers = append(given, "--cpu-moe"), vibrant.AllLayers
	}
	if m.nCPUMoE != "" {
		given = append(given, "--n-cpu-moe "+m.nCPUMoE)
		if layers, err = strconv.Atoi(m.nCPUMoE); err != nil || layers < 0 {
			return 0, "", usagef("--n-cpu-moe is %q, want a number of layers", m.nCPUMoE)
		}
	}
	if m.override != "" {
		given = append(given, "--override-tensor "+m.override)
		if layers, err = overriddenLayers(m.override); err != nil {
			return 0, "", err
		}
	}
	switch {
	case len(given) > 1:
		return 0, "", usagef("%s: choose one", strings.Join(given, " and "))
	case layers == 0:
		return 0, "", nil // --n-cpu-moe 0
	}
	return layers, given[0], nil
}

// inputs returns the paths of the model and its adapters.
func (m *modelFlags) inputs() []string {
	paths := []string{m.model}
	for _, text := range m.lora {
		if path, _, err := parseAdapter(text); err == nil { // else opening the model says so
			paths = append(paths, path)
		}
	}
	return paths
}

// parseAdapter reads FILE[:SCALE]. What follows the last colon is a scale if it is a number.
func parseAdapter(text string) (path string, scale float32, err error) {
	if text == "" {
		return "", 0, usagef("--lora: the path is empty")
	}
	if i := strings.LastIndexByte(text, ':'); i > 0 {
		if x, err := strconv.ParseFloat(text[i+1:], 32); err == nil {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return "", 0, usagef("--lora %s: the scale is no number", text)
			}
			return text[:i], float32(x), nil
		}
	}
	return text, 1, nil
}

// printNotes says what the flags given mean here.
func (m *modelFlags) printNotes(cmd *cobra.Command) {
	for _, note := range m.notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "vibrant: note: %s\n", note)
	}
}

// printStreamNote says why --stream-prompts auto streams no prompts, where a part of the model is in RAM.
func printStreamNote(cmd *cobra.Command, why string) {
	if why != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "vibrant: note: --stream-prompts auto: prompts are computed where the weights are: %s\n", why)
	}
}

// connections is the variable by which NVIDIA's driver is told how many queues a context has for launches.
const connections = "CUDA_DEVICE_MAX_CONNECTIONS"

// shortenStart has the GPU's context made with one queue in place of eight, which halves the driver's time for it. A command
// launches from one stream at a time, and copies have queues of their own. Ranks that share a GPU would wait for each other.
func (m *modelFlags) shortenStart() {
	if _, chosen := os.LookupEnv(connections); !chosen && m.ranks.config == nil && !strings.Contains(m.device, ",") {
		os.Setenv(connections, "1")
	}
}

// open loads the model, with progress where stderr is a terminal.
func (m *modelFlags) open(cmd *cobra.Command) (*vibrant.Model, error) {
	options, err := m.options()
	if err != nil {
		return nil, err
	}
	m.shortenStart()
	m.printNotes(cmd)
	progress := newProgress(cmd.ErrOrStderr())
	defer progress.done()
	m.ranks.met = true
	model, err := vibrant.Open(cmd.Context(), m.model, append(options, vibrant.WithProgress(progress.loading))...)
	if err != nil {
		return nil, err
	}
	progress.done()
	printStreamNote(cmd, model.Info().StreamNote)
	if tokenizer, err := model.Tokenizer(); err == nil {
		for _, w := range tokenizer.Warnings() {
			fmt.Fprintf(cmd.ErrOrStderr(), "vibrant: warning: %s\n", oneLine(w))
		}
	}
	warnOfContext(cmd, model.Info().Context, model.Info().TrainedContext)
	if m.verbose {
		info := model.Info()
		e := cmd.ErrOrStderr()
		fmt.Fprintf(e, "device: %s (%s, %s)\n", info.Device.ID, info.Device.Name, info.Device.Features)
		if info.DeviceNote != "" {
			fmt.Fprintf(e, "device: %s\n", info.DeviceNote)
		}
		fmt.Fprintf(e, "model: %s, %s, %s parameters, context %d of %d\n", oneLine(info.Name), oneLine(info.Architecture), quantity(float64(info.Parameters)), info.Context, info.TrainedContext)
		if info.Taken > 0 { // copied to a GPU
			fmt.Fprintf(e, "loaded: %s in %.2f s, %sB/s\n", byteSize(info.Memory.Weights), info.LoadTime.Seconds(), quantity(float64(info.Memory.Weights)/info.LoadTime.Seconds()))
		} else {
			fmt.Fprintf(e, "loaded: %s in %.2f s, of a file that is mapped and read as it is used\n", byteSize(info.Memory.Weights), info.LoadTime.Seconds())
		}
	}
	return model, nil
}

// warnOfContext says that a context is longer than what a model was trained on.
func warnOfContext(cmd *cobra.Command, context, trained int) {
	if trained > 0 && context > trained {
		fmt.Fprintf(cmd.ErrOrStderr(), "vibrant: warning: a context of %d tokens, but the model was trained on %d: it may answer nonsense beyond\n", context, trained)
	}
}

// reportStats prints what a session used, for --verbose.
func reportStats(cmd *cobra.Command, model *vibrant.Model, s *vibrant.Session) {
	st, info := s.Stats(), model.Info()
	mem := info.Memory
	e := cmd.ErrOrStderr()
	fmt.Fprintf(e, "prefill: %d tokens (%d reused), %.1f tok/s\n", st.PrefillTokens, st.ReusedTokens, st.PrefillRate())
	fmt.Fprintf(e, "decode: %d tokens, %.1f tok/s\n", st.DecodeTokens, st.DecodeRate())
	if info.Taken > 0 {
		fmt.Fprintf(e, "taken: %.3f GB of %s, %.3f GB were predicted\n", float64(info.Taken)/1e9, info.Device.ID, float64(mem.Total())/1e9)
	}
	fmt.Fprintf(e, "memory: weights %s, cache %s, workspace %s\n", byteSize(mem.Weights), byteSize(st.Memory.Cache), byteSize(st.Memory.Workspace))
}

// generationFlags say how tokens are chosen and when to stop.
type generationFlags struct {
	g    vibrant.Generation
	seed string
}

func (g *generationFlags) add(c *cobra.Command) {
	g.g = vibrant.DefaultGeneration()
	f := c.Flags()
	f.IntVarP(&g.g.MaxTokens, "predict", "n", g.g.MaxTokens, "most tokens to generate (0: none; -1: until the model stops or the context is full)")
	f.StringVarP(&g.seed, "seed", "s", "", "seed of the sampler (default: a random one)")
	f.Float64Var(&g.g.Temperature, "temp", g.g.Temperature, "temperature; 0 takes the likeliest token")
	f.IntVar(&g.g.TopK, "top-k", g.g.TopK, "sample among the K likeliest tokens (0: all)")
	f.Float64Var(&g.g.TopP, "top-p", g.g.TopP, "sample among the likeliest tokens that reach this probability together (1: all)")
	f.Float64Var(&g.g.MinP, "min-p", g.g.MinP, "sample among tokens at least this likely, relative to the likeliest (0: all)")
	f.Float64Var(&g.g.RepeatPenalty, "repeat-penalty", g.g.RepeatPenalty, "penalty on tokens of the last --repeat-last-n (1: none)")
	f.IntVar(&g.g.RepeatLastN, "repeat-last-n", g.g.RepeatLastN, "tokens that penalties look back on")
	f.Float64Var(&g.g.PresencePenalty, "presence-penalty", 0, "penalty on tokens that were used (0: none)")
	f.Float64Var(&g.g.FrequencyPenalty, "frequency-penalty", 0, "penalty on tokens by how often they were used (0: none)")
	f.BoolVar(&g.g.IgnoreEOS, "ignore-eos", false, "never generate the model's end-of-text tokens")
	f.StringArrayVar(&g.g.Stop, "stop", nil, "stop before this text (may be repeated)")
}

// parseSeed reads a seed; -1 is how llama.cpp and Ollama ask for a random one.
func parseSeed(text string) (*uint64, error) {
	if text == "-1" {
		return nil, nil
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	return &seed, err
}

// tokenLimit takes -2 as llama.cpp and Ollama do: until the context is full, where an answer ends here with -1 too.
func tokenLimit(n int) int {
	if n == -2 {
		return -1
	}
	return n
}

// generation checks the flags.
func (g *generationFlags) generation() (vibrant.Generation, error) {
	if g.seed != "" {
		var err error
		if g.g.Seed, err = parseSeed(g.seed); err != nil {
			return g.g, usagef("--seed is %q, want a number of 0 or more", g.seed)
		}
	}
	g.g.MaxTokens = tokenLimit(g.g.MaxTokens)
	if err := g.g.Validate(); err != nil {
		return g.g, usageError{err}
	}
	return g.g, nil
}

// oneOf checks that exactly one of several flags was given.
func oneOf(cmd *cobra.Command, names ...string) error {
	given := 0
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			given++
		}
	}
	if given != 1 {
		return usagef("want one of --%s, not %d of them", strings.Join(names, ", --"), given)
	}
	return nil
}

// parseIDs reads a list of token ids as --ids takes it.
func parseIDs(list string) ([]int32, error) {
	if strings.TrimSpace(list) == "" {
		return nil, usagef("--ids is empty")
	}
	var ids []int32
	for _, field := range strings.Split(list, ",") {
		id, err := strconv.ParseInt(strings.TrimSpace(field), 10, 32)
		if err != nil || id < 0 {
			return nil, usagef("--ids: %q is no token id", strings.TrimSpace(field))
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}

// completeModels has shells complete the argument of a command to a model file.
func completeModels(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"gguf"}, cobra.ShellCompDirectiveFilterFileExt
}
