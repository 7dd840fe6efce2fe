//go:build linux || darwin

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
)

// TestSignalsLeaveNoUnfinishedFile ends commands that write a file. What a process that was killed leaves, the next one removes.
func TestSignalsLeaveNoUnfinishedFile(t *testing.T) {
	outliveInterrupts(t) // and the processes do not ignore signals, as they would in a test that nohup started
	m, folder := reciter(t), t.TempDir()
	out := filepath.Join(folder, "logits.npy")
	files := func() string {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return strings.Join(names, " ")
	}
	for _, c := range []struct {
		signal syscall.Signal
		status int
		said   string // at the end: the context's warning comes before, or not any more
	}{
		{syscall.SIGTERM, 143, "vibrant: terminated\n"},
		{syscall.SIGHUP, 129, "vibrant: hangup\n"},
		{syscall.SIGINT, 130, "vibrant: interrupted\n"},
		{syscall.SIGKILL, -1, ""},
	} {
		p := exec.Command(os.Args[0], asCommand)
		p.Env = append(os.Environ(), commandEnv("logits", "-m", m, "--device", "cpu", "-o", out, "--ids", strings.Repeat("1,", 40_000)+"1"))
		var said strings.Builder
		p.Stderr = &said
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		busy.Until(t, "nothing is written", func() bool { return strings.HasSuffix(files(), ".tmp") })
		p.Process.Signal(c.signal)
		p.Wait()
		left := files()
		if p.ProcessState.ExitCode() != c.status || !strings.HasSuffix(said.String(), c.said) || (left != "") != (c.signal == syscall.SIGKILL) {
			t.Errorf("%v: %v, %q, %q is left", c.signal, p.ProcessState, said.String(), left)
		}
	}
	if status, _, errs := command(t, "", "logits", "-m", m, "--device", "cpu", "-o", out, "--ids", "1,2"); status != 0 || files() != "logits.npy" {
		t.Errorf("exit %d, %q, and there are %q", status, errs, files())
	}
}

// startOnTerminal starts a process that has a terminal of its own, but for its output where `out` takes that. It returns the terminal,
// which the end of the test closes, and its state before.
func startOnTerminal(t *testing.T, p *exec.Cmd, out *os.File) (master, slave *os.File, before *term.State) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); slave.Close() })
	if out == nil {
		out = slave
	}
	p.Stdin, p.Stdout, p.Stderr = slave, out, slave
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if before, err = term.GetState(int(slave.Fd())); err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return master, slave, before
}

