package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
)

// process is the command in a process of its own, such as a rank.
type process struct {
	*exec.Cmd
	stdin    io.WriteCloser
	out, err output
}

// output may be read while a process writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// launchers have the variables that each kind sets for rank r of n where rank 0 is at the address a and the port p.
var launchers = map[string]string{
	"torchrun":        "RANK=r WORLD_SIZE=n LOCAL_RANK=r MASTER_ADDR=a MASTER_PORT=p",
	"Open MPI":        "OMPI_COMM_WORLD_RANK=r OMPI_COMM_WORLD_SIZE=n OMPI_COMM_WORLD_LOCAL_RANK=r OMPI_COMM_WORLD_LOCAL_SIZE=n MASTER_ADDR=a MASTER_PORT=p",
	"MPICH":           "PMI_RANK=r PMI_SIZE=n MPI_LOCALRANKID=r MPI_LOCALNRANKS=n MASTER_ADDR=a MASTER_PORT=p",
	"srun":            "SLURM_PROCID=r SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=n SLURM_LOCALID=r SLURM_STEP_NODELIST=a VIBRANT_PORT=p",
	"LeaderWorkerSet": "LWS_WORKER_INDEX=r LWS_GROUP_SIZE=n LWS_LEADER_ADDRESS=a VIBRANT_PORT=p",
}

// launch starts n processes as torchrun does; environment and arguments may differ by rank.
func launch(t *testing.T, n int, env func(rank int) []string, args func(rank int) []string) []*process {
	t.Helper()
	return launchBy(t, "torchrun", n, env, args)
}

func launchBy(t *testing.T, launcher string, n int, env func(rank int) []string, args func(rank int) []string) []*process {
	t.Helper()
	host, port, err := net.SplitHostPort(busy.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	var all []*process
	for rank := range n {
		line := args(rank)
		if line == nil {
			all = append(all, nil)
			continue
		}
		p := &process{Cmd: exec.Command(os.Args[0], asCommand)}
		variables := strings.NewReplacer("=r", fmt.Sprintf("=%d", rank), "=n", fmt.Sprintf("=%d", n), "=a", "="+host, "=p", "="+port)
		p.Env = append(append(os.Environ(), commandEnv(line...)), strings.Fields(variables.Replace(launchers[launcher]))...)
		if env != nil {
			p.Env = append(p.Env, env(rank)...)
		}
		p.Stdout, p.Stderr = &p.out, &p.err
		if p.stdin, err = p.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Process.Kill(); p.Wait() })
		all = append(all, p)
	}
	return all
}

func same(args ...string) func(int) []string { return func(int) []string { return args } }

// end waits for a rank and returns its status.
func (p *process) end(t *testing.T) int {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.Wait() }()
	select {
	case <-done:
	case <-time.After(busy.Limit):
		p.Process.Kill()
		<-done
		t.Errorf("did not end: %s%s", &p.out, &p.err)
	}
	return p.ProcessState.ExitCode()
}

// wantLine wants a status and, for status 1, this as the only line.
func (p *process) wantLine(t *testing.T, status int, pattern string) {
	t.Helper()
	got := p.end(t)
	if text := p.err.String(); got != status || !regexp.MustCompile(`(?s)\A(vibrant: [^\n]*`+pattern+`[^\n]*\n)\z`).MatchString(text) {
		t.Errorf("status %d, want %d; stderr %q, want a line with %q", got, status, text, pattern)
	}
}

func TestRanksAnswerAsOne(t *testing.T) {
	for _, kv := range []string{"f32", "f16", "q8_0"} { // of the embedded model, whose weights are quantized
		args := []string{"complete", "--device", "cpu", "-t", "1", "-c", "256", "-p", "Vibrant is", "-n", "24", "--temp", "0", "--kv-type", kv}
		status, want, errs := command(t, "", args...)
		if status != 0 || len(want) < 24 {
			t.Fatal(status, want, errs)
		}
		ranks := launch(t, 2, nil, same(args...))
		for rank, p := range ranks {
			if status := p.end(t); status != 0 {
				t.Errorf("rank %d: status %d: %s", rank, status, &p.err)
			}
		}
		if got := ranks[0].out.String(); got != want {
			t.Errorf("%s: ranks answer %q, one process %q", kv, got, want)
		}
		if ranks[1].out.String() != "" {
			t.Errorf("rank 1 says %q", &ranks[1].out)
		}
	}
}

