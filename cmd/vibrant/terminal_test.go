//go:build linux || darwin

package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/internal/check/busy"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
)

// terminal is a terminal with a command on it, and the hands and eyes of its user.
type terminal struct {
	t       *testing.T
	master  *os.File
	status  chan int
	over    chan struct{} // is closed when all is shown
	mu      sync.Mutex
	shown   strings.Builder
	answers bool // questions for the cursor's position, as terminals do
	looked  int  // what of shown was expected already
}

// onTerminal runs a command whose stdin, stdout and stderr are one terminal.
func onTerminal(t *testing.T, answers bool, args ...string) *terminal {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	pty.Setsize(master, &pty.Winsize{Rows: 40, Cols: 200})
	h := &terminal{t: t, master: master, status: make(chan int, 1), over: make(chan struct{}), answers: answers}
	go func() { h.look(); close(h.over) }()
	go func() {
		h.status <- run(args, slave, slave, slave)
		slave.Close()
	}()
	t.Cleanup(func() { master.Close() })
	return h
}

func (h *terminal) look() {
	var b [4096]byte
	for {
		n, err := h.master.Read(b[:])
		text := string(b[:n])
		h.mu.Lock()
		h.shown.WriteString(text)
		h.mu.Unlock()
		if h.answers {
			for range strings.Count(text, "\x1b[6n") {
				h.master.WriteString("\x1b[1;1R")
			}
		}
		if err != nil {
			return
		}
	}
}

func (h *terminal) screen() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shown.String()
}

// expect waits until a text is shown, after what was expected before.
func (h *terminal) expect(text string) {
	h.t.Helper()
	for start := time.Now(); time.Since(start) < busy.Limit; time.Sleep(2 * time.Millisecond) {
		s := h.screen()
		if at := strings.Index(s[h.looked:], text); at >= 0 {
			h.looked += at + len(text)
			return
		}
	}
	h.t.Fatalf("the terminal never showed %q: %q", text, h.screen()[h.looked:])
}

func (h *terminal) enter(text string) {
	h.t.Helper()
	if _, err := h.master.WriteString(text); err != nil {
		h.t.Fatal(err)
	}
}

// leaves waits for the end of the command.
func (h *terminal) leaves(status int) {
	h.t.Helper()
	select {
	case got := <-h.status:
		if got != status {
			h.t.Errorf("exit %d, want %d: %q", got, status, h.screen())
		}
	case <-time.After(busy.Limit):
		h.t.Fatalf("the command does not end: %q", h.screen())
	}
}

// outliveInterrupts has an interrupt or a hangup end no more than the command that it is for, be it still there or not.
func outliveInterrupts(t *testing.T) {
	t.Helper()
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, os.Interrupt, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
}

func chatOn(t *testing.T, answers bool, more ...string) *terminal {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	return onTerminal(t, answers, append([]string{"chat", "-m", reciter(t), "--device", "cpu", "--temp", "0"}, more...)...)
}

// TestChatOnATerminalThatAnswers has no color on the screen, whatever NO_COLOR says.
func TestChatOnATerminalThatAnswers(t *testing.T) {
	t.Setenv("TERM", "xterm")
	h := chatOn(t, true)
	h.expect(">>> ")
	h.enter("hi\r")
	h.expect("hi\r\n") // or the answer begins in the middle of its line
	h.expect(" Hello, I recite.")
	h.expect(">>> ")
	h.enter("\x04")
	h.leaves(0)
	if color := regexp.MustCompile("\x1b\\[[0-9;]*m").FindString(h.screen()); color != "" {
		t.Errorf("%q", color)
	}
}

// Terminals that never say where the cursor is (script, a plain pty, shells of editors) must not be waited for.
func TestChatOnATerminalThatIsSilent(t *testing.T) {
	outliveInterrupts(t)
	for _, name := range []string{"xterm", "dumb", ""} {
		t.Setenv("TERM", name)
		h := chatOn(t, false)
		h.enter("hi\r") // before the prompt is there
		h.expect(" Hello, I recite.")
		h.expect(">>> ")
		h.enter("again\n")
		h.expect(" Hello, I recite.")
		h.expect(">>> ")
		unix.Kill(os.Getpid(), unix.SIGINT) // Ctrl-C: the terminal is not this process's own
		h.expect("Ctrl-D or /bye leaves.")
		h.expect(">>> ")
		h.enter("/bye\n")
		h.leaves(0)
	}
}

