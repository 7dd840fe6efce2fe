package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vibrant-ml/vibrant"
)

// What users of llama.cpp and Ollama type. Names of flags that are here under another name are translated; flags that mean
// nothing here are accepted with a note; words with one dash are never read as a row of letters.

// foreignNames maps long names of other programs to ours.
var foreignNames = map[string]string{
	"ctx-size": "ctx", "num-ctx": "ctx", "context": "ctx", "n-ctx": "ctx",
	"n-predict": "predict", "num-predict": "predict", "max-tokens": "predict",
	"temperature": "temp",
	"batch-size":  "batch", "ubatch-size": "batch", "num-batch": "batch",
	"num-thread": "threads",
	"n-prompt":   "prompt", "n-gen": "gen", "n-depth": "depth",
	"npl": "parallel", "n-parallel": "parallel",
	"cache-type": "kv-type", "cache-type-k": "kv-type", "cache-type-v": "kv-type", "type-k": "kv-type", "type-v": "kv-type",
	"system-prompt": "system", "sys": "system",
	"reverse-prompt": "stop", "lora-scaled": "lora", "log-verbose": "verbose", "log-verbosity": "verbosity",
	"n-gpu-layers": "gpu-layers", "num-gpu": "gpu-layers",
	"split-mode":  "split",
	"draft-model": "model-draft", "spec-draft-model": "model-draft",
	"hf":              "hf-repo",
	"flash-attention": "flash-attn",
}

// normalize accepts the long names of other programs, and underscores.
func normalize(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ReplaceAll(name, "_", "-")
	if ours, ok := foreignNames[name]; ok {
		name = ours
	}
	if strings.HasPrefix(name, "spec-") && name != "spec-draft-cpu-moe" && name != "spec-draft-backend-sampling" && name != "spec-default" {
		name = "spec" // they all take a value
	}
	return pflag.NormalizedName(name)
}

// foreignWords maps llama.cpp's words of one dash to long names. Single letters count where a command has no flag of that letter.
var foreignWords = map[string]string{
	"ngl": "gpu-layers", "sys": "system", "sysf": "system-prompt-file", "md": "model-draft", "fa": "flash-attn", "ub": "ubatch-size",
	"hf": "hf-repo", "hfr": "hf-repo", "hff": "hf-file", "hft": "hf-token", "hfd": "hf-repo-draft", "hfrd": "hf-repo-draft",
	"hfv": "hf-repo-v", "hfrv": "hf-repo-v", "hffv": "hf-file-v", "cnv": "conversation", "no-cnv": "no-conversation", "st": "single-turn",
	"ctk": "cache-type-k", "ctv": "cache-type-v", "ctkd": "cache-type-k-draft", "ctvd": "cache-type-v-draft", "dev": "device",
	"devd": "device-draft", "tb": "threads-batch", "td": "threads-draft", "tbd": "threads-batch-draft", "mg": "main-gpu", "sm": "split",
	"ts": "tensor-split", "kvo": "kv-offload", "nkvo": "no-kv-offload", "np": "parallel", "npl": "parallel", "npp": "prompt", "ntg": "gen",
	"mli": "multiline-input", "co": "color", "if": "interactive-first", "dio": "direct-io", "ndio": "no-direct-io", "lm": "load-mode",
	"nopo": "no-op-offload", "ngld": "n-gpu-layers-draft", "cl": "cache-list", "C": "cpu-mask", "Cr": "cpu-range", "Cb": "cpu-mask-batch",
	"Crb": "cpu-range-batch", "Cd": "cpu-mask-draft", "Crd": "cpu-range-draft", "Cbd": "cpu-mask-batch-draft", "bf": "binary-file",
	"nr": "no-repack", "dt": "defrag-thold", "ot": "override-tensor", "otd": "override-tensor-draft", "cmoe": "cpu-moe",
	"cmoed": "cpu-moe-draft", "ncmoe": "n-cpu-moe", "ncmoed": "n-cpu-moe-draft", "fit": "fit", "fitt": "fit-target", "fitc": "fit-ctx",
	"mu": "model-url", "dr": "docker-repo", "lv": "verbosity", "l": "logit-bias", "j": "json-schema", "jf": "json-schema-file",
	"bs": "backend-sampling", "ctxcp": "ctx-checkpoints", "cram": "cache-ram", "r": "reverse-prompt", "sp": "special",
	"mm": "mmproj", "mmu": "mmproj-url", "mmdev": "mmproj-device", "rea": "reasoning", "ptc": "print-token-count", "i": "interactive",
	"gan": "grp-attn-n", "gaw": "grp-attn-w", "e": "escape", "o": "output-file", "oe": "output-err", "pg": "prompt-gen", "embd": "embeddings",
	"rpc": "rpc",
}

