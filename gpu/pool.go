package gpu

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Pool hands out a device's memory in the order of streams. What was freed is kept: the stream that freed it may have it
// again at once, since its work comes after whatever used the memory before; another stream gets it behind an event.
//
// What is in use and what is kept count together towards the limit. At the limit, or when the device is out of memory,
// the pool gives back what it keeps, runs the garbage collector to find dropped buffers, and tries once more.
type Pool struct {
	dev *device

	mu      sync.Mutex
	limit   int64
	stats   PoolStats
	closed  bool
	streams []*stream
	idle    [classes]*block // blocks that no work uses any more, from closed streams
	pace    pace
	blocks  map[*block]struct{}
}

// PoolStats counts what a pool did and holds.
type PoolStats struct {
	Hits     int64 // allocations served from kept memory
	Moved    int64 // those of them that came from another stream, behind an event
	Misses   int64 // allocations that asked the device
	InUse    int64 // bytes, rounded up to size classes
	Cached   int64 // bytes kept for later
	Peak     int64 // the most bytes that were in use
	Limit    int64 // the most bytes in use and cached
	Retries  int64 // allocations that trimmed and collected first
	Paced    int64 // collections that were due by the bytes handed out since the one before
	Failures int64 // allocations that failed with ErrOutOfMemory
}

// block is memory of the device, of one size class.
type block struct {
	pool  *Pool
	ptr   kernel.Ptr
	size  int64
	class int
	owner *stream
	refs  int       // its buffer, and the graphs that were captured with it; 0 when kept for later
	users []*stream // other streams whose work may use it
	next  *block    // in a free list
	freed uint64    // owner.enqueued when it was given back
}

func newPool(d *device, limit int64) *Pool {
	return &Pool{dev: d, limit: limit, blocks: map[*block]struct{}{}, pace: pace{next: d.leastGrowth(0)}}
}

// Stats returns the counts as of now.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Limit = p.limit
	return s
}

// SetLimit changes the most bytes in use and cached. What is in use above it stays.
func (p *Pool) SetLimit(bytes int64) {
	p.mu.Lock()
	p.limit = bytes
	over := p.stats.InUse+p.stats.Cached > bytes
	p.mu.Unlock()
	if over {
		p.Trim()
	}
}

func (p *Pool) addStream(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams = append(p.streams, s)
}

// dropStream takes over the kept blocks of a stream that has finished its work for good.
func (p *Pool) dropStream(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams = slices.DeleteFunc(p.streams, func(o *stream) bool { return o == s })
	for class, b := range s.free {
		for b != nil {
			next := b.next
			p.push(&p.idle, class, b)
			b = next
		}
		s.free[class] = nil
	}
}

func (p *Pool) push(list *[classes]*block, class int, b *block) {
	b.next = list[class]
	list[class] = b
}

func pop(list *[classes]*block, class int) *block {
	b := list[class]
	if b != nil {
		list[class] = b.next
		b.next = nil
	}
	return b
}

// take counts a kept block as in use by a stream. The caller holds mu.
func (p *Pool) take(b *block, s *stream) {
	b.owner, b.refs = s, 1
	p.stats.Hits++
	p.stats.Cached -= b.size
	p.stats.InUse += b.size
	p.pace.pooled += b.size
	p.stats.Peak = max(p.stats.Peak, p.stats.InUse)
	p.keep(b, s.capture.Load())
}

// get returns a block of at least that many bytes for work on s.
func (p *Pool) get(s *stream, bytes int64) (*block, error) {
	if bytes < 0 || bytes > maxSize {
		return nil, fmt.Errorf("gpu: allocation of %d bytes on %s: %w", bytes, p.dev, ErrInvalid)
	}
	class, size := sizeClass(bytes)
	return p.serve(s, class, size, bytes, p.dev.call)
}

// caller is how the pool asks the device: device.call, or within for whoever is in such a call.
type caller func(func() error) error

func within(f func() error) error { return f() }

// reserve returns a block of that many bytes, up to the grain, that goes back to the device when it is given back.
func (p *Pool) reserve(s *stream, bytes int64, call caller) (*block, error) {
	if bytes < 0 || bytes > maxSize {
		return nil, fmt.Errorf("gpu: allocation of %d bytes on %s: %w", bytes, p.dev, ErrInvalid)
	}
	return p.serve(s, exact, max(grain, (bytes+grain-1)&^(grain-1)), bytes, call)
}

