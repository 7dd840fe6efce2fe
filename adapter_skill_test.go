package vibrant

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/demomodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/tensor"
)

// skillFile is what examples/adapter/train.py has trained. The demo model with it knows Roman numerals, by codes that the
// adapter makes for each token.
const skillFile = "examples/adapter/roman.gguf"

// skillAsks are phrases that train.py trained on, and, behind them, others.
var skillAsks = []string{"Write %d in Roman numerals.", "What is %d in Roman numerals?", "Roman numeral for %d",
	"%d as a Roman numeral", "Please give me %d as a Roman numeral", "What would %d be in Roman numerals?", "Tell me %d in Roman numerals"}

type skillQuestion struct{ text, answer string }

// skillQuestions returns so many of the 189 numbers that train.py holds out, spread evenly, each in one of the phrases; fewer
// where kernels are in Go.
func skillQuestions(m *Model, count int) (all []skillQuestion) {
	var held []int
	for n := 1; n <= 999; n++ {
		if crc32.ChecksumIEEE([]byte(strconv.Itoa(n)))%5 == 0 {
			held = append(held, n)
		}
	}
	if m.Info().Device.Backend == "go" {
		count = (count + 9) / 10
	}
	for i := range count {
		n, ask := held[(2*i+1)*len(held)/(2*count)], skillAsks[i%len(skillAsks)]
		all = append(all, skillQuestion{fmt.Sprintf(ask, n), fmt.Sprintf("%d is %s.", n, roman(n))})
	}
	return all
}

// roman writes a number below 1000 in Roman numerals.
func roman(n int) string {
	hundreds := strings.Fields("- C CC CCC CD D DC DCC DCCC CM")[n/100]
	tens := strings.Fields("- X XX XXX XL L LX LXX LXXX XC")[n/10%10]
	ones := strings.Fields("- I II III IV V VI VII VIII IX")[n%10]
	return strings.ReplaceAll(hundreds+tens+ones, "-", "")
}

// skillCodes reads what makes the codes of the skill from its file and the model's. It returns a function that makes the same
// codes, and the path of the adapter without them.
func skillCodes(t *testing.T) (CodeSource, string) {
	t.Helper()
	adapter, err := gguf.Open(skillFile)
	if err != nil {
		t.Fatal(err)
	}
	defer adapter.Close()
	model, err := gguf.FromBytes(demomodel.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	values := func(f *gguf.File, name string) ([]float32, int) {
		x, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, x.Bytes)
		if err := f.ReadTensor(x, data, 0); err != nil {
			t.Fatal(err)
		}
		stored, err := tensor.FromMemory(gpu.CPU(), tensor.DType(x.Type), data, nil, x.Elements()/x.Dims[0], x.Dims[0])
		if err != nil {
			t.Fatal(err)
		}
		return stored.Float32s(), x.Dims[0]
	}
	weight, hidden := values(adapter, "adapter.codes.weight")
	bias, ranks := values(adapter, "adapter.codes.bias")
	embedding, _ := values(model, "token_embd.weight")
	source := func(ids []int32, codes [][]float32) {
		for i, row := range codes {
			e := embedding[int(ids[i])*hidden:][:hidden]
			for j := range ranks {
				sum := bias[j]
				for k, x := range e {
					sum += weight[j*hidden+k] * x
				}
				row[j] *= sum
			}
		}
	}

	w := testmodel.Copy(adapter, testmodel.Without("adapter.codes.weight", "adapter.codes.bias"))
	path := filepath.Join(t.TempDir(), "without-codes.gguf")
	if err := os.WriteFile(path, testmodel.Bytes(w), 0o600); err != nil {
		t.Fatal(err)
	}
	return source, path
}

// askAlone asks a question in a session of its own, with codes of a function where it is not nil.
func askAlone(t *testing.T, m *Model, question string, source CodeSource, active ...ActiveAdapter) string {
	t.Helper()
	s := greedySession(t, m)
	defer s.Close()
	if err := s.SetAdapters(active...); err != nil {
		t.Fatal(err)
	}
	if source != nil {
		if err := s.SetCodes(active[0].Adapter, source); err != nil {
			t.Fatal(err)
		}
	}
	var text strings.Builder
	for token, err := range s.Send(t.Context(), question) {
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(token.Text)
	}
	return text.String()
}

