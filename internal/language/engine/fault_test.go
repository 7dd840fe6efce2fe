package engine

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

func fakeGPU(t *testing.T) (*fake.GPU, *gpu.Device) {
	t.Helper()
	b := fake.New(fake.Config{})
	d, err := gpu.OpenBackend(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	tensor.SetStrict(true)
	t.Cleanup(func() { tensor.SetStrict(false) })
	return b.GPU(0), d
}

var errInjected = errors.New("injected")

func TestFailedAllocationLeavesNothingBehind(t *testing.T) {
	hw, d := fakeGPU(t)
	data := testmodel.Random(testmodel.Tiny)
	opened := false
	for n := 0; !opened && n < 500; n++ {
		d.Pool().Trim()
		before := d.Pool().Stats().InUse
		f, err := gguf.FromBytes(data)
		if err != nil {
			t.Fatal(err)
		}
		hw.FailAfter(fake.Alloc, n, errInjected)
		m, err := model.Load(context.Background(), f, d, model.Options{})
		if err == nil {
			var s *Session
			if s, err = New(m, Options{Context: 64, KVType: tensor.F16}); err == nil {
				opened = true
				s.Close()
			}
			m.Close()
		}
		if err != nil && !errors.Is(err, errInjected) {
			t.Fatalf("allocation %d: %v", n, err)
		}
		if now := d.Pool().Stats().InUse; now != before {
			t.Fatalf("allocation %d failed and %d bytes stay in use", n, now-before)
		}
	}
	if !opened {
		t.Error("never opened")
	}
	hw.FailAfter(fake.Alloc, -1, nil)
}

func TestFailedStepIsAnErrorAndPrefillRecovers(t *testing.T) {
	hw, d := fakeGPU(t)
	m := randomModel(t, d, testmodel.Tiny)
	prompt := randomIDs(1, 20, m.Vocab)
	want := greedy(t, newSession(t, m, Options{Context: 128, KVType: tensor.F16}), prompt, 30)
	for _, call := range []fake.Call{fake.Launch, fake.Copy, fake.Sync} {
		for _, n := range []int{0, 1, 5, 60} {
			s := newSession(t, m, Options{Context: 128, KVType: tensor.F16, Chunk: 8})
			if err := s.Prefill(context.Background(), prompt[:15]); err != nil {
				t.Fatal(err)
			}
			hw.FailAfter(call, n, errInjected)
			var failed error
			err := s.Prefill(context.Background(), prompt)
			for range 30 {
				var id int32
				if err == nil {
					id, err = s.Next(nil)
				}
				if err == nil {
					err = s.Step(id, nil)
				}
				if err != nil {
					failed = err
					break
				}
			}
			hw.FailAfter(call, -1, nil)
			if failed != nil && !errors.Is(failed, errInjected) {
				t.Errorf("call %d after %d: %v", call, n, failed)
			}
			if got := greedy(t, s, prompt, 30); !slices.Equal(got, want) {
				t.Errorf("call %d after %d: afterwards %v, want %v", call, n, got, want)
			}
		}
	}
}

func TestLostDeviceIsSaid(t *testing.T) {
	hw, d := fakeGPU(t)
	m := randomModel(t, d, testmodel.Tiny)
	s := newSession(t, m, Options{Context: 128, KVType: tensor.F16})
	greedy(t, s, randomIDs(1, 20, m.Vocab), 5)
	hw.Poison()
	err := s.Step(1, nil)
	if err == nil {
		_, err = s.Next(nil)
	}
	if !errors.Is(err, gpu.ErrDeviceLost) {
		t.Error(err)
	}
	if err := s.Close(); err != nil && !errors.Is(err, gpu.ErrDeviceLost) {
		t.Error(err)
	}
}

// TestStepIsOneLaunch: nothing but one graph goes to the device for a token, and nothing but one copy of its id comes back.
func TestStepIsOneLaunch(t *testing.T) {
	hw, d := fakeGPU(t)
	m := randomModel(t, d, testmodel.Tiny)
	s := newSession(t, m, Options{Context: 256, KVType: tensor.F16})
	greedy(t, s, randomIDs(1, 20, m.Vocab), 5)
	id, err := s.Next(nil)
	launches, copies := hw.Calls(fake.Launch), hw.Calls(fake.Copy)
	const n = 50
	for range n {
		if err == nil {
			err = s.Step(id, nil)
		}
		if err == nil {
			id, err = s.Next(nil)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if l, c := hw.Calls(fake.Launch)-launches, hw.Calls(fake.Copy)-copies; l != n || c != n {
		t.Errorf("%d tokens took %d launches and %d copies", n, l, c)
	}
}