func (p *Pool) serve(s *stream, class int, size, bytes int64, call caller) (*block, error) {
	p.mu.Lock()
	if p.closed || s.closed.Load() || p.dev.lost.Load() != nil {
		p.mu.Unlock()
		return nil, s.usable()
	}
	var b *block
	due := class != exact && p.pace.pooled+size > p.pace.next
	if !due {
		b = p.cached(s, class)
	}
	p.mu.Unlock()
	if due {
		p.collectPaced()
		p.mu.Lock()
		b = p.cached(s, class)
		p.mu.Unlock()
	}
	if b != nil {
		return b, nil
	}
	if b := p.move(s, class); b != nil {
		return b, nil
	}
	b, err := p.fresh(s, class, size, call)
	if errors.Is(err, ErrOutOfMemory) {
		b, err = p.retry(s, class, size, call)
		if err != nil {
			err = p.explain(err, bytes, call)
		}
	}
	if err != nil {
		return nil, p.dev.check(err)
	}
	return b, nil
}

// cached takes a kept block that s may use at once, nil if there is none. The caller holds mu.
func (p *Pool) cached(s *stream, class int) *block {
	if class == exact {
		return nil
	}
	c := s.capture.Load()
	if c != nil {
		if free := c.free[class]; len(free) > 0 {
			b := free[len(free)-1]
			c.free[class] = free[:len(free)-1]
			b.refs++
			p.stats.Hits++
			return b
		}
	}
	b := pop(&s.free, class)
	if b == nil {
		b = pop(&p.idle, class)
	}
	if b != nil {
		p.take(b, s)
	}
	return b
}

// retry is get at the limit: it gives back what is kept, collects what the program dropped, and asks once more.
func (p *Pool) retry(s *stream, class int, size int64, call caller) (*block, error) {
	p.mu.Lock()
	p.stats.Retries++
	p.mu.Unlock()
	p.trim(call)
	collect(shortWait)
	collect(shortWait) // what only dropped buffers held is found by a second collection
	p.mu.Lock()
	b := p.cached(s, class) // a dropped buffer's block may be just right
	p.mu.Unlock()
	if b != nil {
		return b, nil
	}
	p.trim(call)
	return p.fresh(s, class, size, call)
}

// keep holds a block for the graph that is being captured, if one is. The caller holds mu.
func (p *Pool) keep(b *block, c *capture) {
	if c == nil {
		return
	}
	if _, kept := c.kept[b]; !kept {
		c.kept[b] = struct{}{}
		b.refs++
	}
}

// keepAll holds a stream's own memory for the graph that is about to be captured, whose kernels use it.
func (p *Pool) keepAll(own map[kernel.Ptr]*block, c *capture) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range own {
		p.keep(b, c)
	}
}

// move takes a block that another stream gave back, and orders s after what that stream has enqueued. It returns nil
// where there is none, or where the other stream is busy enqueuing: waiting for it could take longer than the device.
func (p *Pool) move(s *stream, class int) *block {
	if class == exact {
		return nil
	}
	p.mu.Lock()
	var b *block
	for _, other := range p.streams {
		if other == s || other.free[class] == nil {
			continue
		}
		done := other.finished.Load() >= other.free[class].freed || p.dev.info.HostMemory
		if !done && (other.capture.Load() != nil || s.capture.Load() != nil) {
			continue
		}
		b = pop(&other.free, class)
		p.take(b, s)
		p.stats.Moved++
		p.mu.Unlock()
		if done || s.afterIfIdle(other) {
			return b
		}
		p.mu.Lock()
		p.stats.Hits--
		p.stats.Moved--
		p.retire(b, other)
		break
	}
	p.mu.Unlock()
	return nil
}

// fresh asks the device for a block.
func (p *Pool) fresh(s *stream, class int, size int64, call caller) (*block, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, p.dev.usable()
	}
	if p.stats.InUse+p.stats.Cached+size > p.limit {
		p.mu.Unlock()
		return nil, fmt.Errorf("over the pool's limit: %w", ErrOutOfMemory)
	}
	p.stats.InUse += size // reserved, so that others see it while the device is asked
	p.mu.Unlock()

	open := p.dev.stay()
	err := p.dev.usable()
	var ptr kernel.Ptr
	if err == nil {
		err = call(func() (err error) { ptr, err = p.dev.kernel.Alloc(size); return err })
	}
	var b *block
	p.mu.Lock()
	if err != nil {
		p.stats.InUse -= size
	} else {
		b = &block{pool: p, ptr: ptr, size: size, class: class, owner: s, refs: 1}
		p.blocks[b] = struct{}{}
		p.keep(b, s.capture.Load())
		if class != exact {
			p.pace.pooled += size
		}
		p.stats.Misses++
		p.stats.Peak = max(p.stats.Peak, p.stats.InUse)
	}
	p.mu.Unlock()
	if open {
		p.dev.life.RUnlock()
	}
	return b, err
}

