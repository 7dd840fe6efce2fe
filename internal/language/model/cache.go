package model

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// StateSlots is how many recurrent states a cache holds of each sequence: that before a position lies in slot position
// mod StateSlots, so that the newest token may be computed anew.
const StateSlots = 2

// CacheOptions says what a cache has room for.
type CacheOptions struct {
	Sequences, Capacity int          // so many sequences of so many tokens
	Type                tensor.DType // of keys and values
	Rows                int          // tokens of one sequence that a pass computes at most; 0 for Capacity
	Checkpoints         int          // recurrent states that are kept besides those of the sequences
}

// Cache holds what tokens leave to those after them. Of layers with attention these are keys and values: [Sequences][KV
// heads][room for Capacity][head size], where layers with a window may hold a ring of the newest alone. Of recurrent
// layers it is a state, which every token changes.
type Cache struct {
	CacheOptions
	layers []layerCache // of the layers with attention
	states []layerState // of the recurrent layers
	memory *tensor.Arena

	followers []*Cache // of the ranks after the first
	processes int      // that have a part, 0 for this one alone
	staged    bool     // which have whole layers: of another one's layers a cache has nothing

	guest *tensor.Arena // for the keys and values of a layer whose weights are lent
}

type layerCache struct {
	k, v *tensor.Tensor // v is nil where values are a part of the keys
	ring bool
}

// layerState is [states][...] F32, first those of the sequences, StateSlots of each, then checkpoints. live sees the
// former as [Sequences][StateSlots][...].
type layerState struct {
	conv, delta         *tensor.Tensor
	liveConv, liveDelta *tensor.Tensor
}

// cacheShape is what one layer with attention keeps of a token.
type cacheShape struct {
	heads, dim int
	latent     bool // keys alone
	window     int  // of the newest keys, which are all that is seen; 0 for all
	elsewhere  bool // kept by another stage
}

// stateShape is what one recurrent layer keeps.
type stateShape struct {
	elsewhere bool // by another stage
}

// Rounds reports whether the model rounds what its matrices multiply to int8. A difference in the last place of a value then grows to
// a 127th of the largest where the value is near a half.
func (c *Config) Rounds() bool { return c.arch.rounds }

// CheckCacheType says why keys and values cannot be kept in t: blocks of a quantized type lie along a head.
func (c *Config) CheckCacheType(t tensor.DType) error {
	if t.Quantized() && c.HeadDim%t.BlockSize() != 0 {
		return fmt.Errorf("a cache of %v needs heads of a multiple of %d, this model's have %d", t, t.BlockSize(), c.HeadDim)
	}
	return nil
}

// Kernels copy the keys of a ring 16 or 128 at a time, which must not lie on both sides of its end. 128 are little of a
// ring of 1024 only.
func roundedRing(n int) int {
	step := 16
	if n > 1024 {
		step = 128
	}
	return (n + step - 1) / step * step
}

// room returns for how many tokens a layer's cache has room, and whether they are the newest alone. Kernels copy
// quantized keys by 16 bytes, of which eight of them, whatever their size, are a multiple. A pass needs the window
// before its first token and its own tokens; a ring that spares less than half is not worth what it forgets.
func (s cacheShape) room(o CacheOptions) (tokens int, ring bool) {
	if s.window > 0 && o.Rows > 0 {
		if n := roundedRing(s.window + o.Rows - 1); n <= o.Capacity/2 {
			return n, true
		}
	}
	if o.Type.Quantized() {
		return (o.Capacity + 7) / 8 * 8, false
	}
	return o.Capacity, false
}

// bytes returns what a layer takes.
func (s cacheShape) bytes(o CacheOptions) int64 {
	n, _ := s.room(o)
	bytes := tensor.Aligned(int64(o.Sequences) * o.Type.Bytes(s.heads*n*s.dim))
	if !s.latent {
		bytes *= 2
	}
	return bytes
}