// foreignFlag is a flag of other programs that changes nothing. One with a value takes one; optional says that it may be left out.
type foreignFlag struct {
	names           string // by spaces
	value, optional bool
	note            string
}

// foreignFlags are accepted with a note.
var foreignFlags = []foreignFlag{
	{"flash-attn", true, true, "attention always works without its matrix of scores"},
	{"model-draft", true, false, "no draft model is used"},
	{"n-gpu-layers-draft", true, false, "no draft model is used"},
	{"jinja", false, false, "chat templates always are the file's Jinja"},
	{"conversation", false, false, "chat is a conversation, complete is none"},
	{"no-conversation", false, false, "complete continues a text without a chat template"},
	{"threads-batch", true, false, "prompts use --threads too"},
	{"main-gpu", true, false, "--device cuda:N chooses a GPU"},
	{"tensor-split", true, false, "layers are divided by what memory devices have (--split layer)"},
	{"no-kv-offload", false, false, "the cache is where the model is"},
	{"no-op-offload", false, false, "a layer is computed where it is (--gpu-layers)"},
	{"mlock", false, false, "the system decides what of a mapped file stays in memory"},
	{"mmap", true, true, "files are mapped where the system can"},
	{"no-mmap", false, false, "files are mapped where the system can"},
	{"direct-io", false, false, "files are mapped where the system can"},
	{"numa", true, false, "the system places memory"},
	{"no-warmup", false, false, "nothing is computed to warm up"},
	{"warmup", false, false, "nothing is computed to warm up"},
	{"no-display-prompt", false, false, "prompts are never repeated"},
	{"color", true, true, "nothing is coloured"},
	{"simple-io", false, false, "lines are plain where the terminal does not answer"},
	{"multiline-input", false, false, `""" begins and ends a message of several lines`},
	{"interactive", false, false, "chat is interactive on a terminal"},
	{"interactive-first", false, false, "chat is interactive on a terminal"},
	{"log-disable", false, false, "nothing is logged"},
	{"single-turn", false, false, "there is one answer, and no chat"},
	{"no-perf", false, false, "--verbose reports the speed"},
	{"context-shift", false, false, "--context-full says what a full context does"},
	{"no-context-shift", false, false, "--context-full says what a full context does"},
}

// rareFlags are accepted with a note too. Few people type them, and the embedded model does not know them.
var rareFlags = []foreignFlag{
	{"gpu-layers-draft hf-repo-draft device-draft threads-draft threads-batch-draft cpu-mask-draft " +
		"cpu-range-draft cpu-strict-draft prio-draft poll-draft cpu-mask-batch-draft " +
		"cpu-strict-batch-draft prio-batch-draft poll-batch-draft override-tensor-draft n-cpu-moe-draft " +
		"cache-type-k-draft cache-type-v-draft draft draft-n draft-max draft-min draft-n-min draft-p-min " +
		"draft-p-split spec-type spec", true, false, "no draft model is used"},
	{"cpu-moe-draft spec-default spec-draft-cpu-moe spec-draft-backend-sampling " +
		"no-spec-draft-backend-sampling", false, false, "no draft model is used"},
	{"no-jinja skip-chat-parsing no-skip-chat-parsing", false, false, "chat templates always are the file's Jinja"},
	{"cpu-mask cpu-range cpu-strict prio poll cpu-mask-batch cpu-range-batch cpu-strict-batch " +
		"prio-batch poll-batch", true, false, "the system places threads"},
	{"kv-offload", false, false, "the cache is where the model is"},
	{"op-offload no-host", false, false, "a layer is computed where it is (--gpu-layers)"},
	{"repack no-repack", false, false, "a device packs weights as its kernels want them"},
	{"swa-full", false, false, "windows of attention are the model's"},
	{"defrag-thold ctx-checkpoints swa-checkpoints cache-ram", true, false, "a session's cache has one piece"},
	{"keep", true, false, "--context-full says what a full context does, and system messages stay"},
	{"parallel", true, false, "there is one conversation"},
	{"fit", true, true, "--gpu-layers auto takes as many layers as fit"},
	{"fit-target fit-ctx", true, false, "--memory-fraction says how much memory may be used"},
	{"no-direct-io", false, false, "files are mapped where the system can"},
	{"load-mode", true, false, "files are mapped where the system can"},
	{"display-prompt", false, false, "prompts are never repeated"},
	{"verbose-prompt", false, false, "vibrant render prints a prompt, vibrant tokenize its tokens"},
	{"print-token-count", true, false, "--verbose reports how many tokens there were"},
	{"special", false, false, "special tokens are never shown; --json has their ids"},
	{"log-prefix no-log-prefix log-timestamps no-log-timestamps", false, false, "nothing is logged"},
	{"log-file log-prompts-dir", true, false, "nothing is logged"},
	{"log-colors", true, true, "nothing is logged"},
	{"verbosity", true, false, "--verbose reports device, memory and speed"},
	{"perf show-timings no-show-timings", false, false, "--verbose reports the speed"},
	{"progress", false, false, "long work shows itself on a terminal"},
	{"backend-sampling", false, false, "--temp 0 chooses on the device, else the CPU does"},
	{"no-escape", false, false, "escapes such as \\n are never replaced"},
	{"reasoning-format", true, false, "reasoning is shown as the model writes it"},
	{"mmproj-auto no-mmproj no-mmproj-auto mmproj-offload no-mmproj-offload", false, false, "models read text alone"},
}

