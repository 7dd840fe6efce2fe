package engine

import (
	"fmt"
	"io"

	"github.com/vibrant-ml/vibrant/tensor"
)

// CacheBytes returns the size of what WriteCache writes now.
func (s *Session) CacheBytes() int64 {
	var sum int64
	s.eachCached(len(s.tokens), func(rows *tensor.Tensor) error { sum += rows.Bytes(); return nil })
	return sum
}

// WriteCache writes the keys and values of Tokens, as the device has them: for each layer those of each head, one token after
// the other.
func (s *Session) WriteCache(w io.Writer) error {
	var block []byte
	return s.eachCached(len(s.tokens), func(rows *tensor.Tensor) error {
		block = sized(block, rows.Bytes())
		if err := rows.ReadBytes(block); err != nil {
			return err
		}
		_, err := w.Write(block)
		return err
	})
}

// ReadCache replaces what the session holds by ids and what WriteCache wrote for them, with the same model, cache type and kernels.
// finish is called before the session holds them, and says whether all of it is right; after an error the session holds nothing.
func (s *Session) ReadCache(r io.Reader, ids []int32, finish func() error) error {
	if err := s.check(ids); err != nil {
		return err
	}
	s.Reset()
	var block []byte
	err := s.eachCached(len(ids), func(rows *tensor.Tensor) error {
		block = sized(block, rows.Bytes())
		if _, err := io.ReadFull(r, block); err != nil {
			return fmt.Errorf("the cache of %d tokens is cut short: %w", len(ids), err)
		}
		return rows.WriteBytes(block)
	})
	if err == nil {
		err = finish()
	}
	if err != nil {
		return err
	}
	s.tokens = append(s.tokens, ids...)
	return nil
}

// eachCached calls f with the keys, then the values, of the first n tokens of each head of each layer.
func (s *Session) eachCached(n int, f func(rows *tensor.Tensor) error) error {
	for layer := range s.cache.K {
		for _, t := range []*tensor.Tensor{s.cache.K[layer], s.cache.V[layer]} {
			if t == nil { // values are a part of the keys
				continue
			}
			heads, room, dim := t.Dim(1), t.Dim(2), t.Dim(3)
			all := t.Reshape(t.Dim(0)*heads*room, dim)
			for head := range heads {
				if err := f(all.Slice(head*room, head*room+n)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func sized(block []byte, n int64) []byte {
	if int64(cap(block)) < n {
		return make([]byte, n)
	}
	return block[:n]
}