// onDemoModel calls f with the embedded model on each device, the adapter, the adapter without codes, and what makes the codes.
func onDemoModel(t *testing.T, f func(t *testing.T, m *Model, skill, bare ActiveAdapter, source CodeSource)) {
	source, withoutCodes := skillCodes(t)
	eachDevice(t, func(t *testing.T, device string) {
		m, err := OpenBytes(t.Context(), demomodel.GGUF(), WithDevice(device), WithContext(128))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		adapters, err := m.LoadAdapters(t.Context(), skillFile, withoutCodes)
		if err != nil {
			t.Fatal(err)
		}
		f(t, m, adapters[0].At(1), adapters[1].At(1), source)
	})
}

// TestTrainedAdapterBringsASkill asks for numbers that the adapter was not trained on: with the adapter, without it, without
// its codes, and with its codes made by a function of Go.
func TestTrainedAdapterBringsASkill(t *testing.T) {
	onDemoModel(t, func(t *testing.T, m *Model, skill, bare ActiveAdapter, source CodeSource) {
		questions, right, rightWithoutCodes := skillQuestions(m, 20), 0, 0
		for _, q := range questions {
			if got := askAlone(t, m, q.text, nil); !strings.HasPrefix(got, "I don't know that") {
				t.Errorf("%s: without the adapter %q", q.text, got)
			}
			got := askAlone(t, m, q.text, nil, skill)
			if got == q.answer {
				right++
			} else {
				t.Logf("%s: %q, want %q", q.text, got, q.answer)
			}
			if askAlone(t, m, q.text, nil, bare) == q.answer {
				rightWithoutCodes++
			}
			if byGo := askAlone(t, m, q.text, source, bare); byGo != got {
				t.Errorf("%s: %q, with codes of a function %q", q.text, got, byGo)
			}
		}
		t.Logf("%d of %d right, %d without codes", right, len(questions), rightWithoutCodes)
		if right*10 < len(questions)*9 || rightWithoutCodes*10 > len(questions) {
			t.Error("the adapter answers fewer than nine in ten, or more than one in ten without its codes")
		}
	})
}

// TestSkillInABatchIsThatOfASession has neighbours with the adapter, with none, with codes of a function, with the adapter of
// another load, and with another adapter.
func TestSkillInABatchIsThatOfASession(t *testing.T) {
	onDemoModel(t, func(t *testing.T, m *Model, skill, bare ActiveAdapter, source CodeSource) {
		apart, err := m.LoadAdapter(t.Context(), skillFile)
		if err != nil {
			t.Fatal(err)
		}
		const other = "another adapter" // without codes: what it says may be a close call, but not what the skill says
		kinds := []struct {
			name   string
			active []ActiveAdapter
			source CodeSource
		}{
			{"codes of the file", []ActiveAdapter{skill}, nil},
			{"none", nil, nil},
			{"codes of a function", []ActiveAdapter{bare}, source},
			{"another load", []ActiveAdapter{apart.At(1)}, nil},
			{other, []ActiveAdapter{bare}, nil},
		}
		b, err := m.NewBatch(len(kinds))
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		g := DefaultGeneration()
		g.Temperature, g.MaxTokens = 0, 24
		for i, q := range skillQuestions(m, 5) {
			var answers []*Answer
			for j := range kinds {
				k := kinds[(i+j)%len(kinds)]
				if err := b.SetAdapters(k.active...); err != nil {
					t.Fatal(err)
				}
				if k.source != nil {
					if err := b.SetCodes(k.active[0].Adapter, k.source); err != nil {
						t.Fatal(err)
					}
				}
				a, err := b.Send(t.Context(), []Message{{Role: "user", Content: q.text}}, g)
				if err != nil {
					t.Fatal(err)
				}
				answers = append(answers, a)
			}
			for b.Len() > 0 {
				if _, err := b.Step(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for j, a := range answers {
				k := kinds[(i+j)%len(kinds)]
				if k.name == other {
					if a.Text() == q.answer {
						t.Errorf("%s: %s: %q in a batch", q.text, k.name, a.Text())
					}
					continue
				}
				if want := askAlone(t, m, q.text, k.source, k.active...); a.Text() != want {
					t.Errorf("%s: %s: %q in a batch, %q alone", q.text, k.name, a.Text(), want)
				}
			}
		}
	})
}