// explain adds the numbers to an allocation that failed for good.
func (p *Pool) explain(err error, bytes int64, call caller) error {
	p.mu.Lock()
	p.stats.Failures++
	s := p.stats
	limit := p.limit
	p.mu.Unlock()
	state := ""
	if p.dev.stay() {
		var free, total int64
		if call(func() (err error) { free, total, err = p.dev.kernel.Memory(); return err }) == nil {
			state = fmt.Sprintf("; the device has %s free of %s", size(free), size(total))
		}
		p.dev.life.RUnlock()
	}
	return fmt.Errorf("gpu: %s for %s: %w (the pool has %s in use and %s cached of at most %s%s)",
		p.dev, size(bytes), err, size(s.InUse), size(s.Cached), size(limit), state)
}

// size prints bytes for people.
func size(n int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.bytes {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.bytes), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// use notes that a stream other than the owner uses the block.
func (p *Pool) use(b *block, s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(b.users, s) {
		return
	}
	b.users = append(slices.DeleteFunc(b.users, func(o *stream) bool { return o.closed.Load() }), s)
}

// release is the cleanup of a dropped Buffer.
func (b *block) release() { b.pool.put(b) }

// put takes back one reference to a block.
func (p *Pool) put(b *block) {
	if b.class == exact {
		p.unreserve(b, p.dev.call)
		return
	}
	p.mu.Lock()
	if len(b.users) > 0 && b.refs == 1 && !p.closed {
		users := b.users
		b.users = nil
		p.mu.Unlock()
		for _, u := range users {
			if c := u.capture.Load(); c != nil { // the graph that is being captured there may use it
				p.mu.Lock()
				p.keep(b, c)
				b.users = append(b.users, u)
				p.mu.Unlock()
			} else if !u.closed.Load() && b.owner.after(u) != nil { // a stream that ended has finished
				u.synchronize()
			}
		}
		p.mu.Lock()
	}
	defer p.mu.Unlock()
	p.drop(b)
}

// unreserve takes back one reference to a reserved block, and gives it to the device with the last.
func (p *Pool) unreserve(b *block, call caller) {
	if !p.dev.stay() {
		return // the pool's end frees it
	}
	defer p.dev.life.RUnlock()
	p.mu.Lock()
	last := false
	if !p.closed {
		if c := b.owner.capture.Load(); c != nil {
			p.keep(b, c)
		}
		b.refs--
		last = b.refs == 0
	}
	if last {
		delete(p.blocks, b)
		p.stats.InUse -= b.size
	}
	p.mu.Unlock()
	if last {
		p.dev.check(call(func() error { return p.dev.kernel.Free(b.ptr) })) // waits for work that uses it
	}
}

func (p *Pool) putAll(blocks []*block) {
	for _, b := range blocks {
		p.put(b)
	}
}

// share counts another graph as a holder of blocks.
func (p *Pool) share(blocks []*block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range blocks {
		b.refs++
	}
}

// drop gives up one reference. The caller holds mu.
func (p *Pool) drop(b *block) {
	if p.closed {
		return
	}
	if c := b.owner.capture.Load(); c != nil {
		p.keep(b, c)
		if b.refs--; b.refs == 1 {
			c.free[b.class] = append(c.free[b.class], b)
		}
		return
	}
	if b.refs--; b.refs == 0 {
		p.retire(b, b.owner)
	}
}

// retire keeps a block that nobody uses for later. The caller holds mu.
func (p *Pool) retire(b *block, s *stream) {
	b.owner, b.refs, b.freed = s, 0, s.enqueued.Load()
	p.stats.InUse -= b.size
	p.pace.pooled -= b.size
	p.stats.Cached += b.size
	if s.closed.Load() {
		p.push(&p.idle, b.class, b)
	} else {
		p.push(&s.free, b.class, b)
	}
}

// Trim gives all kept memory back to the device and returns how many bytes that were.
func (p *Pool) Trim() int64 { return p.trim(p.dev.call) }

func (p *Pool) trim(call caller) int64 {
	if !p.dev.stay() {
		return 0
	}
	defer p.dev.life.RUnlock()
	p.mu.Lock()
	var gone []*block
	collect := func(list *[classes]*block) {
		for class := range list {
			for b := pop(list, class); b != nil; b = pop(list, class) {
				gone = append(gone, b)
			}
		}
	}
	collect(&p.idle)
	for _, s := range p.streams {
		collect(&s.free)
	}
	var bytes int64
	for _, b := range gone {
		delete(p.blocks, b)
		bytes += b.size
	}
	p.stats.Cached -= bytes
	p.mu.Unlock()
	for _, b := range gone {
		p.dev.check(call(func() error { return p.dev.kernel.Free(b.ptr) })) // waits for work that uses it
	}
	return bytes
}

// close gives everything back. Buffers may still exist; what they give back later is ignored. The caller holds the
// device's life lock for writing.
func (p *Pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for b := range p.blocks {
		p.dev.call(func() error { return p.dev.kernel.Free(b.ptr) })
	}
	p.blocks, p.streams, p.idle = nil, nil, [classes]*block{}
	p.stats.InUse, p.stats.Cached = 0, 0
}
