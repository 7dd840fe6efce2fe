package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
)

// TestMain keeps the driver's own number of queues, which the processes of ranks inherit.
func TestMain(m *testing.M) {
	if _, chosen := os.LookupEnv(connections); !chosen {
		os.Setenv(connections, "8")
	}
	os.Exit(m.Run())
}

// TestStartIsShortened has one queue for launches where a command computes alone on one device, and never overrides a user's number.
func TestStartIsShortened(t *testing.T) {
	ranks := rankFlags{config: &gpu.RanksConfig{}}
	for _, c := range []struct {
		chosen, want string
		m            modelFlags
	}{
		{want: "1", m: modelFlags{device: "auto"}},
		{want: "1", m: modelFlags{device: "cuda:3"}},
		{want: "", m: modelFlags{device: "cuda:0,cuda:1"}},
		{want: "", m: modelFlags{device: "cuda", ranks: ranks}},
		{chosen: "4", want: "4", m: modelFlags{device: "cuda"}},
	} {
		t.Setenv(connections, c.chosen) // and restores what was there
		if c.chosen == "" {
			os.Unsetenv(connections)
		}
		if c.m.shortenStart(); os.Getenv(connections) != c.want {
			t.Errorf("%q on %s with ranks %v: %q, want %q", c.chosen, c.m.device, c.m.ranks.config != nil, os.Getenv(connections), c.want)
		}
	}
}

// command runs one command line on the CPU.
func command(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(args, strings.NewReader(stdin), &out, &errs)
	return status, out.String(), errs.String()
}

// TestProcessOfTheCommand is what processes of other tests run, started with asCommand and a command line in their environment.
func TestProcessOfTheCommand(t *testing.T) {
	line := os.Getenv("VIBRANT_TEST_COMMAND")
	if line == "" {
		t.Skip("for the processes of other tests")
	}
	os.Args = append(os.Args[:1], strings.Split(line, "\n")...)
	main()
}

const asCommand = "-test.run=^TestProcessOfTheCommand$"

func commandEnv(args ...string) string { return "VIBRANT_TEST_COMMAND=" + strings.Join(args, "\n") }

// reciter writes a model that answers everything with " Hello, I recite.".
func reciter(t *testing.T) string {
	return write(t, "reciter.gguf", testmodel.Reciter("▁Hello", ",", "▁I", "▁recite", "."))
}

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestAnswersGoToStdoutAlone(t *testing.T) {
	m := reciter(t)
	for _, c := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{"", []string{"ask", "What", "do you do?"}, " Hello, I recite.\n"},
		{"What do you do?\n", []string{"ask", "-"}, " Hello, I recite.\n"},
		{"one\n\ntwo", []string{"chat"}, " Hello, I recite.\n Hello, I recite.\n"},
		{"\"\"\"one\ntwo\"\"\"\n/bye\nnever\n", []string{"chat", "--commands"}, " Hello, I recite.\n"},
		{"one\ntwo\n", []string{"chat", "-st"}, " Hello, I recite.\n"},
		{"", []string{"chat", "-p", "Hi", "--single-turn"}, " Hello, I recite.\n"},
		{"", []string{"complete", "-p", "x", "-n", "2"}, " Hello,\n"},
		{"", []string{"complete", "-p", "x", "-n", "0"}, "\n"}, // as with llama.cpp: the prompt alone is computed
		{"", []string{"complete", "-p", "x", "-n", "0", "--json"}, `{"finish":"length","ids":[],"prompt_ids":[1,35,123],"text":""}` + "\n"},
		{"", []string{"complete", "-p", "x", "-n", "-1"}, " Hello, I recite.\n"},
		{"", []string{"ask", "-n", "-2", "Hi"}, " Hello, I recite.\n"},
		{"", []string{"complete", "-p", ""}, " Hello, I recite.\n"}, // the begin token alone
		{"x", []string{"complete", "-f", "-", "--n-predict", "1"}, " Hello\n"},
		{"x", []string{"complete", "-", "--n-predict", "1"}, " Hello\n"},
		{"x", []string{"complete", "--n-predict", "1"}, " Hello\n"},
		{"hi", []string{"ask"}, " Hello, I recite.\n"},
		{"", []string{"complete", "--ids", "1, 2", "--stop", " I"}, " Hello,\n"},
		{"", []string{"ask", "--system", "Be brief.", "--seed", "1", "--top-k", "1", "--ctx_size", "256", "Hi"}, " Hello, I recite.\n"},
	} {
		args := append([]string{c.args[0], "-m", m, "--device", "cpu", "--temp", "0"}, c.args[1:]...)
		status, out, errs := command(t, c.stdin, args...)
		if status != 0 || out != c.want || errs != "" {
			t.Errorf("%q: exit %d, %q, %q", c.args, status, out, errs)
		}
	}
}