// TestSignalsLeaveTheTerminalAsItWas ends chats while the terminal is asked for its cursor, at the prompt, and in an answer.
func TestSignalsLeaveTheTerminalAsItWas(t *testing.T) {
	outliveInterrupts(t) // and the processes do not ignore signals, as they would in a test that nohup started
	m := reciter(t)
	for s, status := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGHUP: 129, syscall.SIGQUIT: 2} { // 2: as Go's runtime has it
		for _, when := range []string{"\x1b[6n", ">>> ", "recite"} {
			p := exec.Command(os.Args[0], asCommand)
			p.Env = append(os.Environ(), commandEnv("chat", "-m", m, "--device", "cpu", "--ignore-eos"), "TERM=xterm", "XDG_STATE_HOME="+t.TempDir())
			master, slave, before := startOnTerminal(t, p, nil)
			h := &terminal{t: t, master: master, answers: when != "\x1b[6n"}
			go h.look()
			if when == "recite" {
				h.expect(">>> ")
				h.enter("hi\r")
			}
			h.expect(when)
			p.Process.Signal(s)
			p.Wait()
			after, err := term.GetState(int(slave.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(before, after) || p.ProcessState.ExitCode() != status {
				t.Errorf("%v after %q: the terminal is %v, was %v; %v", s, when, after, before, p.ProcessState)
			}
		}
	}
}

// TestAnOutputThatBreaksEndsTheChat closes the pipe that takes a long answer, while the terminal is where questions are typed. The
// answer is longer than what a pipe holds, so that it cannot end before.
func TestAnOutputThatBreaksEndsTheChat(t *testing.T) {
	outliveInterrupts(t)
	p := exec.Command(os.Args[0], asCommand)
	p.Env = append(os.Environ(), commandEnv("chat", "-m", reciter(t), "--device", "cpu", "--ignore-eos", "-n", "1000000", "-c", "1000000"), "TERM=xterm", "XDG_STATE_HOME="+t.TempDir())
	answer, taken, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	master, slave, before := startOnTerminal(t, p, taken)
	taken.Close()
	go (&terminal{t: t, master: master, answers: true}).look()
	if _, err := master.Write([]byte("hi\n")); err != nil {
		t.Fatal(err)
	}
	for said, b := "", make([]byte, 4096); !strings.Contains(said, "recite"); {
		n, err := answer.Read(b)
		if err != nil {
			t.Fatalf("%q, %v", said, err)
		}
		said += string(b[:n])
	}
	answer.Close()
	broken := time.Now()
	kill := time.AfterFunc(busy.Limit, func() { p.Process.Kill() })
	p.Wait()
	if !kill.Stop() {
		t.Fatal("the chat goes on")
	}
	t.Logf("ended after %v", time.Since(broken))
	after, err := term.GetState(int(slave.Fd()))
	if state, ok := p.ProcessState.Sys().(syscall.WaitStatus); err != nil || !reflect.DeepEqual(before, after) || !ok || state.Signal() != syscall.SIGPIPE {
		t.Errorf("the terminal is %v, was %v, %v; %v", after, before, err, p.ProcessState)
	}
}

// TestCtrlZGoesOnWhereNoShellWaits types Ctrl-Z into a chat that leads its session, as in a container: nothing can stop it, and nothing
// would ever have it go on.
func TestCtrlZGoesOnWhereNoShellWaits(t *testing.T) {
	outliveInterrupts(t)
	p := exec.Command(os.Args[0], asCommand)
	p.Env = append(os.Environ(), commandEnv("chat", "-m", reciter(t), "--device", "cpu"), "TERM=xterm", "XDG_STATE_HOME="+t.TempDir())
	master, err := pty.Start(p)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	h := &terminal{t: t, master: master, answers: true}
	go h.look()
	defer p.Wait()
	defer p.Process.Kill()
	h.expect(">>> ")
	h.enter("h\x1ai\r")
	h.expect("recite")
}

// TestInterruptBeforeThePromptEndsTheChat types Ctrl-C while a chat starts: at first it is a signal; while the terminal is asked for its
// cursor, a key; and a signal again in between. Where the prompt comes between the look at the screen and the key, the key is for the
// line alone, as often as a busy machine has it so: this is tried again.
func TestInterruptBeforeThePromptEndsTheChat(t *testing.T) {
	outliveInterrupts(t) // and the processes do not ignore interrupts, as they would in a test that ignores them
	m, moments := reciter(t), 0
	for _, answers := range []bool{false, true} {
		for delay := time.Duration(0); delay <= 300*time.Millisecond; delay += 30 * time.Millisecond {
			prompted, ended := interruptAfter(t, m, delay, answers)
			for try := 1; try < 100 && !prompted && !ended; try++ {
				prompted, ended = interruptAfter(t, m, delay, answers)
			}
			if prompted {
				break
			}
			if moments++; !ended {
				t.Errorf("after %v, a terminal that answers: %v: the chat goes on", delay, answers)
			}
		}
	}
	t.Logf("%d moments", moments)
}

// interruptAfter starts a chat and types Ctrl-C after a while. It returns whether the prompt was there before, and whether the chat has
// ended: else it has said that it goes on.
func interruptAfter(t *testing.T, model string, delay time.Duration, answers bool) (prompted, ended bool) {
	t.Helper()
	p := exec.Command(os.Args[0], asCommand)
	p.Env = append(os.Environ(), commandEnv("chat", "-m", model, "--device", "cpu"), "TERM=xterm", "XDG_STATE_HOME="+t.TempDir())
	master, err := pty.Start(p)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	h := &terminal{t: t, master: master, answers: answers}
	go h.look()
	time.Sleep(delay)
	prompted = strings.Contains(h.screen(), ">>> ")
	h.enter("\x03")
	end := make(chan error, 1)
	go func() { end <- p.Wait() }()
	for start := time.Now(); ; {
		select {
		case <-end:
			if status := p.ProcessState; status.ExitCode() != 130 && status.String() != "signal: interrupt" {
				t.Errorf("after %v, a terminal that answers: %v: %v, %q", delay, answers, status, h.screen())
			}
			return prompted, true
		case <-time.After(5 * time.Millisecond):
		}
		goesOn := strings.Contains(h.screen(), "Ctrl-D or /bye leaves.")
		if goesOn || time.Since(start) > busy.Limit {
			p.Process.Kill()
			<-end
			if !goesOn {
				t.Errorf("after %v, a terminal that answers: %v: nothing comes of Ctrl-C: %q", delay, answers, h.screen())
			}
			return prompted, false
		}
	}
}

// TestInterruptStopsAnAnswer interrupts answers that would not end: in a chat the prompt is there again, and ask ends.
func TestInterruptStopsAnAnswer(t *testing.T) {
	outliveInterrupts(t)
	t.Setenv("TERM", "xterm")
	h := chatOn(t, true, "--ignore-eos", "-c", "1000000")
	h.expect(">>> ")
	for range 5 {
		h.enter("hi\r")
		h.expect(" Hello, I recite. Hello")
		syscall.Kill(os.Getpid(), syscall.SIGINT) // Ctrl-C: the terminal is not this process's own
		start := time.Now()
		h.expect(">>> ")
		t.Logf("the prompt is there after %v", time.Since(start))
	}
	h.enter("/bye\r")
	h.leaves(0)

	// The ^C that the terminal shows before a word of the answer is not before the next prompt.
	h = chatOn(t, true, "-b", "1", "-c", "100000", "--system", strings.Repeat("x", 90000)) // minutes of work
	h.expect(">>> ")
	h.enter("hi\r")
	h.expect("prompt: ")
	syscall.Kill(os.Getpid(), syscall.SIGINT)
	h.expect("\r\x1b[K\r\n")
	h.expect(">>> ")
	h.enter("/bye\r")
	h.leaves(0)

	h = onTerminal(t, true, "ask", "-m", reciter(t), "--device", "cpu", "--temp", "0", "--ignore-eos", "-c", "1000000", "hi")
	h.expect(" Hello, I recite. Hello")
	syscall.Kill(os.Getpid(), syscall.SIGINT)
	h.leaves(130)
	h.expect("vibrant: interrupted")
}

// TestInterruptTakesBackAPasteWithoutAnEnd has Ctrl-C come in a paste, of which the terminal's driver then drops the rest and its end:
// the next line is a line.
func TestInterruptTakesBackAPasteWithoutAnEnd(t *testing.T) {
	in, keys := io.Pipe()
	defer keys.Close()
	p := newPlainReader(in, io.Discard)
	defer p.close()
	io.WriteString(keys, pasteStart+"one\n")
	io.WriteString(keys, "two\n")
	keys.Write(nil) // is read when both lines are taken
	p.interrupts <- os.Interrupt
	if text, err := p.line(""); err != errLineInterrupted {
		t.Fatalf("%q, %v", text, err)
	}
	io.WriteString(keys, "/bye\n")
	if text, err := p.line(""); text != "/bye" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	io.WriteString(keys, pasteStart+"a\nb"+pasteEnd+"\n")
	if text, err := p.line(""); text != "a\nb" || err != nil {
		t.Errorf("a whole paste: %q, %v", text, err)
	}
}
