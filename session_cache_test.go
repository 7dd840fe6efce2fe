package vibrant

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/demomodel"
)

// talk sends a message and returns the answer.
func talk(t *testing.T, s *Session, text string) string {
	t.Helper()
	var out strings.Builder
	for token, err := range s.Send(context.Background(), text) {
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString(token.Text)
	}
	return out.String()
}

func greedySession(t *testing.T, m *Model) *Session {
	t.Helper()
	g := DefaultGeneration()
	g.Temperature, g.MaxTokens = 0, 24
	s, err := m.NewSession(WithGeneration(g))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestACacheGoesOnInAnotherSession holds the answers of a session that read the cache of another to those of the other.
func TestACacheGoesOnInAnotherSession(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		for _, kv := range []KVType{KVF32, KVF16, KVQ8} {
			m, err := OpenBytes(context.Background(), demomodel.GGUF(), WithDevice(device), WithContext(256), WithKVType(kv))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			first := greedySession(t, m)
			talk(t, first, "What is Vibrant?")
			var written bytes.Buffer
			if err := first.WriteCache(&written); err != nil {
				t.Fatal(err)
			}
			used := first.Stats().ContextUsed
			history := first.History()
			want := talk(t, first, "What is its license?")

			second := greedySession(t, m)
			if err := second.SetHistory(history); err != nil {
				t.Fatal(err)
			}
			if err := second.ReadCache(bytes.NewReader(written.Bytes())); err != nil {
				t.Fatal(err)
			}
			if got := talk(t, second, "What is its license?"); got != want {
				t.Errorf("%s: %q with the cache, %q before", kv, got, want)
			}
			if reused := second.Stats().ReusedTokens; reused < used-1 {
				t.Errorf("%s: %d of %d tokens were used again", kv, reused, used)
			}
			t.Logf("%s: %d tokens in %d bytes", kv, used, written.Len())
		}
	})
}

