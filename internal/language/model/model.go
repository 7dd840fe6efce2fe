// Package model computes decoder-only transformers from GGUF files. An architecture is one file: a table of its
// tensors, and a forward function in plain operations, which is recorded as a graph when a file is opened. Beneath it
// fused operations take the place of known patterns. The package enqueues operations of package tensor and knows
// nothing of text, sampling or sessions.
package model

import (
	"fmt"
	"sync"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Model holds the weights of a model on a device. Any number of goroutines may use it, each with its own Workspace and
// Cache. Of a model on several devices it is the first rank, with the Config of what that one computes: a pass is given to
// it, and it has the others compute theirs.
type Model struct {
	Config
	followers []*Model // the ranks after it, or the stages before it, which are used through it alone
	staged    bool     // stages
	streamer  *streamer

	world  *world     // of rank 0: the ranks in other processes, nil for none
	leader *gpu.Ranks // of those: among whom it follows rank 0

	device  *gpu.Device
	context int              // rows of the RoPE tables
	tables  []ropeTables     // of the graph's RoPEs
	memory  *tensor.Arena    // of the weights, but for those that a CPU reads in the file
	mapped  []*tensor.Tensor // which are these
	file    *gguf.File       // where they lie, on a CPU
	bytes   int64            // of all weights

	memoryBytes int64 // with the RoPE tables

	stacks struct { // of adapters
		sync.Mutex
		loaded []*AdapterStack
	}
}

type ropeTables struct{ cos, sin *tensor.Tensor } // [context][Dim/2]

// Close gives the weights and all adapters back. No session may be using them. Closing twice is harmless.
func (m *Model) Close() {
	for _, f := range m.followers {
		f.Close()
	}
	m.stacks.Lock()
	for _, s := range m.stacks.loaded {
		s.memory.Free()
	}
	m.stacks.loaded = nil
	m.stacks.Unlock()
	m.streamer.close()
	m.memory.Free()
	for _, t := range m.mapped {
		t.Free()
	}
	m.mapped = nil
}

// Device returns where the model computes.
func (m *Model) Device() *gpu.Device { return m.device }

// MaxContext returns the longest context of a session.
func (m *Model) MaxContext() int { return m.context }

// Ranks returns the parts of a model on several devices, by rank; of one on one device, itself.
func (m *Model) Ranks() []*Model { return append([]*Model{m}, m.followers...) }

// Alone reports whether one device computes all of the model.
func (m *Model) Alone() bool { return len(m.followers) == 0 && m.world == nil }

// Bytes returns the memory of the weights and RoPE tables as they lie on the rank's device, or in the mapped file on a
// CPU: what Config.ModelBytes predicts.
func (m *Model) Bytes() int64 { return m.memoryBytes }

// DecodeBytes returns how many bytes of weights one token reads on the rank's device: all matrices, but of an embedding that is not the
// output matrix too just one row, and of experts those that it has.
func (m *Model) DecodeBytes() int64 {
	n := m.bytes
	if e := m.weights.embedding; !m.Tied && !e.elsewhere {
		embedding := e.tensor.Bytes()
		n -= embedding - embedding/int64(m.Vocab)
	}
	for i := range m.weights.layers {
		l := &m.weights.layers[i]
		for _, w := range []*weight{l.expertGate, l.expertUp, l.expertDown} {
			if w != nil && !w.elsewhere {
				n -= w.tensor.Bytes() / int64(w.experts) * int64(w.experts-m.mixture.used)
			}
		}
	}
	return n
}

// CheckIDs returns an error that names the first id outside the vocabulary.
func (c *Config) CheckIDs(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= c.Vocab {
			return fmt.Errorf("token id %d at index %d is outside the vocabulary of %d", id, i, c.Vocab)
		}
	}
	return nil
}