func TestErrorsAreOneLineAndAStatus(t *testing.T) {
	m := reciter(t)
	junk := write(t, "junk.gguf", []byte("GGUF and no more"))
	cut := write(t, "cut.gguf", testmodel.Reciter("a")[:3000])
	bare := write(t, "bare.gguf", testmodel.Random(testmodel.Tiny))
	for _, c := range []struct {
		status int
		say    string
		args   []string
	}{
		{2, "frobnicate", []string{"frobnicate"}},
		{2, "did you mean chat", []string{"chta"}},
		{2, "--frob", []string{"ask", "--frob", "hi"}},
		{2, "empty", []string{"ask", "-m", m, " "}},
		{2, "put -- before words that begin with a dash", []string{"ask", "-m", m, "-5 + 3"}},
		{2, "put -- before words that begin with a dash", []string{"ask", "-m", m, "--- a\n+++ b"}},
		{2, "PROMPT", []string{"ask", "-m", m}},
		{2, "warm", []string{"ask", "-m", m, "--temp", "warm", "hi"}},
		{2, "temperature", []string{"ask", "-m", m, "--temp=-1", "hi"}},
		{2, "top-p", []string{"ask", "-m", m, "--top-p=1.5", "hi"}},
		{2, "seed", []string{"ask", "-m", m, "--seed", "x", "hi"}},
		{2, "ctx", []string{"ask", "-m", m, "-c", "-5", "hi"}},
		{2, "q9", []string{"ask", "-m", m, "--kv-type", "q9", "hi"}},
		{1, "heads of a multiple of 32", []string{"ask", "-m", m, "--device", "cpu", "--kv-type", "q8_0", "hi"}},
		{1, "heads of a multiple of 32", []string{"inspect", m, "--fit", "--device", "cpu", "--kv-type", "q8_0"}},
		{2, "tpu", []string{"ask", "-m", m, "--device", "tpu", "hi"}},
		{2, "tpu", []string{"inspect", m, "--fit", "--device", "tpu"}},
		{2, "tpu", []string{"bench", "--ops", ".", "--device", "tpu"}},
		{2, "-1", []string{"complete", "-m", m, "--ids=-1"}},
		{2, "--prompt, --file, --ids", []string{"complete", "-m", m}},
		{2, "not 2 of them", []string{"complete", "-m", m, "-p", "x", "--ids", "1"}},
		{2, "-o", []string{"logits", "-m", m, "--ids", "1"}},
		{2, "repetitions", []string{"bench", "-m", m, "-r", "0"}},
		{1, "nowhere.gguf", []string{"ask", "-m", "/nowhere.gguf", "hi"}},
		{1, "junk.gguf", []string{"ask", "-m", junk, "hi"}},
		{1, "cut.gguf", []string{"inspect", cut}},
		{1, "tokenizer", []string{"ask", "-m", bare, "--device", "cpu", "hi"}},
		{1, "tokenizer", []string{"tokenize", "-m", bare, "hi"}},
		{1, "outside the vocabulary", []string{"complete", "-m", m, "--device", "cpu", "--ids", "1,99999"}},
		{1, "outside the vocabulary", []string{"logits", "-m", m, "--device", "cpu", "--ids", "99999", "-o", filepath.Join(t.TempDir(), "x.npy")}},
		{2, "the path is empty", []string{"ask", "-m", "", "hi"}},
		{2, "the path of the model is empty", []string{"inspect", ""}},
		{2, "which model?", []string{"pull"}},
		{2, "no reference to a model", []string{"pull", "x"}},
		{2, "no reference to a model", []string{"ask", "-hf", "x", "hi"}},
		{2, "the prompt is empty", []string{"ask", "-m", m, "-"}},
		{2, "the prompt is empty", []string{"chat", "-m", m, "-p", ""}},
		{2, "--ops", []string{"bench", "--ops", "("}},
		{2, "--output", []string{"bench", "-o", "xml"}},
		{2, "list: \"extra\" is one word too many: want vibrant list", []string{"list", "extra"}},
		{2, "one word too many", []string{"perplexity", "text"}},
		{2, "the text is -p \"Once\"", []string{"complete", "-m", m, "Once"}},
		{2, "nothing to measure", []string{"bench", "-m", m, "-p", "0", "-n", "0"}},
		{2, "neither a number nor a range", []string{"bench", "-m", m, "-p", "1-"}},
		{2, "has no end", []string{"bench", "-m", m, "-p", "0-8*2"}},
		{2, "more than 1000", []string{"bench", "-m", m, "-p", "0-100000"}},
		{2, "want stop or drop", []string{"chat", "-m", m, "--context-full", "shift"}},
		{1, "context", []string{"ask", "-m", m, "--device", "cpu", "-c", "8", "a prompt of more than eight tokens"}},
		{1, "no benchmark case", []string{"bench", "--ops", "NothingOfTheKind", "--device", "cpu"}},
		{2, "repeat-last-n is -2, want -1 to 2147483647", []string{"ask", "-m", m, "--repeat-last-n", "-2", "hi"}},
		{2, "ptx: a word is missing: want vibrant ptx KERNEL", []string{"ptx"}},
		{2, "unknown shell \"csh\"", []string{"completion", "csh"}},
		{1, "--session: stat /nowhere", []string{"chat", "-m", m, "--device", "cpu", "--session", "/nowhere/notes.json"}},
		{1, "adapter: stat nowhere.gguf", []string{"ask", "-m", m, "--device", "cpu", "--lora", "nowhere.gguf", "hi"}},
		{1, "/nowhere/x.npy: its folder: ", []string{"logits", "-m", m, "--device", "cpu", "-p", "x", "-o", "/nowhere/x.npy"}},
		{1, "fewer than one chunk", []string{"perplexity", "-m", m, "--device", "cpu", "-f", write(t, "t", []byte("short"))}},
	} {
		status, out, errs := command(t, "", c.args...)
		line := strings.TrimSuffix(errs, "\n")
		if status != c.status || out != "" || !strings.HasPrefix(line, "vibrant: ") || strings.Contains(line, "\n") || !strings.Contains(line, c.say) {
			t.Errorf("%q: exit %d (want %d), stdout %q, stderr %q (want one line with %q)", c.args, status, c.status, out, errs, c.say)
		}
	}
}