// TestACacheThatDoesNotFitIsRefused reads caches of others, and damaged ones. The session then holds nothing, and answers as ever.
func TestACacheThatDoesNotFitIsRefused(t *testing.T) {
	open := func(data []byte, options ...Option) *Model {
		m, err := OpenBytes(context.Background(), data, append([]Option{WithDevice("cpu"), WithContext(128), WithKVType(KVF16)}, options...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	written := func(m *Model) []byte {
		s := greedySession(t, m)
		talk(t, s, "Hello")
		var b bytes.Buffer
		if err := s.WriteCache(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	m := open(demomodel.GGUF())
	good := written(m)
	want := talk(t, greedySession(t, m), "Hello")

	damaged := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 1
		return b
	}
	changed := bytes.Clone(demomodel.GGUF())
	changed[len(changed)-1] ^= 1 // a weight
	for name, data := range map[string][]byte{
		"empty": nil, "mark": damaged(0), "length": damaged(10), "header": damaged(20), "an id": damaged(len(cacheMark) + 4 + 400),
		"a value": damaged(len(good) / 2), "checksum": damaged(len(good) - 1), "cut": good[:len(good)/2], "without checksum": good[:len(good)-32],
		"another model": written(open(testmodel.Reciter("▁one", "▁two"))), "a weight differs": written(open(changed)),
		"another type": written(open(demomodel.GGUF(), WithKVType(KVQ8))), "a longer context": longCache(t, open(demomodel.GGUF(), WithContext(256))),
	} {
		s := greedySession(t, m)
		if err := s.ReadCache(bytes.NewReader(data)); !errors.Is(err, ErrCacheMismatch) {
			t.Errorf("%s: %v", name, err)
		} else {
			t.Logf("%s: %v", name, err)
		}
		if n := s.Stats().ContextUsed; n != 0 {
			t.Errorf("%s: the session holds %d tokens", name, n)
		}
		if got := talk(t, s, "Hello"); got != want {
			t.Errorf("%s: then %q, want %q", name, got, want)
		}
	}
	s := greedySession(t, m)
	s.Close()
	if err := s.WriteCache(&bytes.Buffer{}); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := s.ReadCache(bytes.NewReader(good)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// longCache is a cache of more tokens than a context of 128 has.
func longCache(t *testing.T, m *Model) []byte {
	t.Helper()
	s := greedySession(t, m)
	if err := s.Prefill(context.Background(), slices.Repeat([]int32{1}, 200)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := s.WriteCache(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// FuzzReadCache reads caches whose checksum is right, whatever is in them: anybody can make one. It wants a refusal, after which nothing
// is held, or a session that goes on: what it says may be nonsense, and an error where its logits are no numbers.
func FuzzReadCache(f *testing.F) {
	m, err := OpenBytes(context.Background(), testmodel.Reciter("▁one", "▁two"), WithDevice("cpu"), WithContext(64), WithKVType(KVF16), WithThreads(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { m.Close() })
	g := DefaultGeneration()
	g.Temperature, g.MaxTokens = 0, 4
	session := func(t testing.TB) *Session {
		s, err := m.NewSession(WithGeneration(g))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := session(f)
	defer s.Close()
	if err := s.Prefill(context.Background(), []int32{1, 2, 3, 4, 5}); err != nil {
		f.Fatal(err)
	}
	var written bytes.Buffer
	if err := s.WriteCache(&written); err != nil {
		f.Fatal(err)
	}
	good := written.Bytes()[:written.Len()-sha256.Size]
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(append(bytes.Clone(good), 0))
	end := len(cacheMark) + 4 + int(binary.LittleEndian.Uint32(good[len(cacheMark):]))
	for _, id := range []uint32{1 << 31, 1 << 30, uint32(m.Info().Vocab)} {
		f.Add(slices.Concat(good[:end], binary.LittleEndian.AppendUint32(nil, id), good[end+4:]))
	}
	for _, change := range [][2]string{
		{`"tokens":5`, `"tokens":-5`}, {`"tokens":5`, `"tokens":64`}, {`"tokens":5`, `"tokens":1000000000000`}, {`"tokens":5`, `"tokens":1e400`}, {`"tokens":5`, `"tokens":0`},
		{`"newest":5`, `"newest":9223372036854775807`}, {`"newest":5`, `"newest":-1`}, {`"rooms":`, `"live":[7,-2,9],"rooms":`}, {`"past":{`, `"past":{{`},
	} {
		text := strings.Replace(string(good[len(cacheMark)+4:end]), change[0], change[1], 1)
		if !strings.Contains(text, change[1]) {
			f.Fatalf("%s has no %s", text, change[0])
		}
		f.Add(slices.Concat([]byte(cacheMark), binary.LittleEndian.AppendUint32(nil, uint32(len(text))), []byte(text), good[end:]))
	}
	infinite := bytes.Clone(good)
	for i := len(infinite) - 64; i < len(infinite); i += 2 {
		infinite[i], infinite[i+1] = 0, 0x7c // in F16
	}
	f.Add(infinite)
	f.Fuzz(func(t *testing.T, b []byte) {
		sum := sha256.Sum256(b)
		s := session(t)
		defer s.Close()
		err := s.ReadCache(bytes.NewReader(append(b, sum[:]...)))
		if err != nil && (!errors.Is(err, ErrCacheMismatch) || s.Stats().ContextUsed != 0) {
			t.Fatal(err, s.Stats().ContextUsed)
		}
		if used := s.Stats().ContextUsed; used < 0 || used > 64 {
			t.Fatalf("%d tokens of a context of 64", used)
		}
		for range 2 {
			for _, err := range s.Send(context.Background(), "x") {
				if err != nil && !errors.Is(err, ErrContextFull) && !strings.Contains(err.Error(), "no number") {
					t.Fatal(err)
				}
			}
		}
	})
}