// refusedFlags are known and would change the answer, which nothing here can do.
var refusedFlags = []struct{ names, why string }{
	{"hf-file hf-file-v", "a file of a repository is chosen by its quantization: -hf OWNER/REPO:QUANT"},
	{"hf-token", "other users of the machine read a command line: set HF_TOKEN instead"},
	{"model-url", "vibrant pull hf:OWNER/REPO brings a model"},
	{"docker-repo hf-repo-v", "models come from Hugging Face: -hf OWNER/REPO"},
	{"gpt-oss-20b-default gpt-oss-120b-default vision-gemma-4b-default vision-gemma-12b-default", "name the model: -hf OWNER/REPO"},
	{"offline", "nothing is fetched but by -hf and vibrant pull: give the model's path or name by -m"},
	{"cache-list", "vibrant list shows the models"},
	{"list-devices", "vibrant devices lists them"},
	{"completion-bash", "vibrant completion bash prints the script"},
	{"license", "vibrant is under the MIT license or Apache 2.0"},
	{"usage", "--help lists the flags"},
	{"grammar grammar-file json-schema json-schema-file", "answers cannot be held to a grammar"},
	{"logit-bias", "single tokens cannot be made likelier; --ignore-eos forbids those that end a text"},
	{"samplers sampler-seq sampling-seq", "the samplers have llama.cpp's default order, which is fixed"},
	{"mirostat mirostat-lr mirostat-ent typical typical-p top-nsigma top-n-sigma xtc-probability xtc-threshold dry-multiplier dry-base " +
		"dry-allowed-length dry-penalty-last-n dry-sequence-breaker adaptive-target adaptive-decay dynatemp-range dynatemp-exp",
		"there is no such sampler: --temp, --top-k, --top-p, --min-p and the penalties are"},
	{"rope-scaling rope-scale rope-freq-base rope-freq-scale yarn-orig-ctx yarn-ext-factor yarn-attn-factor yarn-beta-slow yarn-beta-fast " +
		"override-kv", "a model is computed as its file says"},
	{"grp-attn-n grp-attn-w", "there is no group attention"},
	{"rpc server-base", "models are computed in this process"},
	{"check-tensors", "weights are not looked through"},
	{"control-vector control-vector-scaled control-vector-layer-range", "there are no control vectors; --lora takes an adapter"},
	{"mmproj mmproj-url mmproj-device image audio video image-min-tokens image-max-tokens", "models read text alone"},
	{"chat-template chat-template-file chat-template-kwargs in-prefix in-suffix in-prefix-bos reasoning reasoning-effort reasoning-budget " +
		"reasoning-budget-message reasoning-preserve no-reasoning-preserve",
		"the chat template is the file's; complete continues a prompt of any form"},
	{"prompt-cache prompt-cache-all prompt-cache-ro", "chat --session FILE keeps a conversation and its cache"},
	{"binary-file", "a prompt is text: -f FILE"},
	{"escape", `escapes such as \n are not replaced: the shell writes them in $'...'`},
	{"output-file", "an answer goes to stdout: > FILE"},
	{"output-err", "figures go to stdout"},
	{"prompt-gen", "prompts (-p) and generation (-n) are measured one by one; -d N generates at a depth"},
	{"embeddings", "embeddings are not measured"},
	{"delay", "measurements follow each other"},
	{"hellaswag winogrande multiple-choice kl-divergence kl-divergence-base save-all-logits ppl-stride ppl-output-type",
		"perplexity alone is measured, and vibrant logits writes logits"},
	{"format think hidethinking", "an answer is the model's text as it is"},
}