// TestPenaltiesMayLookBackOnAllTokens has -1 mean all, as in llama.cpp.
func TestPenaltiesMayLookBackOnAllTokens(t *testing.T) {
	args := []string{"ask", "-m", reciter(t), "--device", "cpu", "--temp", "0", "--repeat-penalty", "1.01", "--repeat-last-n", "-1", "hi"}
	if status, out, errs := command(t, "", args...); status != 0 || out == "" {
		t.Errorf("exit %d, %q, %s", status, out, errs)
	}
}

func TestPanicsBecomeOneLine(t *testing.T) {
	var errs bytes.Buffer
	status := run([]string{"tokenize", "--jsonl"}, panicking{}, io.Discard, &errs)
	if m := reciter(t); m != "" {
		errs.Reset()
		status = run([]string{"tokenize", "-m", m, "--jsonl"}, panicking{}, io.Discard, &errs)
	}
	if status != 1 || strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), "internal error: boom") {
		t.Errorf("exit %d, %q", status, errs.String())
	}
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("boom") }

func TestJSONForPrograms(t *testing.T) {
	m := reciter(t)
	var answer struct {
		PromptIDs []int32 `json:"prompt_ids"`
		IDs       []int32
		Text      string
		Finish    string
	}
	decode(t, &answer, "", "complete", "-m", m, "--device", "cpu", "--temp", "0", "-p", "x", "--json")
	if answer.Text != " Hello, I recite." || len(answer.IDs) != 5 || answer.Finish != "stop" || answer.PromptIDs[0] != 1 {
		t.Errorf("%+v", answer)
	}
	var devices []struct{ ID string }
	decode(t, &devices, "", "devices", "--json")
	if len(devices) == 0 || devices[0].ID != "cpu" {
		t.Errorf("%+v", devices)
	}
	var ids []int32
	decode(t, &ids, "", "tokenize", "-m", m, "--json", "--special", "--bos", "</s>")
	if !slices.Equal(ids, []int32{1, 2}) {
		t.Errorf("%v", ids)
	}
	var inspected struct {
		File struct{ Tensors []struct{ Name string } }
		Fit  struct {
			Fits   bool
			Memory struct{ Weights int64 }
		}
	}
	decode(t, &inspected, "", "inspect", m, "--fit", "--json", "--device", "cpu")
	if len(inspected.File.Tensors) != 12 || !inspected.Fit.Fits || inspected.Fit.Memory.Weights == 0 {
		t.Errorf("%+v", inspected)
	}
	var figures []figure
	decode(t, &figures, "", "bench", "-m", m, "--device", "cpu", "-p", "8", "-n", "4", "-r", "1", "--json")
	if len(figures) != 2 || figures[0].Case != "test pp8" || !(figures[1].Ours > 0) || figures[1].Roofline == nil || strings.Contains(figures[0].Command, filepath.Dir(m)) {
		t.Errorf("%+v", figures)
	}
	var ppl struct {
		PPL    float64
		Chunks int
	}
	decode(t, &ppl, "", "perplexity", "-m", m, "--device", "cpu", "-f", write(t, "t", []byte(strings.Repeat("some text ", 20))), "--ctx", "64", "--json")
	if ppl.Chunks != 3 || !(ppl.PPL > 1) {
		t.Errorf("%+v", ppl)
	}
}

