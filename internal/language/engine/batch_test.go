package engine

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestSequencesOfABatchEqualAlone lets sequences of different lengths and choosers join and leave between steps.
func TestSequencesOfABatchEqualAlone(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		m := randomModel(t, d, testmodel.Tiny)
		const context128 = 128
		b, err := NewBatch(m, 5, Options{Context: context128, KVType: tensor.F16, Chunk: 16})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		type member struct {
			seq    *Sequence
			prompt []int32
			got    []int32
			joins  int // before which step
			leaves int
		}
		choosers := []Chooser{nil, nil, top{8}, nil, top{0}, top{3}, nil}
		var members []*member
		for i := range choosers {
			members = append(members, &member{prompt: randomIDs(uint64(i), 1+13*i, m.Vocab), joins: []int{0, 0, 3, 9, 12, 25, 30}[i], leaves: []int{20, 40, 24, 40, 28, 35, 40}[i]})
		}
		for step := range 40 {
			for i, x := range members {
				if x.leaves == step {
					x.seq.Leave()
					x.seq.Leave()
				}
				if x.joins == step {
					if x.seq, err = b.Join(context.Background(), x.prompt, choosers[i], false); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := b.Step(); err != nil {
				t.Fatal(err)
			}
			for _, x := range members {
				if x.joins <= step && step < x.leaves {
					x.got = append(x.got, x.seq.Newest())
				}
			}
		}
		for i, x := range members {
			want := greedy(t, newSession(t, m, Options{Context: context128, KVType: tensor.F16, Chunk: 16}), x.prompt, len(x.got))
			if len(x.got) != x.leaves-x.joins || !slices.Equal(x.got, want) {
				t.Errorf("sequence %d: %v, alone %v", i, x.got, want)
			}
		}
	})
}

func TestBatchSaysWhatDoesNotFit(t *testing.T) {
	d, err := gpu.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m := randomModel(t, d, testmodel.Tiny)
	for _, n := range []int{0, -1, MaxSequences + 1} {
		if _, err := NewBatch(m, n, Options{Context: 8, KVType: tensor.F16}); err == nil {
			t.Errorf("a batch of %d was opened", n)
		}
	}
	b, err := NewBatch(m, 2, Options{Context: 8, KVType: tensor.F16})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Step(); err != nil {
		t.Errorf("a step of none: %v", err)
	}
	if _, err := b.Join(context.Background(), make([]int32, 9), nil, false); !errors.Is(err, ErrContextFull) {
		t.Errorf("nine tokens in a context of eight: %v", err)
	}
	s, err := b.Join(context.Background(), make([]int32, 7), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Join(context.Background(), make([]int32, 1), nil, false); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Join(context.Background(), make([]int32, 1), nil, false); !errors.Is(err, ErrBatchFull) {
		t.Errorf("a third of two: %v", err)
	}
	for room := 1; room >= 0; room-- { // the first step gives out what the prompt chose
		if err := b.Step(); err != nil || s.Room() != room {
			t.Fatalf("%v, room %d, want %d", err, s.Room(), room)
		}
	}
	if err := b.Step(); !errors.Is(err, ErrContextFull) {
		t.Errorf("a ninth token: %v", err)
	}
	s.Leave()
	if err := b.Step(); err != nil {
		t.Error(err)
	}
}

// TestBannedTokensAreNotChosenInABatch bans what two of three sequences would say; each equals a session with or without the ban.
func TestBannedTokensAreNotChosenInABatch(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		m := randomModel(t, d, testmodel.Tiny)
		o := Options{Context: 64, KVType: tensor.F16}
		const n = 12
		free := func(prompt []int32) []int32 { return greedy(t, newSession(t, m, o), prompt, n) }
		prompts := [][]int32{randomIDs(1, 5, m.Vocab), randomIDs(2, 9, m.Vocab), randomIDs(3, 7, m.Vocab)}
		banned := slices.Concat(free(prompts[0])[:2], free(prompts[2])[3:5])
		b, err := NewBatch(m, 3, o)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if err := b.Ban(banned); err != nil {
			t.Fatal(err)
		}
		var members []*Sequence
		for i, prompt := range prompts {
			s, err := b.Join(context.Background(), prompt, nil, i != 1)
			if err != nil {
				t.Fatal(err)
			}
			members = append(members, s)
		}
		got := make([][]int32, len(members))
		for range n {
			if err := b.Step(); err != nil {
				t.Fatal(err)
			}
			for i, s := range members {
				got[i] = append(got[i], s.Newest())
			}
		}
		for i, prompt := range prompts {
			s := newSession(t, m, o)
			if i != 1 {
				if err := s.Ban(banned); err != nil {
					t.Fatal(err)
				}
			}
			if want := greedy(t, s, prompt, n); !slices.Equal(got[i], want) {
				t.Errorf("sequence %d: %v, alone %v", i, got[i], want)
			}
		}
	})
}

func TestRunsOfRowsAreFoundInASet(t *testing.T) {
	for set, want := range map[rowSet][][2]int{
		0: nil, 1: {{0, 1}}, 0b1011: {{0, 2}, {3, 4}}, ^rowSet(0): {{0, 64}}, 1 << 63: {{63, 64}}, 0b0110: {{1, 3}},
	} {
		var got [][2]int
		set.runs(func(from, to int) { got = append(got, [2]int{from, to}) })
		if !slices.Equal(got, want) {
			t.Errorf("%b: %v, want %v", set, got, want)
		}
	}
}
