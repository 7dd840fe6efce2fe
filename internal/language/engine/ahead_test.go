package engine

import (
	"context"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestGreedyStepIsEnqueuedBeforeItsTokenIsRead: the device has the next step when the host gets a token.
func TestGreedyStepIsEnqueuedBeforeItsTokenIsRead(t *testing.T) {
	hw, d := fakeGPU(t)
	m := randomModel(t, d, testmodel.Tiny)
	s := newSession(t, m, Options{Context: 256, KVType: tensor.F16})
	greedy(t, s, randomIDs(1, 20, m.Vocab), 5)
	for i := range 10 {
		id, err := s.Next(nil)
		launches := hw.Calls(fake.Launch)
		if err == nil {
			err = s.Step(id, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := hw.Calls(fake.Launch) - launches; n != 0 {
			t.Errorf("token %d: feeding it took %d launches: it was not enqueued ahead", i, n)
		}
		again, err := s.Next(nil)
		if twice, _ := s.Next(nil); err != nil || twice != again {
			t.Errorf("token %d: asked twice, %d and %d, %v", i, again, twice, err)
		}
		if err := s.Step(again, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStepAheadThatWasForNothingLeavesNoTrace stops after a choice, or feeds another token than the chosen one.
func TestStepAheadThatWasForNothingLeavesNoTrace(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		m := randomModel(t, d, testmodel.Tiny)
		options := Options{Context: 128, KVType: tensor.F16}
		fresh := func(prompt []int32, n int) []int32 { return greedy(t, newSession(t, m, options), prompt, n) }
		s := newSession(t, m, options)
		prompt := randomIDs(7, 11, m.Vocab)
		for turn := range 6 {
			answer := greedy(t, s, prompt, 3+turn) // ends with a Next
			if want := fresh(prompt, 3+turn); !slices.Equal(answer, want) {
				t.Fatalf("turn %d: %v, want %v", turn, answer, want)
			}
			other := (answer[len(answer)-1] + 1) % int32(m.Vocab)
			text := slices.Concat(prompt, answer[:len(answer)-1], []int32{other})
			if err := s.Step(other, nil); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.Tokens(), text) {
				t.Fatalf("turn %d: the session holds %v, want %v", turn, s.Tokens(), text)
			}
			want := fresh(text, 4)
			for i := range want {
				got, err := s.Next(nil)
				if err == nil && got != want[i] {
					t.Fatalf("turn %d: after another token %d is chosen %d, want %d", turn, i, got, want[i])
				}
				if err == nil {
					err = s.Step(got, nil)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			prompt = slices.Concat(s.Tokens(), randomIDs(uint64(turn), 2, m.Vocab))
		}
		s.Reset()
		if err := s.Step(1, nil); err == nil {
			t.Error("a step was made after Reset")
		}
		if err := s.Prefill(context.Background(), prompt); err != nil {
			t.Error(err)
		}
	})
}