// overriddenLayers reads llama.cpp's PATTERN=BUFFER[,...], where all patterns together are of the routed experts of the first layers,
// and returns how many: AllLayers for those of every layer.
func overriddenLayers(text string) (int, error) {
	const most = 1000 // layers, more than any model has
	refuse := func(why string) (int, error) {
		return 0, usagef("--override-tensor %s: %s; experts alone can be moved, of all layers (exps=CPU) or of the first (--n-cpu-moe N)", text, why)
	}
	var patterns []*regexp.Regexp
	for _, rule := range strings.Split(text, ",") {
		i := strings.LastIndexByte(rule, '=')
		if i < 1 || !strings.EqualFold(rule[i+1:], "cpu") {
			return refuse("want PATTERN=CPU")
		}
		pattern, err := regexp.Compile(rule[:i])
		if err != nil {
			return refuse("the pattern is no regular expression")
		}
		patterns = append(patterns, pattern)
	}
	moved := func(name string) bool {
		return slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(name) })
	}
	layers := 0
	for i := range most {
		layer := fmt.Sprintf("blk.%d.", i)
		experts := 0
		for _, name := range []string{"ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"} {
			if moved(layer + name) {
				experts++
			}
		}
		for _, name := range []string{"attn_q.weight", "attn_output.weight", "attn_norm.weight", "ffn_norm.weight", "ffn_gate_inp.weight", "ffn_up.weight",
			"ffn_gate.weight", "ffn_down.weight", "ffn_up_shexp.weight", "ffn_gate_shexp.weight", "ffn_down_shexp.weight"} {
			if moved(layer + name) {
				return refuse("it moves " + layer + name)
			}
		}
		switch {
		case experts == 0:
		case experts < 3:
			return refuse(fmt.Sprintf("it moves a part of the experts of layer %d", i))
		case layers < i:
			return refuse(fmt.Sprintf("it moves the experts of layer %d and not of layer %d", i, layers))
		default:
			layers = i + 1
		}
	}
	for _, name := range []string{"token_embd.weight", "output.weight", "output_norm.weight"} {
		if moved(name) {
			return refuse("it moves " + name)
		}
	}
	switch layers {
	case 0:
		return refuse("it moves no experts")
	case most:
		return vibrant.AllLayers, nil
	}
	return layers, nil
}

// foreignValue is the value of a flag that changes nothing.
type foreignValue struct {
	set func(value string) error
	typ string
}

func (f foreignValue) Set(value string) error { return f.set(value) }
func (f foreignValue) String() string         { return "" }
func (f foreignValue) Type() string           { return f.typ }

// addForeign adds the flags of other programs to a command, hidden, after its own. Their notes are collected in m.
func (m *modelFlags) addForeign(f *pflag.FlagSet) {
	add := func(name, typ string, set func(string) error) *pflag.Flag {
		flag := f.VarPF(foreignValue{set, typ}, name, "", "")
		flag.Hidden = true
		return flag
	}
	for _, x := range slices.Concat(foreignFlags, rareFlags) {
		for _, name := range strings.Fields(x.names) {
			if f.Lookup(name) != nil { // the command has it
				continue
			}
			typ := "string"
			if !x.value {
				typ = "bool"
			}
			flag := add(name, typ, func(string) error {
				m.notes = append(m.notes, fmt.Sprintf("--%s: %s", name, x.note))
				return nil
			})
			if !x.value || x.optional {
				flag.NoOptDefVal = "true"
			}
		}
	}
	if f.Lookup("system") != nil {
		add("system-prompt-file", "string", func(path string) error {
			text, err := readText(context.Background(), path, os.Stdin)
			if err != nil {
				return err
			}
			return f.Set("system", strings.TrimRight(string(text), "\r\n"))
		})
	}
}

// refusal says why a long name of another program is refused, "" where it is not.
func refusal(cmd *cobra.Command, name string) string {
	if cmd.Flags().Lookup(name) != nil {
		return ""
	}
	for _, x := range refusedFlags {
		if slices.Contains(strings.Fields(x.names), name) {
			return x.why
		}
	}
	return ""
}

