package vibrant

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/demomodel"
	"github.com/vibrant-ml/vibrant/internal/language/engine"
	"github.com/vibrant-ml/vibrant/tensor"
)

// eachDevice runs f with the name of each device that this process can use.
func eachDevice(t *testing.T, f func(t *testing.T, device string)) {
	t.Helper()
	infos, err := gpu.Devices()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range infos {
		t.Run(d.ID, func(t *testing.T) { f(t, d.ID) })
	}
}

// say returns what a session answers to a question.
func say(m *Model, g Generation, question string) (string, error) {
	s, err := m.NewSession(WithGeneration(g))
	if err != nil {
		return "", err
	}
	defer s.Close()
	var text strings.Builder
	for token, err := range s.Send(context.Background(), question) {
		if err != nil {
			return text.String(), err
		}
		text.WriteString(token.Text)
	}
	return text.String(), nil
}

// TestSessionsThatAnswerAtTheSameTimeSayTheSame has every session begin on a thread of its own, as far as Go has threads: on a GPU
// 576 at a time, as its context belongs to a thread.
func TestSessionsThatAnswerAtTheSameTimeSayTheSame(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		m, err := OpenBytes(context.Background(), demomodel.GGUF(), WithDevice(device), WithContext(256))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		g := DefaultGeneration()
		g.Temperature, g.MaxTokens = 0, 12
		const question = "What is Vibrant?"
		want, err := say(m, g, question)
		if err != nil {
			t.Fatal(err)
		}
		sessions := 4
		if strings.HasPrefix(device, "cuda") {
			sessions = 576
		}
		var group sync.WaitGroup
		for i := range sessions {
			group.Add(1)
			go func() {
				defer group.Done()
				runtime.LockOSThread() // a fresh thread, which ends with the goroutine
				if got, err := say(m, g, question); err != nil || got != want {
					t.Errorf("session %d: %q, %v, want %q", i, got, err, want)
				}
			}()
		}
		group.Wait()
		t.Logf("%d sessions at the same time", sessions)
	})
}

// TestSessionsTakeWhatTheirCacheAndRowsNeed counts all memory that sessions of the embedded model hold after an answer: the cache, the
// rows of a chunk, and less than a mebibyte for kernels. What adapters need is taken when one is used.
func TestSessionsTakeWhatTheirCacheAndRowsNeed(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		const room, rows, count = 256, 24, 8
		m, err := OpenBytes(context.Background(), demomodel.GGUF(), WithDevice(device), WithContext(room))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		g := DefaultGeneration()
		g.Temperature, g.MaxTokens = 0, 12
		var before int64
		for i := range count + 1 {
			s, err := m.NewSession(WithGeneration(g))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for _, err := range s.Send(context.Background(), "What is Vibrant?") {
				if err != nil {
					t.Fatal(err)
				}
			}
			if i == 0 { // what all share is there
				before = m.device.Pool().Stats().InUse
			}
		}
		each := (m.device.Pool().Stats().InUse - before) / count
		cache, rest := engine.SessionBytes(&m.model.Config, m.device, engine.Options{Context: room, KVType: tensor.F16})
		t.Logf("a session takes %.2f MiB, %.2f of them its cache; at most %.2f, with prompts of %d tokens", float64(each)/(1<<20), float64(cache)/(1<<20),
			float64(cache+rest)/(1<<20), room)
		if rows := m.model.Config.WorkspaceBytes(rows, 1); each <= cache || each >= min(cache+rows+1<<20, 2<<20) {
			t.Errorf("a session takes %d bytes, its cache %d and its rows %d", each, cache, rows)
		}
	})
}

// TestSameSeedSaysTheSame answers 20 times with one seed, alone and beside others in a batch.
func TestSameSeedSaysTheSame(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		m, err := OpenBytes(context.Background(), demomodel.GGUF(), WithDevice(device), WithContext(256))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		g := DefaultGeneration()
		seed := uint64(7)
		g.Seed, g.MaxTokens, g.Temperature, g.TopK = &seed, 16, 1.5, 0
		const question = "Tell me about streams."
		want, err := say(m, g, question)
		if err != nil {
			t.Fatal(err)
		}
		runs := 20
		if testing.Short() {
			runs = 5
		}
		for i := range runs {
			if got, err := say(m, g, question); err != nil || got != want {
				t.Fatalf("run %d: %q, %v, want %q", i, got, err, want)
			}
		}
		b, err := m.NewBatch(3)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		var answers []*Answer
		for _, q := range []string{"Hello!", question, "What is 2 + 2?"} {
			a, err := b.Send(context.Background(), []Message{{"user", q}}, g)
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, a)
		}
		for b.Len() > 0 {
			if _, err := b.Step(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%d runs are equal; in a batch the answer is the same: %v", runs, answers[1].Text() == want)
		if m.device.Info().HostMemory && answers[1].Text() != want { // a GPU multiplies several rows by other kernels
			t.Errorf("in a batch: %q, alone %q", answers[1].Text(), want)
		}
	})
}