func TestAPasteIsOneMessage(t *testing.T) {
	var paste strings.Builder
	for i := range 100 {
		paste.WriteString("\tline of the paste" + strings.Repeat(".", i%3) + "\r")
	}
	for name, answers := range map[string]bool{"xterm": true, "dumb": false} {
		t.Setenv("TERM", name)
		h := chatOn(t, answers, "-c", "4096")
		h.expect(">>> ")
		h.enter(pasteStart + paste.String() + pasteEnd + "\r")
		h.expect(" Hello, I recite.")
		h.expect(">>> ")
		h.enter("/show history\r")
		h.expect("user: \tline of the paste")
		for range 99 {
			h.expect("\r\n\tline of the paste")
		}
		h.expect(">>> ")
		h.enter("/bye\r")
		h.leaves(0)
		// Once as the answer, once in the history.
		if n := strings.Count(h.screen(), " Hello, I recite."); n != 2 {
			t.Errorf("%s: the answer was shown %d times", name, n)
		}
	}
}

// TestALongPasteIsThereAtOnce pastes 5,000 lines, which took minutes as keys.
func TestALongPasteIsThereAtOnce(t *testing.T) {
	t.Setenv("TERM", "xterm")
	h := chatOn(t, true, "-c", "64")
	h.expect(">>> ")
	start := time.Now()
	h.enter("Read this: " + pasteStart + strings.Repeat("a line of the paste\r", 5000) + pasteEnd + " Well?\r")
	h.expect("the prompt does not fit into the context")
	t.Logf("100,000 characters took %v", time.Since(start))
	h.expect(">>> ")
	h.enter("ab" + pasteStart + "cd" + pasteEnd + "\x1b[D" + pasteStart + "\r1\r2" + pasteEnd + "e\r")
	h.expect(" Hello, I recite.")
	h.expect(">>> ")
	h.enter("/show history\r")
	h.expect("user: abc\r\n1\r\n2ed\r\n")
	h.enter(pasteStart + "// Package a is pasted.\rpackage a" + pasteEnd + "\r") // no unknown command
	h.expect(" Hello, I recite.")
	h.expect(">>> ")
	h.enter("/edit " + pasteStart + "1\r2" + pasteEnd + "\r")
	h.expect(" Hello, I recite.")
	h.enter("/show history\r")
	h.expect("user: 1\r\n2\r\n")
	h.enter("/bye\r")
	h.leaves(0)
}

// TestALongTextWithoutMarksIsThereAtOnce types what took minutes key by key. Keys that have names keep them.
func TestALongTextWithoutMarksIsThereAtOnce(t *testing.T) {
	t.Setenv("TERM", "xterm")
	h := chatOn(t, true, "-c", "64")
	h.expect(">>> ")
	start := time.Now()
	h.enter(strings.Repeat("a word ", 35_000) + "\r")
	h.expect("the prompt does not fit into the context")
	t.Logf("245,000 characters took %v", time.Since(start))
	h.expect(">>> ")
	h.enter("/bye\r")
	h.leaves(0)
	text, held := strings.Repeat("ä", fewestPasted), 0
	keys, err := io.ReadAll(&pasteReader{r: strings.NewReader(text + "\x1b[A" + text + "\r" + text[:60] + "\x7f\xff" + text)})
	for _, key := range string(keys) {
		if key == pasteKey {
			held++
		}
	}
	if want := string(pasteKey) + "\x1b[A" + text + "\r" + text[:60] + "\x7f\xff" + text; string(keys) != want || held != 1 || err != nil {
		t.Errorf("%q, %v, want %q", keys, err, want)
	}
}