// hasOptionalValue reports whether a long name is that of a foreign flag of a command whose value may be left out.
func hasOptionalValue(cmd *cobra.Command, name string) bool {
	if flag := cmd.Flags().Lookup(name); flag == nil || !flag.Hidden {
		return false
	}
	for _, x := range slices.Concat(foreignFlags, rareFlags) {
		if slices.Contains(strings.Fields(x.names), name) {
			return x.optional
		}
	}
	return false
}

// foreignDevice turns llama.cpp's names of devices into ours: CUDA0,CUDA1 and none.
func foreignDevice(value string) string {
	if value == "none" {
		return "cpu"
	}
	names := strings.Split(value, ",")
	for i, name := range names {
		if number, ok := strings.CutPrefix(name, "CUDA"); ok && number != "" && strings.Trim(number, "0123456789") == "" {
			names[i] = "cuda:" + number
		}
	}
	return strings.Join(names, ",")
}

// translate turns what was typed into what the commands parse: "vibrant --device cpu" and "vibrant FILE" chat, and
// llama.cpp's words of one dash get two. Other words of one dash and several letters are mistakes.
func translate(root *cobra.Command, args []string) ([]string, error) {
	if len(args) > 1 && strings.HasPrefix(args[0], "__complete") {
		return translateToComplete(root, args), nil
	}
	args = withCommand(root, args)
	if len(args) == 0 {
		return args, nil
	}
	words := args
	if args[0] == "help" {
		words = args[1:]
	}
	if len(words) > 0 && words[0] != "completion" && words[0] != "help" && !strings.HasPrefix(words[0], "-") && subcommand(root, words[0]) == nil {
		return nil, unknownCommand(root, words[0])
	}
	if shells := []string{"bash", "zsh", "fish", "powershell"}; len(words) > 1 && words[0] == "completion" &&
		!strings.HasPrefix(words[1], "-") && !slices.Contains(shells, words[1]) {
		return nil, usagef("completion: unknown shell %q: want bash, zsh, fish or powershell", words[1])
	}
	cmd := subcommand(root, args[0])
	if cmd == nil { // help, completion, or flags of the root
		return args, nil
	}
	out := []string{args[0]}
	cacheType := ""
	for i := 1; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(out, args[i:]...), nil
		}
		if len(arg) < 2 || arg[0] != '-' {
			out = append(out, arg)
			continue
		}
		word, value, hasValue := strings.Cut(arg, "=")
		typed := word
		if strings.ContainsAny(word, " \n") {
			return nil, unknownFlag(cmd, word)
		}
		letter := len(word) == 2 && word[1] != '-' && cmd.Flags().ShorthandLookup(word[1:]) != nil
		if long, ok := foreignWords[word[1:]]; ok && !letter {
			word = "--" + long
		} else if arg[1] != '-' {
			if err := checkLetters(cmd, arg); err != nil {
				return nil, err
			}
		}
		takesValue := false
		if name, long := strings.CutPrefix(word, "--"); long {
			name = string(normalize(nil, name))
			if why := refusal(cmd, name); why != "" {
				return nil, usagef("%s: %s", typed, why)
			}
			if flag := cmd.Flags().Lookup(name); flag != nil {
				takesValue = flag.NoOptDefVal == ""
			}
			if !hasValue && hasOptionalValue(cmd, name) && i+1 < len(args) && isSwitch(args[i+1]) {
				value, hasValue = args[i+1], true
				i++
			}
		} else if flag := cmd.Flags().ShorthandLookup(arg[1:2]); flag != nil && len(arg) == 2 {
			takesValue = flag.NoOptDefVal == ""
		}
		isDevice := word == "--device"
		if isDevice && hasValue {
			value = foreignDevice(value)
		}
		if hasValue && strings.HasPrefix(word, "--") {
			out = append(out, word+"="+value)
		} else if hasValue {
			out = append(out, arg)
		} else {
			out = append(out, word)
			if takesValue && i+1 < len(args) {
				i++
				if value = args[i]; isDevice {
					value = foreignDevice(value)
				}
				out = append(out, value)
			}
		}
		switch word {
		case "--cache-type-k", "--cache-type-v", "--cache_type_k", "--cache_type_v", "--type-k", "--type-v":
			if cacheType != "" && cacheType != value {
				return nil, usagef("keys in %s and values in %s: the cache has one type, --kv-type", cacheType, value)
			}
			cacheType = value
		}
	}
	return out, nil
}

