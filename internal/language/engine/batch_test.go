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
					if x.seq, err = b.Join(context.Background(), x.prompt, choosers[i]); err != nil {
						t.Fatal(err)
					}
					x.got = append(x.got, x.seq.Newest())
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
			if len(x.got) != x.leaves-x.joins+1 || !slices.Equal(x.got, want) {
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
	if _, err := b.Join(context.Background(), make([]int32, 9), nil); !errors.Is(err, ErrContextFull) {
		t.Errorf("nine tokens in a context of eight: %v", err)
	}
	s, err := b.Join(context.Background(), make([]int32, 7), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Join(context.Background(), make([]int32, 1), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Join(context.Background(), make([]int32, 1), nil); !errors.Is(err, ErrBatchFull) {
		t.Errorf("a third of two: %v", err)
	}
	if err := b.Step(); err != nil || s.Room() != 0 {
		t.Fatalf("%v, room %d", err, s.Room())
	}
	if err := b.Step(); !errors.Is(err, ErrContextFull) {
		t.Errorf("a ninth token: %v", err)
	}
	s.Leave()
	if err := b.Step(); err != nil {
		t.Error(err)
	}
}