// TestMillionsOfPastedCharactersAreReadInLinearTime reads what took minutes where each line was read with all before it.
func TestMillionsOfPastedCharactersAreReadInLinearTime(t *testing.T) {
	text := strings.Repeat("a line of the paste\n", 250_000)
	start := time.Now()
	plain := newPlainReader(strings.NewReader(pasteStart+text+pasteEnd+"\nnext\n"), io.Discard)
	defer plain.close()
	if got, err := plain.line(""); got != text || err != nil {
		t.Errorf("plain: %d characters, %v", len(got), err)
	}
	if got, err := plain.line(""); got != "next" || err != nil {
		t.Errorf("after it %.40q, %v", got, err)
	}
	marked := &pasteReader{r: strings.NewReader("a" + pasteStart + text + pasteEnd + "b")}
	keys, err := io.ReadAll(marked)
	if want := "a" + string(pasteKey) + "b"; string(keys) != want || err != nil {
		t.Errorf("%.40q, %v", keys, err)
	}
	if line, _, ok := marked.insert([]rune{pasteKey}, 1); !ok || len(line) != len(text)-1 {
		t.Errorf("%d characters, %v", len(line), ok)
	}
	t.Logf("%d characters took %v", len(text), time.Since(start))
}

func TestBackspaceTakesAWholeGrapheme(t *testing.T) {
	t.Setenv("TERM", "xterm")
	h := chatOn(t, true)
	h.expect(">>> ")
	h.enter(pasteStart + "e\u0301" + pasteEnd + "\x7f")                           // as one key
	h.enter("a\u0065\u0301\U0001F468\u200D\U0001F469\u200D\U0001F467\x7f\x7fb\r") // a, e with an accent, a family
	h.expect(" Hello, I recite.")
	h.expect(">>> ")
	h.enter("/show history\r")
	h.expect("user: ab\r\n")
	h.enter("/bye\r")
	h.leaves(0)
}

// TestAnEarlyCtrlDKeepsNoLaterOneFromLeaving has the key that a Ctrl-D during an answer becomes at the prompt.
func TestAnEarlyCtrlDKeepsNoLaterOneFromLeaving(t *testing.T) {
	t.Setenv("TERM", "xterm")
	h := chatOn(t, true)
	h.expect(">>> ")
	h.enter("\x00\x04")
	h.leaves(0)
}

func TestKeysBeforeAPromptAreCooked(t *testing.T) {
	if got := cooked("no\x15hi\r\x04so\x04"); got != "hi\nso" {
		t.Errorf("%q", got)
	}
}

// renamed gives a file of package testmodel another name of at most 36 bytes. 32 bytes more keep the tensors aligned.
func renamed(model []byte, name string) []byte {
	name += strings.Repeat(" ", 36-len(name))
	value := func(s string) []byte {
		return append(binary.LittleEndian.AppendUint64([]byte{8, 0, 0, 0}, uint64(len(s))), s...)
	}
	return bytes.Replace(model, value("test"), value(name), 1)
}

func TestControlCharactersDoNotReachATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	evil := "x\x1b]0;title\x07\u009b31m\x7f\u202e"
	m := write(t, "evil.gguf", renamed(testmodel.Reciter("▁Hello", evil), evil))
	for _, args := range [][]string{
		{"inspect", m, "--tensors"},
		{"inspect", m, "--json"},
		{"ask", "-m", m, "--device", "cpu", "--temp", "0", "-v", "hi"},
		{"complete", "-m", m, "--device", "cpu", "--temp", "0", "-p", "hi"},
		{"ask", "-m", evil + ".gguf", "hi"},
		{"bench", "-m", m, "--device", "cpu", "-p", "4", "-n", "2", "-r", "1"},
	} {
		h := onTerminal(t, false, args...)
		busy.Receive(t, h.status, "the command does not end")
		busy.Receive(t, h.over, "the terminal of a command that has ended is open")
		s := strings.ReplaceAll(h.screen(), "\r\x1b[K", "") // the command's own progress
		if strings.ContainsAny(s, "\x1b\x07\x7f\u009b\u202e") {
			t.Errorf("%s: %q", args[0], s)
		}
	}
	if _, out, _ := command(t, "", "complete", "-m", m, "--device", "cpu", "--temp", "0", "-p", "hi"); !strings.Contains(out, evil) {
		t.Errorf("piped text changed: %q", out)
	}
	h := chatOn(t, true, "-m", m)
	h.expect(`x\x1b]0;title`)
	h.enter("/bye\r")
	h.leaves(0)
}