// translateToComplete translates what a shell asks to complete, whose last word is not whole yet.
func translateToComplete(root *cobra.Command, args []string) []string {
	before, last := args[1:len(args)-1], args[len(args)-1]
	if len(before) == 0 && strings.HasPrefix(last, "-") {
		before = []string{"chat"}
	}
	before, err := translate(root, before)
	if err != nil {
		return args
	}
	return append(append([]string{args[0]}, before...), last)
}

// isSwitch reports whether a word is the value of a switch, and not the beginning of something else. llama-bench takes several: 0,1.
func isSwitch(word string) bool {
	for _, value := range strings.Split(word, ",") {
		if !slices.Contains([]string{"on", "off", "auto", "true", "false", "0", "1"}, value) {
			return false
		}
	}
	return true
}

// checkLetters takes a word of one dash as a letter with a number, as -n8 or -p512,1024, or as letters that take no value.
func checkLetters(cmd *cobra.Command, word string) error {
	if len(word) == 2 {
		return nil
	}
	flag := cmd.Flags().ShorthandLookup(word[1:2])
	rest := word[2:]
	switch {
	case flag == nil:
	case rest[0] == '=' || flag.NoOptDefVal == "" && strings.Trim(rest, "-+.,0123456789") == "":
		return nil
	case flag.NoOptDefVal != "":
		for _, letter := range rest {
			f := cmd.Flags().ShorthandLookup(string(letter))
			if f == nil || f.NoOptDefVal == "" {
				return unknownFlag(cmd, word)
			}
		}
		return nil
	}
	if name := strings.TrimRight(word, "-0123456789"); len(name) < len(word) && len(name) > 2 && foreignWords[name[1:]] != "" {
		return usagef("unknown flag %s of %s: did you mean %s %s?", word, cmd.Name(), name, word[len(name):])
	}
	err := unknownFlag(cmd, word)
	if flag != nil && !strings.Contains(err.Error(), "did you mean") {
		return usagef("unknown flag %s of %s; if -%s and a value are meant, put a space between them", word, cmd.Name(), flag.Shorthand)
	}
	return err
}

// withCommand puts the command first, and "chat" where none was named.
func withCommand(root *cobra.Command, args []string) []string {
	if len(args) == 0 || slices.Contains([]string{"-h", "--help", "--version", "help", "completion"}, args[0]) ||
		strings.HasPrefix(args[0], "__complete") || len(args) == 1 && args[0] == "-v" || subcommand(root, args[0]) != nil {
		return args
	}
	if args[0][:min(1, len(args[0]))] == "-" {
		// Flags may come before the command.
		chat := subcommand(root, "chat")
		for i := 0; i < len(args) && args[i] != "--"; i++ {
			if subcommand(root, args[i]) != nil {
				return append(append([]string{args[i]}, args[:i]...), args[i+1:]...)
			}
			name, _, hasValue := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
			if long, ok := foreignWords[name]; ok {
				name = long
			}
			flag := chat.Flags().Lookup(string(normalize(nil, name)))
			if flag == nil && len(name) == 1 {
				flag = chat.Flags().ShorthandLookup(name)
			}
			if strings.HasPrefix(args[i], "-") && !hasValue && flag != nil && flag.NoOptDefVal == "" {
				i++ // its value
			}
		}
		return append([]string{"chat"}, args...)
	}
	if st, err := os.Stat(args[0]); strings.HasSuffix(args[0], ".gguf") || err == nil && st.Mode().IsRegular() {
		return append([]string{"chat"}, args...)
	}
	return args
}

// subcommand returns the command of that name, nil if there is none.
func subcommand(root *cobra.Command, name string) *cobra.Command {
	for _, c := range root.Commands() {
		if c.Name() == name || c.HasAlias(name) {
			return c
		}
	}
	return nil
}

// elsewhere says what to type instead of commands of other programs.
var elsewhere = map[string]string{
	"run":    "vibrant chat -m FILE chats with a model, vibrant ask -m FILE PROMPT answers once",
	"serve":  "there is no server: vibrant chat and vibrant ask load the model themselves, and programs import the Go package",
	"push":   "Vibrant uploads no models",
	"ps":     "no model stays loaded after its command: vibrant devices shows the memory that is free",
	"show":   "vibrant inspect FILE shows a model, and with --fit the memory that it takes",
	"rm":     "models are your own files: delete the GGUF file",
	"cp":     "models are your own files: copy the GGUF file",
	"create": "Vibrant makes no models: it reads GGUF files as they are",
	"stop":   "no model stays loaded after its command",
}
