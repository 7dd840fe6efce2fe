package engine

import (
	"fmt"
	"io"
	"slices"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Past says where in a session's cache its tokens are, beside their ids: what WriteCache writes means nothing without.
type Past struct {
	Rooms  []int `json:"rooms"` // of the rings of layers that keep the newest tokens alone
	Newest int   `json:"newest"`
	Live   []int `json:"live,omitempty"`  // positions of the recurrent states
	Saved  []int `json:"saved,omitempty"` // and of their checkpoints
}

// Past describes the cache as it is now.
func (s *Session) Past() Past {
	p := Past{Rooms: s.cache.Rooms(), Newest: s.past.newest}
	if s.model.Recurrent() {
		p.Live, p.Saved = slices.Clone(s.past.live[:]), slices.Clone(s.past.saved)
	}
	return p
}

// WriteCache writes what Tokens left in the cache, as the device has it.
func (s *Session) WriteCache(w io.Writer) error {
	if !s.past.whole(len(s.tokens)) {
		return fmt.Errorf("engine: the state after %d tokens was lost by a pass that failed: %w", len(s.tokens), gpu.ErrInvalid)
	}
	var block []byte
	return s.cache.Kept(len(s.tokens), func(part *tensor.Tensor) error {
		block = sized(block, part.Bytes())
		if err := part.ReadBytes(block); err != nil {
			return err
		}
		_, err := w.Write(block)
		return err
	})
}

// ReadCache replaces what the session holds by ids and what WriteCache wrote for them, with the same model, cache type and kernels.
// finish is called before the session holds them, and says whether all of it is right; after an error the session holds nothing.
func (s *Session) ReadCache(r io.Reader, ids []int32, past Past, finish func() error) error {
	if err := s.check(ids); err != nil {
		return err
	}
	if own := s.cache.Rooms(); !slices.Equal(past.Rooms, own) {
		return fmt.Errorf("its layers have room for other numbers of tokens: the context or the chunk of prompts differs")
	}
	if s.model.Recurrent() && (len(past.Live) != len(s.past.live) || len(past.Saved) != len(s.past.saved)) {
		return fmt.Errorf("it has %d and %d states, want %d and %d", len(past.Live), len(past.Saved), len(s.past.live), len(s.past.saved))
	}
	for _, at := range slices.Concat(past.Live, past.Saved) {
		if at < -1 || at > len(ids)+1 { // a step may have been computed ahead
			return fmt.Errorf("a state is of position %d, of %d tokens", at, len(ids))
		}
	}
	s.Reset()
	var block []byte
	err := s.cache.Kept(len(ids), func(part *tensor.Tensor) error {
		block = sized(block, part.Bytes())
		if _, err := io.ReadFull(r, block); err != nil {
			return fmt.Errorf("the cache of %d tokens is cut short: %w", len(ids), err)
		}
		return part.WriteBytes(block)
	})
	if err == nil {
		err = finish()
	}
	if err != nil {
		return err
	}
	s.tokens = append(s.tokens, ids...)
	s.past.newest = max(past.Newest, len(ids))
	copy(s.past.live[:], past.Live)
	copy(s.past.saved, past.Saved)
	return nil
}

func sized(block []byte, n int64) []byte {
	if int64(cap(block)) < n {
		return make([]byte, n)
	}
	return block[:n]
}