func TestRanksOfEveryLauncherAnswerAsOne(t *testing.T) {
	m := write(t, "m.gguf", testmodel.Random(testmodel.Tiny))
	args := []string{"complete", "-m", m, "--device", "cpu", "-t", "1", "--ids", "3,1", "-n", "12", "--temp", "0", "--ignore-eos"}
	status, want, errs := command(t, "", args...)
	if status != 0 || want == "" {
		t.Fatal(status, want, errs)
	}
	for launcher := range launchers {
		ranks := launchBy(t, launcher, 2, nil, same(args...))
		for rank, p := range ranks {
			if status := p.end(t); status != 0 {
				t.Errorf("%s: rank %d: status %d: %s", launcher, rank, status, &p.err)
			}
		}
		if got := ranks[0].out.String() + ranks[1].out.String(); got != want {
			t.Errorf("%s: ranks answer %q, one process %q", launcher, got, want)
		}
	}
}

// TestRanksThatSampleStayInStep has no seed, which each process would choose for itself.
func TestRanksThatSampleStayInStep(t *testing.T) {
	m := write(t, "m.gguf", testmodel.Random(testmodel.Tiny))
	ranks := launch(t, 2, nil, same("complete", "-m", m, "--device", "cpu", "-t", "1", "--ids", "3,1", "-n", "30", "--temp", "1.5", "--ignore-eos"))
	for rank, p := range ranks {
		if status := p.end(t); status != 0 {
			t.Errorf("rank %d: status %d: %s", rank, status, &p.err)
		}
	}
	if n := len(strings.Fields(ranks[0].out.String())); n == 0 {
		t.Errorf("%q", &ranks[0].out)
	}
}

func TestRanksThatDifferSayWhatDiffers(t *testing.T) {
	a := write(t, "a.gguf", testmodel.Random(testmodel.Tiny))
	shape := testmodel.Tiny
	shape.Vocab++
	b := write(t, "b.gguf", testmodel.Random(shape))
	base := []string{"complete", "--ids", "1,2", "--device", "cpu", "-t", "1"}
	for pattern, args := range map[string]func(rank int) []string{
		`rank 1 \(process \d+ on .*\) has another model file than rank 0: `: func(rank int) []string {
			return append(base[:len(base):len(base)], "-m", []string{a, b}[rank])
		},
		`rank 1 \(process \d+ on .*\) has another type of cache than rank 0: f16, not f32`: func(rank int) []string {
			return append(base[:len(base):len(base)], "-m", a, "--kv-type", []string{"f32", "f16"}[rank])
		},
		`cuda|no such device|not compiled`: func(rank int) []string { // fewer devices than asked
			return []string{"complete", "--ids", "1,2", "-m", a, "--device", "cuda"}
		},
		`does not fit`: func(rank int) []string {
			return append(base[:len(base):len(base)], "-m", a, "--memory-fraction", []string{"0.8", "0.0000001"}[rank])
		},
	} {
		for _, p := range launch(t, 2, nil, args) {
			p.wantLine(t, 1, "("+pattern+")")
		}
	}
}

// TestARankThatFailsBeforeItMeetsTheOthersIsNamed has a rank without the file, or with a command line that it refuses: the others end
// at once with its reason, in place of a wait of two minutes.
func TestARankThatFailsBeforeItMeetsTheOthersIsNamed(t *testing.T) {
	m := write(t, "m.gguf", testmodel.Random(testmodel.Tiny))
	for _, c := range []struct {
		who, status int
		args        []string // of who
		pattern     string
	}{
		{1, 1, []string{"complete", "-m", "absent.gguf", "--ids", "1", "--device", "cpu"}, `no such model: "absent.gguf"`},
		{0, 1, []string{"complete", "-m", "absent.gguf", "--ids", "1", "--device", "cpu"}, `no such model: "absent.gguf"`},
		{0, 2, []string{"complete", "-m", m, "once upon a time", "--device", "cpu"}, `the text is -p "once upon a time"`},
	} {
		start := time.Now()
		ranks := launch(t, 2, nil, func(rank int) []string {
			if rank == c.who {
				return c.args
			}
			return []string{"complete", "-m", m, "--ids", "1", "--device", "cpu"}
		})
		ranks[c.who].wantLine(t, c.status, c.pattern)
		ranks[1-c.who].wantLine(t, 1, fmt.Sprintf(`rank %d \(process \d+ on .*\): .*`, c.who)+c.pattern)
		if took := time.Since(start); took > time.Minute {
			t.Errorf("rank %d failed at once, the other ended after %v", c.who, took)
		}
	}
}