// resident returns the bytes of memory and the open files of this process, 0 where the system does not tell.
func resident(t *testing.T) (bytes int64, files int) {
	t.Helper()
	for last := uint64(math.MaxUint64); ; { // what a collection's cleanups let go of, the next one takes
		debug.FreeOSMemory()
		var now runtime.MemStats
		if runtime.ReadMemStats(&now); now.HeapAlloc > last-last/64 {
			break
		}
		last = now.HeapAlloc
		time.Sleep(10 * time.Millisecond)
	}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		var size, pages int64
		fmt.Sscan(string(text), &size, &pages)
		bytes = pages * int64(os.Getpagesize())
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		files = len(open)
	}
	return bytes, files
}

// TestModelsThatAreLoadedAgainAndAgainLeaveNothing loads a model from a file 100 times and answers with it. Memory may grow by a
// twentieth and 8 MiB, which the allocators of Go and C keep, a GPU's by 2 MiB.
func TestModelsThatAreLoadedAgainAndAgainLeaveNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, testmodel.Reciter("▁one", "▁two"), 0o600); err != nil {
		t.Fatal(err)
	}
	eachDevice(t, func(t *testing.T, device string) {
		g := DefaultGeneration()
		g.Temperature = 0
		load := func() {
			m, err := Open(context.Background(), path, WithDevice(device), WithContext(64))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := say(m, g, "Count!"); err != nil || got != " one two" {
				t.Fatalf("%q, %v", got, err)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			load()
		}
		d, err := gpu.Open(device)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		free, _, err := d.Memory()
		if err != nil {
			t.Fatal(err)
		}
		before, files := resident(t)
		for range 100 {
			load()
		}
		after, open := resident(t)
		t.Logf("100 loads: %.1f MB before, %.1f after, %d files open before, %d after", float64(before)/1e6, float64(after)/1e6, files, open)
		if now, _, err := d.Memory(); err != nil || !d.Info().HostMemory && now < free-2<<20 {
			t.Errorf("%d bytes of the GPU were free, %d are: %v", free, now, err)
		}
		if after > before+before/20+8<<20 || open > files {
			t.Errorf("%d bytes before, %d after; %d files open before, %d after", before, after, files, open)
		}
	})
}

// TestFileThatIsCutShortEndsAnAnswer cuts the file of a model that a CPU computes with.
func TestFileThatIsCutShortEndsAnAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, demomodel.GGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Open(context.Background(), path, WithDevice("cpu"), WithContext(512))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	tokens := 0
	var failed error
	for _, err := range s.CompleteIDs(context.Background(), slices.Repeat([]int32{5, 6, 7}, 10)) {
		if tokens++; err != nil {
			failed = err
			break
		}
		if tokens == 3 {
			if err := os.Truncate(path, 8192); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !errors.Is(failed, ErrFileChanged) {
		t.Errorf("after %d tokens: %v", tokens, failed)
	}
}

func TestAnswersAreCancelledAThousandTimes(t *testing.T) {
	m := reciter(t)
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 1000 {
		ctx, cancel := context.WithCancel(context.Background())
		tokens := 0
		for _, err := range s.CompleteIDs(ctx, []int32{1, 5, 6}) {
			if err != nil {
				if !errors.Is(err, context.Canceled) || tokens == 0 {
					t.Fatalf("answer %d: %v after %d tokens", i, err, tokens)
				}
				break
			}
			if tokens++; tokens > 1+i%3 {
				t.Fatalf("answer %d: a token came after it was cancelled", i)
			}
			if tokens == 1+i%3 {
				cancel()
			}
		}
		cancel()
	}
	t.Log("1000 answers ended before their next token")
}

// TestConversationOfManyTurnsStaysFlat holds the memory of the process after 500 turns against that after 100. It may grow by a
// twentieth and 4 MiB, which Go's heap keeps.
func TestConversationOfManyTurnsStaysFlat(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		m, err := OpenBytes(context.Background(), testmodel.Reciter("▁one", "▁two"), WithDevice(device), WithContext(64))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		g := DefaultGeneration()
		g.Temperature, g.MaxTokens = 0, 4
		s, err := m.NewSession(WithGeneration(g), WithContextFull(ContextDrop))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var before int64
		for turn := range 500 {
			for _, err := range s.Send(context.Background(), "Count!") {
				if err != nil {
					t.Fatal(err)
				}
			}
			if turn == 99 {
				before, _ = resident(t)
			}
		}
		after, _ := resident(t)
		t.Logf("500 turns: %.1f MB after 100, %.1f after all (%s kernels)", float64(before)/1e6, float64(after)/1e6, m.device.Info().Backend)
		if after > before+before/20+4<<20 {
			t.Errorf("%d bytes after 100 turns, %d after 500", before, after)
		}
	})
}
