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

// TestEveryFaultOfALoadAndFourTokens makes the n-th allocation, copy, launch and synchronization of a load, a prompt and four tokens
// fail, for every n until one passes. Each is the injected error, leaves no memory in use, and the next run answers as ever.
func TestEveryFaultOfALoadAndFourTokens(t *testing.T) {
	b := fake.New(fake.Config{Scratch: true})
	d, err := gpu.OpenBackend(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	hw := b.GPU(0)
	shape := testmodel.Tiny
	shape.Layers = 1
	data := testmodel.Random(shape)
	prompt := randomIDs(1, 10, shape.Vocab)
	run := func() ([]int32, error) { return loadAndFourTokens(d, data, prompt) }
	want, err := run()
	if err != nil {
		t.Fatal(err)
	}
	d.Pool().Trim()
	inUse := d.Pool().Stats().InUse
	faults := 0
	for call, name := range map[fake.Call]string{fake.Alloc: "allocation", fake.AllocHost: "host allocation", fake.Copy: "copy",
		fake.Launch: "launch", fake.Sync: "synchronization"} {
		for n, passed := 0, false; !passed; n++ {
			hw.FailAfter(call, n, errInjected)
			ids, err := run()
			hw.FailAfter(call, -1, nil)
			passed = err == nil
			switch {
			case passed && !slices.Equal(ids, want):
				t.Fatalf("%s %d: %v, want %v", name, n, ids, want)
			case !passed && !errors.Is(err, errInjected):
				t.Fatalf("%s %d: %v", name, n, err)
			}
			d.Pool().Trim() // so that each run asks the device
			if now := d.Pool().Stats().InUse; now != inUse {
				t.Fatalf("%s %d failed, and %d bytes stay in use", name, n, now-inUse)
			}
			faults++
		}
		if ids, err := run(); err != nil || !slices.Equal(ids, want) {
			t.Fatalf("after the faults of every %s: %v, %v, want %v", name, ids, err, want)
		}
		d.Pool().Trim()
	}
	for _, err := range hw.Misuse() {
		t.Error(err)
	}
	t.Logf("%d faults, each a typed error without a leak", faults)
}

// loadAndFourTokens loads a model, computes a prompt and four tokens after it, and gives all back.
func loadAndFourTokens(d *gpu.Device, data []byte, prompt []int32) (ids []int32, err error) {
	f, err := gguf.FromBytes(data)
	if err != nil {
		return nil, err
	}
	m, err := model.Load(context.Background(), f, d, model.Options{})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	s, err := New(m, Options{Context: 32, KVType: tensor.F16, Chunk: 8})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.Prefill(context.Background(), prompt); err != nil {
		return nil, err
	}
	for range 4 {
		id, err := s.Next(nil)
		if err == nil {
			err = s.Step(id, nil)
		}
		if err != nil {
			return ids, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}