func TestAHostThatDoesNotAnswerEndsTheOthers(t *testing.T) {
	m := write(t, "m.gguf", testmodel.Random(testmodel.Tiny))
	for absent, pattern := range []string{`rank 0 at 127[.\d]+:\d+ does not answer within 1s`, `rank 1 of 2 did not answer at 127[.\d]+:\d+ within 1s`} {
		for _, p := range launch(t, 2, nil, func(rank int) []string {
			if rank == absent {
				return nil
			}
			return []string{"complete", "-m", m, "--ids", "1", "--device", "cpu", "--ranks-timeout", "1s"}
		}) {
			if p != nil {
				p.wantLine(t, 1, pattern)
			}
		}
	}
}

func TestARankThatDiesEndsAllWithItsName(t *testing.T) {
	for who := range 2 {
		ranks := launch(t, 2, nil, same("chat", "-c", "256", "--temp", "0", "--device", "cpu", "-t", "1"))
		io.WriteString(ranks[0].stdin, "What is 2+3?\n")
		busy.Until(t, "no answer", func() bool { return strings.Contains(ranks[0].out.String(), "= 5") })
		ranks[who].Process.Signal(syscall.SIGKILL)
		other := ranks[1-who]
		if status := other.end(t); status != 1 {
			t.Errorf("status %d", status)
		}
		if want := fmt.Sprintf("vibrant: rank %d (process %d on ", who, ranks[who].Process.Pid); !strings.HasPrefix(other.err.String(), want) ||
			strings.Count(other.err.String(), "\n") != 1 {
			t.Errorf("rank %d says %q, want %q", 1-who, &other.err, want)
		}
	}
}

func TestAnInterruptEndsAllRanks(t *testing.T) {
	for who := range 2 {
		ranks := launch(t, 2, nil, same("chat", "-c", "256", "--temp", "0", "--device", "cpu", "-t", "1"))
		io.WriteString(ranks[0].stdin, "What is 2+3?\n")
		busy.Until(t, "no answer", func() bool { return strings.Contains(ranks[0].out.String(), "= 5") })
		ranks[who].Process.Signal(os.Interrupt)
		for rank, p := range ranks {
			// Rank 0 leaves in order, which is no failure of the others.
			if status := p.end(t); rank == who && status != 130 || rank == 0 && status == 0 {
				t.Errorf("interrupt of rank %d: rank %d ended with %d: %s", who, rank, status, &p.err)
			}
		}
	}
}

func TestHalfASetOfVariablesIsAnError(t *testing.T) {
	t.Setenv("RANK", "0")
	if status, _, errs := command(t, "", "complete", "--ids", "1"); status != 2 || !strings.Contains(errs, "WORLD_SIZE is not set, beside RANK=0") {
		t.Error(status, errs)
	}
	m := reciter(t)
	if status, out, errs := command(t, "", "ask", "-m", m, "--ranks", "off", "Hi"); status != 0 || !strings.Contains(out, "recite") {
		t.Error(status, errs)
	}
	t.Setenv("RANK", "") // a wrong word is refused without a launcher too
	for _, args := range [][]string{{"--ranks", "some"}, {"--ranks-timeout", "0s"}, {"--exchange", "udp"}} {
		if status, _, errs := command(t, "", append([]string{"ask", "-m", m, "Hi"}, args...)...); status != 2 {
			t.Error(args, status, errs)
		}
	}
}