func decode(t *testing.T, v any, stdin string, args ...string) {
	t.Helper()
	status, out, errs := command(t, stdin, args...)
	if status != 0 {
		t.Fatalf("%q: exit %d: %s", args, status, errs)
	}
	if err := json.Unmarshal([]byte(out), v); err != nil {
		t.Fatalf("%q: %v: %s", args, err, out)
	}
}

func TestTokenizeLines(t *testing.T) {
	m := reciter(t)
	status, out, errs := command(t, "\"\"\n\"</s>\"\n\"\\u00e9\"\n", "tokenize", "-m", m, "--jsonl", "--special")
	lines := strings.Split(out, "\n")
	if status != 0 || len(lines) != 4 || lines[0] != "[]" || lines[1] != "[2]" {
		t.Errorf("exit %d, %q, %q", status, out, errs)
	}
	status, _, errs = command(t, "\"a\"\nno JSON\n", "tokenize", "-m", m, "--jsonl")
	if status != 1 || !strings.Contains(errs, "line 2") {
		t.Errorf("exit %d, %q", status, errs)
	}
}

func TestLogitsAreAnNPYFile(t *testing.T) {
	out := filepath.Join(t.TempDir(), "l.npy")
	status, _, errs := command(t, "", "logits", "-m", reciter(t), "--device", "cpu", "--ids", "1,5,9", "-o", out)
	if status != 0 {
		t.Fatal(errs)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	head := 10 + int(binary.LittleEndian.Uint16(b[8:]))
	const vocab = 3 + 256 + 5
	if string(b[:8]) != "\x93NUMPY\x01\x00" || head%64 != 0 || b[head-1] != '\n' || len(b) != head+4*3*vocab ||
		!strings.Contains(string(b[:head]), "'shape': (3, 264)") {
		t.Errorf("%d bytes, header %q", len(b), b[:min(head, len(b))])
	}
}

func TestRender(t *testing.T) {
	template := write(t, "t.jinja", []byte("{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}{{ strftime_now('%Y') }}"))
	messages := write(t, "m.json", []byte(`[{"role": "user", "content": "Hi </s>"}]`))
	status, out, errs := command(t, "", "render", "--template", template, "--messages", messages, "--bos-token", "<s>", "--now", "2024-07-26T12:34:56")
	if status != 0 || out != "<s>[user] Hi </s>\n>2024" {
		t.Errorf("exit %d, %q, %q", status, out, errs)
	}
	status, out, errs = command(t, "", "render", "-m", reciter(t), "--messages", messages, "--no-generation-prompt")
	if status != 0 || out != "Hi </s>\n" {
		t.Errorf("exit %d, %q, %q", status, out, errs)
	}
}

// scripted is a terminal that says what it is told.
type scripted struct{ lines []string }

func (s *scripted) line(string) (string, error) {
	if len(s.lines) == 0 {
		return "", io.EOF
	}
	line := s.lines[0]
	s.lines = s.lines[1:]
	return line, nil
}

func (s *scripted) begin() {}
func (s *scripted) close() {}

func TestTurnsOfSeveralLines(t *testing.T) {
	r := &scripted{lines: []string{" one ", `"""two`, "", "  three", `four"""`, `"""five"""`, `"""`, "six", `"""`, `"""seven`}}
	for _, want := range []string{"one", "two\n\n  three\nfour", "five", "six"} {
		if got, err := readTurn(r); err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if _, err := readTurn(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("input that ends inside: %v", err)
	}
	if got, _ := readTurn(&scripted{lines: []string{"\tif x:\n\t\ty()\n"}}); got != "\tif x:\n\t\ty()" {
		t.Errorf("a paste lost its indentation: %q", got)
	}
}

// TestCommandsOfAChat types a conversation with every slash command, and holds what is shown against it.
func TestCommandsOfAChat(t *testing.T) {
	cmd := chatCommand()
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	ctx, stop := withInterrupts(t.Context())
	defer stop()
	cmd.SetContext(ctx)
	m := modelFlags{model: reciter(t), device: "cpu", kvType: "auto"}
	home := t.TempDir()
	t.Setenv("HOME", home)
	saved := filepath.Join(t.TempDir(), "saved.json")
	c := &chat{cmd: cmd, flags: &m}
	if err := c.begin(&generationFlags{g: vibrant.DefaultGeneration()}, &conversationFlags{system: "Be brief.", full: "drop"}); err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for _, turn := range []struct{ line, out, errs string }{
		{"/set temp 0", "temperature is 0.\n", ""},
		{"hi", " Hello, I recite.\n", ""},
		{"/show history", "user: hi\nassistant:  Hello, I recite.\n", ""},
		{"/regenerate", " Hello, I recite.\n", ""},
		{"/edit ho", " Hello, I recite.\n", ""},
		{"/edit", "", "vibrant: /edit TEXT: "},
		{"/show history", "user: ho\nassistant:  Hello, I recite.\n", ""},
		{"/copy", "", "vibrant: /copy needs a terminal\n"},
		{"/save", "", "vibrant: /save FILE: "},
		{"/save " + saved, "The conversation is in " + saved + ".\n", ""},
		{"/save ~/at-home.json", "The conversation is in " + filepath.Join(home, "at-home.json") + ".\n", ""},
		{"/load ~/at-home.json", "The conversation of 2 messages goes on.\n", ""},
		{"/set num_ctx 128", "num_ctx is 128.\n", ""},
		{"/set num_ctx 0", "", "vibrant: num_ctx is 0, want 1 or more\n"},
		{"/show info", "context  128 tokens", ""},
		{"/show history", "user: ho\nassistant:  Hello, I recite.\n", ""},
		{"/clear", "The conversation is forgotten.\n", ""},
		{"/show history", "", ""},
		{"/regenerate", "", "vibrant: there is no question yet\n"},
		{"/load " + saved, "The conversation of 2 messages goes on.\n", ""},
		{"/show history", "user: ho\nassistant:  Hello, I recite.\n", ""},
		{"/load /nowhere", "", "vibrant: stat /nowhere: "},
		{"/show system", "Be brief.\n", ""},
		{"/set system \"Be long.\"", "The system message is set.\n", ""},
		{"/show system", "Be long.\n", ""},
		{"/set parameter num_predict 2", "num_predict is 2.\n", ""},
		{"hi", " Hello,\n", ""},
		{"/set num_predict 0", "num_predict is 0.\n", ""},
		{"hi", "\n", ""},
		{"/set num_predict -2", "num_predict is -1.\n", ""}, // no limit, as Ollama writes it
		{"/set stop recite", "stop is [\"recite\"].\n", ""},
		{"hi", " Hello, I \n", ""},
		{"/set seed 7", "seed is 7.\n", ""},
		{"/set seed -1", "seed is random.\n", ""}, // a random one again
		{"/set top_k 5", "top_k is 5.\n", ""},
		{"/show parameters", "top_k              5\n", ""},
		{"/set top_k many", "", "vibrant: top_k: \"many\" is no number for it\n"},
		{"/set top_p 2", "", "vibrant: top-p is 2, want 0 to 1\n"},
		{"/set nothing 1", "", "vibrant: unknown parameter \"nothing\": "},
		{"/show nothing", "", "vibrant: /show nothing: want info, parameters, system or history\n"},
		{"/nothing", "", "vibrant: unknown command /nothing: /help lists them\n"},
		{"/regnerate", "", "vibrant: unknown command /regnerate: did you mean /regenerate?\n"},
		{"/help", "/bye        leave\n", ""},
		{"/show info", "context", ""},
	} {
		out.Reset()
		errs.Reset()
		if err := c.interactive(&scripted{lines: []string{turn.line, "/bye"}}); err != nil {
			t.Fatal(err)
		}
		_, shown, _ := strings.Cut(out.String(), "\n") // after the greeting
		if !strings.Contains(shown, turn.out) || turn.out == "" && shown != "" || !strings.HasPrefix(errs.String(), turn.errs) || turn.errs == "" && errs.Len() > 0 {
			t.Errorf("%s: %q, %q", turn.line, shown, errs.String())
		}
	}
	if g := c.session.Generation(); g.Seed != nil || g.MaxTokens != -1 {
		t.Errorf("seed %v, at most %d tokens", g.Seed, g.MaxTokens)
	}
}

func TestErrorsOfLongNamesStayShort(t *testing.T) {
	name := strings.Repeat("k", 70_000)
	for _, text := range []string{"missing key " + name + " in x.gguf", strings.Repeat("a name ", 10_000), "a\x1b[2J\nb"} {
		line := errorLine(errors.New(text))
		if len(line) > 640 || strings.ContainsAny(line, "\x1b\n") || !strings.HasPrefix(line, text[:1]) {
			t.Errorf("%d bytes: %.80q", len(line), line)
		}
	}
	if got := errorLine(errors.New("key " + name + " in x.gguf")); len(got) > 230 || !strings.HasSuffix(got, "in x.gguf") {
		t.Errorf("%q", got)
	}
}

func TestLoRAOfTheCommandLineAnswers(t *testing.T) {
	m, adapter := reciter(t), write(t, "adapter.gguf", testmodel.ReciterAdapter(5))
	for _, c := range []struct{ lora, want string }{{adapter, " Hello I.\n"}, {adapter + ":1.5", " Hello I.\n"}, {adapter + ":0", " Hello, I recite.\n"}} {
		if status, out, errs := command(t, "", "ask", "-m", m, "--device", "cpu", "--lora", c.lora, "Hi"); status != 0 || out != c.want {
			t.Errorf("--lora %s: status %d, %q, %s", c.lora, status, out, errs)
		}
	}
	if status, _, errs := command(t, "", "ask", "-m", m, "--device", "cpu", "--lora", m, "Hi"); status == 0 || !strings.Contains(errs, "general.type") {
		t.Errorf("a model as an adapter: status %d, %s", status, errs)
	}
	if status, _, errs := command(t, "", "ask", "-m", m, "--lora", adapter+":inf", "Hi"); status != 2 || !strings.Contains(errs, "--lora") {
		t.Errorf("an infinite scale: status %d, %s", status, errs)
	}
	if _, out, _ := command(t, "", "inspect", "--fit", "--device", "cpu", m, "--lora", adapter); !strings.Contains(out, "adapters") {
		t.Errorf("%s", out)
	}
}

// TestAutoGoesOnWithTheCPU hides all GPUs from a process: auto answers on the CPU and -v says why, cuda fails in one line.
func TestAutoGoesOnWithTheCPU(t *testing.T) {
	run := func(args ...string) (stdout, stderr string, err error) {
		c := exec.Command(os.Args[0], asCommand)
		c.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES=-1", commandEnv(args...))
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		err = c.Run()
		return out.String(), errs.String(), err
	}
	m := reciter(t)
	answer, errs, err := run("ask", "-m", m, "--device", "auto", "-v", "-n", "4", "hi")
	if err != nil || answer == "" || !strings.Contains(errs, "device: no GPU: ") {
		t.Errorf("%v, %q, %q", err, answer, errs)
	}
	_, errs, err = run("ask", "-m", m, "--device", "cuda", "hi")
	if err == nil || !strings.HasPrefix(errs, "vibrant: ") || strings.Count(errs, "\n") != 1 {
		t.Errorf("%v, %q", err, errs)
	}
}
