package gpu

import (
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/ranks"
)

// staged exchanges with other processes through host memory: what the stream has computed is waited for, crosses by messages
// of a group, and is copied back. It holds for every kind of device.
type staged struct {
	group   *ranks.Group
	channel uint32
	device  kernel.Device
	stream  kernel.Stream
	host    bool // the device's memory is the host's

	memory [2]kernel.Ptr // page-locked where the device gains by it
	bytes  [2]int64
}

// take copies memory of the device to the host, and returns where it is until the next take at that place.
func (s *staged) take(place int, p kernel.Ptr, n int) ([]float32, error) {
	x, err := s.room(place, n)
	if err != nil || n == 0 {
		return nil, err
	}
	if s.host {
		copy(x, unsafe.Slice((*float32)(p), n))
		return x, nil
	}
	if err := s.stream.CopyToHost(kernel.Ptr(&x[0]), p, 4*int64(n)); err != nil {
		return nil, err
	}
	return x, s.stream.Synchronize()
}

// put copies what room or take returned to the device.
func (s *staged) put(p kernel.Ptr, x []float32) error {
	if len(x) == 0 {
		return nil
	}
	if s.host {
		copy(unsafe.Slice((*float32)(p), len(x)), x)
		return nil
	}
	if err := s.stream.CopyToDevice(p, kernel.Ptr(&x[0]), 4*int64(len(x))); err != nil {
		return err
	}
	return s.stream.Synchronize()
}

// room returns host memory.
func (s *staged) room(place, n int) ([]float32, error) {
	if bytes := 4 * int64(n); bytes > s.bytes[place] {
		p, err := s.device.AllocHost(bytes)
		if err != nil {
			return nil, err
		}
		s.free(place)
		s.memory[place], s.bytes[place] = p, bytes
	}
	return unsafe.Slice((*float32)(s.memory[place]), n), nil
}

func (s *staged) free(place int) {
	if s.memory[place] != nil {
		s.device.FreeHost(s.memory[place])
		s.memory[place], s.bytes[place] = nil, 0
	}
}

func (s *staged) AllReduce(out, in, add []kernel.Ptr, n int, _ bool) error {
	x, err := s.take(0, in[0], n)
	if err == nil {
		err = s.group.AllReduce(s.channel, x)
	}
	if err == nil && add != nil {
		var more []float32
		if more, err = s.take(1, add[0], n); err == nil {
			for i, v := range more {
				x[i] += v
			}
		}
	}
	if err != nil {
		return err
	}
	return s.put(out[0], x)
}

func (s *staged) AllGather(out, in []kernel.Ptr, rows int, cols []int) error {
	own, err := s.take(0, in[0], rows*cols[s.group.Rank()])
	if err != nil {
		return err
	}
	parts, total := make([][]byte, len(cols)), 0
	for rank, n := range cols {
		parts[rank] = make([]byte, 4*rows*n)
		total += n
	}
	copy(parts[s.group.Rank()], bytesOf(own))
	if err := s.group.AllGather(s.channel, parts); err != nil {
		return err
	}
	x, err := s.room(1, rows*total)
	if err != nil {
		return err
	}
	all := bytesOf(x)
	for row := range rows {
		for rank, n := range cols {
			all = all[copy(all, parts[rank][4*row*n:4*(row+1)*n]):]
		}
	}
	return s.put(out[0], x)
}

func (s *staged) Broadcast(data []kernel.Ptr, words, root int) (err error) {
	var x []float32
	if s.group.Rank() == root {
		x, err = s.take(0, data[0], words)
	} else {
		x, err = s.room(0, words)
	}
	if err == nil {
		err = s.group.Broadcast(s.channel, bytesOf(x), root)
	}
	if err != nil || s.group.Rank() == root {
		return err
	}
	return s.put(data[0], x)
}

func (s *staged) Send(out, in kernel.Ptr, words, from, to int) error {
	if s.group.Rank() == from {
		x, err := s.take(0, in, words)
		if err == nil {
			err = s.group.Send(to, s.channel, bytesOf(x))
		}
		if err != nil {
			return err
		}
	}
	if s.group.Rank() != to {
		return nil
	}
	x, err := s.room(1, words)
	if err == nil {
		err = s.group.Receive(from, s.channel, bytesOf(x))
	}
	if err != nil {
		return err
	}
	return s.put(out, x)
}

func (s *staged) Close() error {
	s.free(0)
	s.free(1)
	s.group.Forget(s.channel)
	return nil
}

func bytesOf(x []float32) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x))
}