// NewCache allocates a cache in the order of each rank's stream; its contents are undefined until they are written.
func (m *Model) NewCache(streams *gpu.Communicator, o CacheOptions) (*Cache, error) {
	if m.world != nil {
		var c *Cache
		err := m.world.make(streams, order{Do: orderCache, Cache: &o}, func() (err error) {
			c, err = m.newCache(streams.Stream(0), o)
			return err
		})
		if err != nil {
			c.Free()
			return nil, err
		}
		c.processes = m.world.ranks.Size()
		return c, nil
	}
	c, err := m.newCache(streams.Stream(0), o)
	if err != nil {
		return nil, err
	}
	c.staged = m.staged
	for i, f := range m.followers {
		other, err := f.newCache(streams.Stream(i+1), o)
		if err != nil {
			c.Free()
			return nil, err
		}
		c.followers = append(c.followers, other)
	}
	return c, nil
}

func (m *Model) newCache(s *gpu.Stream, o CacheOptions) (_ *Cache, err error) {
	if err := m.CheckCacheType(o.Type); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	c := &Cache{CacheOptions: o}
	if n := m.guestBytes(o); n > 0 {
		if c.guest, err = tensor.NewArena(s, n); err != nil {
			return nil, err
		}
	}
	if c.memory, err = tensor.NewArena(s, m.CacheBytes(o)-m.guestBytes(o)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Free()
		}
	}()
	for _, shape := range m.graph.caches {
		if shape.elsewhere {
			c.layers = append(c.layers, layerCache{})
			continue
		}
		n, ring := shape.room(o)
		l := layerCache{ring: ring}
		if l.k, err = c.memory.New(o.Type, o.Sequences, shape.heads, n, shape.dim); err != nil {
			return nil, err
		}
		if !shape.latent {
			if l.v, err = c.memory.New(o.Type, o.Sequences, shape.heads, n, shape.dim); err != nil {
				return nil, err
			}
		}
		c.layers = append(c.layers, l)
	}
	live := o.Sequences * StateSlots
	for _, shape := range m.graph.states {
		d := m.delta
		var l layerState
		if shape.elsewhere {
			c.states = append(c.states, l)
			continue
		}
		if l.conv, err = c.memory.New(tensor.F32, live+o.Checkpoints, d.taps-1, d.channels()); err != nil {
			return nil, err
		}
		if l.delta, err = c.memory.New(tensor.F32, live+o.Checkpoints, d.heads, d.keyDim, d.valueDim); err != nil {
			return nil, err
		}
		l.liveConv = l.conv.Slice(0, live).Reshape(o.Sequences, StateSlots, d.taps-1, d.channels())
		l.liveDelta = l.delta.Slice(0, live).Reshape(o.Sequences, StateSlots, d.heads, d.keyDim, d.valueDim)
		c.states = append(c.states, l)
	}
	return c, nil
}

// Free gives the memory back. Freeing nil or twice is harmless.
func (c *Cache) Free() {
	if c != nil {
		for _, f := range c.followers {
			f.Free()
		}
		c.memory.Free()
		c.guest.Free()
	}
}

