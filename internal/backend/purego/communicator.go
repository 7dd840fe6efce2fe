package purego

import (
	"fmt"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// communicator joins streams of CPU devices: the call that names all ranks computes for all of them.
type communicator struct {
	device *device
	ranks  int
}

func (d *device) NewCommunicator(streams []kernel.Stream) (kernel.Communicator, error) {
	if len(streams) < 1 || len(streams) > kernel.MaxRanks {
		return nil, fmt.Errorf("communicator of %d streams: want 1 to %d: %w", len(streams), kernel.MaxRanks, kernel.ErrInvalid)
	}
	return &communicator{d, len(streams)}, nil
}

// ranked returns the memory of each rank, of n elements.
func (c *communicator) ranked(op, name string, pointers []kernel.Ptr, n int) ([][]float32, error) {
	if len(pointers) != c.ranks || n < 0 {
		return nil, fmt.Errorf("%s: %s of %d ranks, %d elements, of %d: %w", op, name, len(pointers), n, c.ranks, kernel.ErrInvalid)
	}
	all := make([][]float32, c.ranks)
	for r, p := range pointers {
		if p == nil && n > 0 {
			return nil, fmt.Errorf("%s: %s[%d]: null: %w", op, name, r, kernel.ErrInvalid)
		}
		all[r] = unsafe.Slice((*float32)(p), n)
	}
	return all, nil
}

func (c *communicator) AllReduce(out, in, add []kernel.Ptr, n int, _ bool) error {
	if n == 0 {
		return nil
	}
	outs, err := c.ranked("all reduce", "out", out, n)
	if err != nil {
		return err
	}
	ins, err := c.ranked("all reduce", "in", in, n)
	if err != nil {
		return err
	}
	var adds [][]float32
	if add != nil {
		if adds, err = c.ranked("all reduce", "add", add, n); err != nil {
			return err
		}
	}
	c.device.parallel(n, 1<<14, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			sum := ins[0][i]
			for _, x := range ins[1:] {
				sum += x[i]
			}
			for r, o := range outs {
				if adds == nil {
					o[i] = sum
				} else { // which may lie where the sum goes
					o[i] = sum + adds[r][i]
				}
			}
		}
	})
	return nil
}

func (c *communicator) AllGather(out, in []kernel.Ptr, rows int, cols []int) error {
	total := 0
	for _, n := range cols {
		total += n
	}
	if rows == 0 || total == 0 {
		return nil
	}
	outs, err := c.ranked("all gather", "out", out, rows*total)
	if err != nil {
		return err
	}
	first := 0
	for from, n := range cols {
		if n == 0 {
			continue
		}
		x := unsafe.Slice((*float32)(in[from]), rows*n)
		for _, o := range outs {
			for row := range rows {
				copy(o[row*total+first:], x[row*n:(row+1)*n])
			}
		}
		first += n
	}
	return nil
}

func (c *communicator) Close() error { return nil }

func (c *communicator) Broadcast(data []kernel.Ptr, words, root int) error {
	all, err := c.ranked("broadcast", "data", data, words)
	if err == nil && (root < 0 || root >= c.ranks) {
		err = fmt.Errorf("broadcast: root %d of %d: %w", root, c.ranks, kernel.ErrInvalid)
	}
	if err != nil {
		return err
	}
	for _, to := range all {
		copy(to, all[root])
	}
	return nil
}

func (c *communicator) Send(out, in kernel.Ptr, words, from, to int) error {
	if min(from, to) < 0 || max(from, to) >= c.ranks || words < 0 || words > 0 && (out == nil || in == nil) {
		return fmt.Errorf("send: %d words from %d to %d of %d: %w", words, from, to, c.ranks, kernel.ErrInvalid)
	}
	copy(unsafe.Slice((*float32)(out), words), unsafe.Slice((*float32)(in), words))
	return nil
}
