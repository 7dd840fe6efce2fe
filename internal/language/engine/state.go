package engine

import (
	"fmt"
	"io"

	"github.com/vibrant-ml/vibrant/tensor"
)

// CacheBytes returns the size of what WriteCache writes now.
func (s *Session) CacheBytes() int64 {
	var sum int64
	s.cache.Kept(len(s.tokens), func(rows *tensor.Tensor) error { sum += rows.Bytes(); return nil })
	return sum
}

// WriteCache writes what Tokens have left in the cache, as the device has it.
func (s *Session) WriteCache(w io.Writer) error {
	var block []byte
	return s.cache.Kept(len(s.tokens), func(rows *tensor.Tensor) error {
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
	err := s.cache.Kept(len(ids), func(rows *tensor.Tensor) error {
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

func sized(block []byte, n int64) []byte {
	if int64(cap(block)) < n {
		return make([]byte, n)
	}
	return block[:n]
}