func TestScreenKeepsCharactersThatComeInParts(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := &screen{file: w}
	for _, b := range []byte("é\t漢\r\n\x1b\u202e\u200d") {
		if n, err := s.Write([]byte{b}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	w.Close()
	var got [100]byte
	n, _ := r.Read(got[:])
	if string(got[:n]) != "é\t漢\\x0d\n\\x1b\\u202e\u200d" { // a carriage return alone moves the cursor
		t.Errorf("%q", got[:n])
	}
}

func TestHistoryIsPrivate(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_STATE_HOME", "relative")
	if got := historyPath(); got != filepath.Join(dir, ".local", "state", "vibrant", "history") {
		t.Errorf("a relative XDG_STATE_HOME: %s", got)
	}
	t.Setenv("XDG_STATE_HOME", dir)
	path := historyPath()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("one\n\ntwo\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := openHistory(path)
	h.add("three")
	if got := openHistory(path).lines; strings.Join(got, " ") != "one two three" {
		t.Errorf("%q", got)
	}
	if st, _ := os.Stat(path); st.Mode().Perm() != 0o600 {
		t.Errorf("mode %o", st.Mode().Perm())
	}
	victim := filepath.Join(dir, "victim")
	os.WriteFile(victim, []byte("mine\n"), 0o600)
	os.Remove(path)
	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
	h = openHistory(path)
	h.add("secret")
	if b, _ := os.ReadFile(victim); string(b) != "mine\n" || len(h.lines) > 0 {
		t.Errorf("a link was followed: %q, %q", b, h.lines)
	}
}

func TestLongHistoriesAreCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	os.WriteFile(path, []byte(strings.Repeat("old\n", 3*historyLimit)+"new\n"), 0o600)
	openHistory(path)
	b, err := os.ReadFile(path)
	if n := strings.Count(string(b), "\n"); err != nil || n != historyLimit || !strings.HasSuffix(string(b), "\nnew\n") {
		t.Errorf("%d lines, %v", n, err)
	}
}

// TestForgedHistoriesAreShownAsText has control characters in the file, and a file that is mostly one line.
func TestForgedHistoriesAreShownAsText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	os.WriteFile(path, []byte(strings.Repeat("a", historyBytes)+"\n\x1b]0;title\a\x00b\u202ec\r\n\x1b\n"), 0o600)
	if lines := openHistory(path).lines; len(lines) != 1 || lines[0] != "]0;titlebc" {
		t.Errorf("%.100q", lines)
	}
	if st, err := os.Stat(path); err != nil || st.Size() > 100 {
		t.Errorf("the file is not cut: %v, %v", st, err)
	}
}

func TestCommandsThatNeedATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	h := chatOn(t, true)
	h.expect(">>> ")
	h.enter("hi\r")
	h.expect(" Hello, I recite.")
	h.enter("/copy\r")
	h.expect("\x1b]52;c;SGVsbG8sIEkgcmVjaXRlLg==\a") // "Hello, I recite." in base64
	h.enter("/edit\r")
	h.expect("[0Khi") // in the line, to be edited
	h.enter("\x15\r") // nothing takes its place: it stays
	h.expect(">>> ")
	h.enter("/show history\r")
	h.expect("user: hi\r\n")
	h.enter("/edit\r")
	h.expect("[0Khi")
	h.enter("gh\r")
	h.expect(" Hello, I recite.")
	h.enter("/show history\r")
	h.expect("user: high\r\n")
	h.enter("/bye\r")
	h.leaves(0)
}