// Kept calls f with all that the first n tokens of sequence 0 have left, in an order that depends on the model alone: of
// layers with attention the keys and values of each head, then the recurrent states with their checkpoints. A ring's are those
// that it still has.
// What devices hold together of each layer is not saved: an error wraps gpu.ErrUnsupported.
func (c *Cache) Kept(n int, f func(*tensor.Tensor) error) error {
	if n := max(c.processes, len(c.followers)+1); n > 1 && !c.staged {
		return fmt.Errorf("model: the cache of a model on %d devices cannot be saved: %w", n, gpu.ErrUnsupported)
	}
	for i := range c.layers {
		l := c.layer(i)
		for _, t := range []*tensor.Tensor{l.k, l.v} {
			if t == nil { // values are a part of the keys
				continue
			}
			heads, room, dim := t.Dim(1), t.Dim(2), t.Dim(3)
			rows := t.Reshape(t.Dim(0)*heads*room, dim)
			for head := range heads {
				if err := f(rows.Slice(head*room, head*room+min(n, room))); err != nil {
					return err
				}
			}
		}
	}
	for i := range c.states {
		l := c.state(i)
		for _, t := range []*tensor.Tensor{l.conv, l.delta} {
			if err := f(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// layer returns what is kept of a layer with attention, by whatever stage.
func (c *Cache) layer(i int) layerCache {
	for _, f := range c.followers {
		if f.layers[i].k != nil {
			return f.layers[i]
		}
	}
	return c.layers[i]
}

// state is layer for recurrent layers.
func (c *Cache) state(i int) layerState {
	for _, f := range c.followers {
		if f.states[i].conv != nil {
			return f.states[i]
		}
	}
	return c.states[i]
}

// CacheBytes returns the size of a cache.
func (c *Config) CacheBytes(o CacheOptions) int64 {
	var sum int64
	for _, shape := range c.graph.caches {
		if shape.elsewhere {
			continue
		}
		sum += shape.bytes(o)
	}
	sum += c.guestBytes(o)
	if d := c.delta; d != nil {
		states := int64(o.Sequences*StateSlots + o.Checkpoints)
		conv, delta := int64((d.taps-1)*d.channels()), int64(d.heads*d.keyDim*d.valueDim)
		for _, shape := range c.graph.states {
			if !shape.elsewhere {
				sum += tensor.Aligned(4*states*conv) + tensor.Aligned(4*states*delta)
			}
		}
	}
	return sum
}

// CacheTokenBytes returns what a token takes in a cache that is not bounded by windows.
func (c *Config) CacheTokenBytes(t tensor.DType) int64 {
	var sum int64
	for _, shape := range c.graph.caches {
		if shape.elsewhere {
			continue
		}
		bytes := t.Bytes(shape.heads * shape.dim)
		if !shape.latent {
			bytes *= 2
		}
		sum += bytes
	}
	return sum
}

// Recurrent says whether the model has states that tokens change, so that a position can only be gone back to where
// its state is kept.
func (c *Config) Recurrent() bool { return len(c.graph.states) > 0 }

// Held returns how far before the newest position written a cache can go back to by its keys and values alone: rings
// have overwritten those that a query further back would see. -1 stands for any position.
func (m *Model) Held(c *Cache) int {
	held := -1
	for i, f := range m.followers {
		if n := f.Held(c.followers[i]); n >= 0 && (held < 0 || n < held) {
			held = n
		}
	}
	for i, shape := range m.graph.caches {
		if c.layers[i].ring {
			if n := c.layers[i].k.Dim(2) - (shape.window - 1); held < 0 || n < held {
				held = n
			}
		}
	}
	return held
}

// SaveState enqueues a copy of the recurrent state before a position of sequence 0 to a checkpoint, LoadState one back.
func (c *Cache) SaveState(position, checkpoint int) error {
	return c.copyState(position, checkpoint, true)
}

func (c *Cache) LoadState(position, checkpoint int) error {
	return c.copyState(position, checkpoint, false)
}

func (c *Cache) copyState(position, checkpoint int, save bool) error {
	from, to := position%StateSlots, c.Sequences*StateSlots+checkpoint
	if !save {
		from, to = to, from
	}
	return tensor.Try(func() {
		for i := range c.states {
			l := c.state(i)
			for _, t := range []*tensor.Tensor{l.conv, l.delta} {
				tensor.CopyInto(t.Slice(to, to+1), t.Slice(from, from+1))
			}
		}
	})
}

// Rooms lists for how many tokens the ring of each layer with attention has room, which decides where a token is kept; 0 where all
// tokens are kept.
func (c *Cache) Rooms() []int {
	rooms := []int{}
	for i := range c.layers {
		l := c.layer(i)
		if l.ring {
			rooms = append(rooms, l.k.Dim(2))
		} else {
			rooms = append(rooms, 0)
		}
	}
	return rooms
}