func TestLongWorkShowsItself(t *testing.T) {
	outliveInterrupts(t)
	t.Setenv("TERM", "xterm")
	text := write(t, "text", []byte(strings.Repeat("some text ", 30000)))
	h := onTerminal(t, false, "perplexity", "-m", reciter(t), "--device", "cpu", "-f", text, "--ctx", "64")
	h.expect("chunk ")
	h.expect("perplexity ")
	h.expect("left")
	unix.Kill(os.Getpid(), unix.SIGINT)
	h.leaves(130)
	h.expect("(interrupted after ")
	h.expect("vibrant: interrupted")

	h = onTerminal(t, false, "complete", "-m", reciter(t), "--device", "cpu", "--temp", "0", "-b", "1", "-c", "4000", "-p", strings.Repeat("x", 3900))
	h.expect("prompt: ")
	h.expect("of 3902 tokens")
	h.leaves(0)

	// An interrupt clears the line before it is told.
	h = onTerminal(t, false, "ask", "-m", reciter(t), "--device", "cpu", "-b", "1", "-c", "100000", strings.Repeat("x", 90000))
	h.expect("prompt: ")
	unix.Kill(os.Getpid(), unix.SIGINT)
	h.leaves(130)
	h.expect("\r\x1b[Kvibrant: interrupted")

	h = onTerminal(t, false, "bench", "-m", reciter(t), "--device", "cpu", "-p", "256", "-n", "64", "-r", "1000000")
	h.expect("run ")
	h.expect("run ") // the first may be the one that warms up
	unix.Kill(os.Getpid(), unix.SIGINT)
	h.leaves(130)
	h.expect("tok/s")
	h.expect("pp256")
	h.expect(" %") // of what was measured until then
}

func TestLoadingShowsItself(t *testing.T) {
	r, w, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	t.Setenv("TERM", "xterm")
	for columns, want := range map[uint16]string{0: "loading: 5 GB of 10 GB, layer 3 of 32", 200: "loading: 5 GB of 10 GB, layer 3 of 32", 20: "loading: 5 GB of "} {
		pty.Setsize(w, &pty.Winsize{Rows: 40, Cols: columns})
		p := newProgress(w)
		p.last = time.Now().Add(-time.Second)
		p.loading(vibrant.Progress{Bytes: 5e9, TotalBytes: 10e9, Layers: 3, TotalLayers: 32})
		p.done()
		w.WriteString("end") // a terminal hands out what is written in parts
		var got string
		for b := make([]byte, 200); !strings.HasSuffix(got, "end"); {
			n, err := r.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			got += string(b[:n])
		}
		got = strings.TrimSuffix(got, "end")
		if !strings.HasPrefix(got, "\r\x1b[K"+want) || len(got) > len("\r\x1b[K"+want+"\r\x1b[K") {
			t.Errorf("%d columns: %q", columns, got)
		}
	}
	t.Setenv("TERM", "dumb")
	if p := newProgress(w); p.w != nil {
		t.Error("something is drawn on a terminal that cannot clear a line")
	}
	t.Setenv("TERM", "xterm")
	if p := newProgress(&bytes.Buffer{}); p.w != nil {
		t.Error("something is drawn in a pipe")
	}
	// A mapped file is not loaded at some rate.
	if _, _, errs := command(t, "", "ask", "-m", reciter(t), "--device", "cpu", "-v", "hi"); !strings.Contains(errs, "of a file that is mapped") || strings.Contains(errs, "B/s") {
		t.Errorf("%q", errs)
	}
}

// An interrupt ends a command that waits for input, whose read does not end.
func TestInterruptEndsAWaitForInput(t *testing.T) {
	outliveInterrupts(t)
	interrupt := func(args []string, done <-chan int) {
		t.Helper()
		for start := time.Now(); time.Since(start) < busy.Limit; {
			unix.Kill(os.Getpid(), unix.SIGINT)
			select {
			case status := <-done:
				if status != 130 {
					t.Errorf("%q: exit %d", args, status)
				}
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
		t.Fatalf("%q waits for its input", args)
	}
	m := reciter(t)
	for _, args := range [][]string{{"ask", "-m", m, "-"}, {"complete", "-m", m, "-f", "-"}, {"tokenize", "-m", m}, {"tokenize", "-m", m, "--jsonl"}} {
		interrupt(args, onTerminal(t, false, args...).status)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	done, args := make(chan int, 1), []string{"chat", "-m", m, "--device", "cpu"}
	go func() { done <- run(args, r, io.Discard, io.Discard) }()
	interrupt(args, done)
}

func TestTheEmbeddedModelSaysWhatItIs(t *testing.T) {
	t.Setenv("TERM", "dumb")
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	h := onTerminal(t, false, "--device", "cpu")
	h.expect("Vibrant demo (7M parameters, knows Vibrant and arithmetic; -m FILE for a real model) on cpu.")
	h.enter("/bye\n")
	h.leaves(0)
}
