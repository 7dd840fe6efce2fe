package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/backend/profile"
)

// WithProfiling times every operation and copy of the device by events around it: see Device.Profile. Graphs are not recorded then;
// what they hold is enqueued an operation at a time, so that a program runs slower than without.
func WithProfiling() Option { return func(o *options) { o.profiling = true } }

// Profile is what the operations of a device took. Its methods may be called from any goroutine.
type Profile struct {
	dev    *device
	origin kernel.Event // times count from it

	mu        sync.Mutex
	streams   int
	records   []tracked
	dropped   int
	operation map[operationKey]*Operation
	usage     map[string]*Usage
	bandwidth float64 // bytes a second of a copy, 0 before it was measured
}

type operationKey struct{ op, kernel string }

// tracked is a record and the track of a trace that it is shown on.
type tracked struct {
	profile.Record
	stream int
}

// mostRecords bounds the memory of a trace; operations and usage go on counting.
const mostRecords = 1 << 20

// Operation sums up the calls of one operation that one kernel computed.
type Operation struct {
	Name   string // "Linear", "CopyToDevice"
	Kernel string // "" where the device does not say
	Calls  int
	Time   time.Duration // of the device, events included
	Bytes  int64         // of the operands, each counted once a call
	// Roofline is the part of the time, in percent, that moving Bytes takes at the rate of a copy on this device. 0 for copies from
	// and to the host.
	Roofline float64
}

// Usage sums up the work that was enqueued under a name.
type Usage struct {
	Name       string // as given to Stream.Named; within another name "outer/inner"
	Entered    int    // calls of Named
	Operations int
	Time       time.Duration // of the device: the sum over operations
	Bytes      int64
	Held       int64 // bytes that more of the pool were in use after all calls than before them
}

// startProfile prepares profiling before the first stream is made.
func (d *device) startProfile() error {
	p := &Profile{dev: d, operation: map[operationKey]*Operation{}, usage: map[string]*Usage{}}
	s, err := d.kernel.NewStream(nil)
	if err != nil {
		return fmt.Errorf("gpu: profile %s: %w", d.info.ID, err)
	}
	defer s.Close()
	if p.origin, err = d.kernel.NewEvent(); err == nil {
		if err = s.Record(p.origin); err == nil {
			err = s.Synchronize()
		}
	}
	if err != nil {
		return fmt.Errorf("gpu: profile %s: %w", d.info.ID, err)
	}
	d.profile = p
	return nil
}

// join times a stream that was just made.
func (p *Profile) join(s *stream) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	track := p.streams
	p.streams++
	s.timed = profile.New(s.kernel, p.dev.kernel, p.origin, func(r profile.Record) { p.add(r, track) })
	s.kernel = s.timed
	return nil
}

// Profile returns what the device's operations took so far. ErrInvalid where it was opened without WithProfiling.
func (d *Device) Profile() (*Profile, error) {
	if d.profile == nil {
		return nil, fmt.Errorf("gpu: profile of %s: %w: the device was opened without WithProfiling", d.info.ID, ErrInvalid)
	}
	return d.profile, nil
}

func (p *Profile) add(r profile.Record, stream int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.records) < mostRecords {
		p.records = append(p.records, tracked{r, stream})
	} else {
		p.dropped++
	}
	key := operationKey{r.Op, r.Kernel}
	o := p.operation[key]
	if o == nil {
		o = &Operation{Name: r.Op, Kernel: r.Kernel}
		p.operation[key] = o
	}
	o.Calls++
	o.Time += r.Took
	o.Bytes += r.Bytes
	for i := range r.Names {
		u := p.named(r.Names[:i+1])
		u.Operations++
		u.Time += r.Took
		u.Bytes += r.Bytes
	}
}

// named returns the usage of a name within others. The caller holds mu.
func (p *Profile) named(names []string) *Usage {
	name := pathOf(names)
	u := p.usage[name]
	if u == nil {
		u = &Usage{Name: name}
		p.usage[name] = u
	}
	return u
}

func pathOf(names []string) string {
	path := ""
	for i, n := range names {
		if i > 0 {
			path += "/"
		}
		path += n
	}
	return path
}

// collect waits for the work of all streams and reads its times.
func (p *Profile) collect() error {
	d := p.dev
	d.life.RLock()
	defer d.life.RUnlock()
	if err := d.usable(); err != nil {
		return err
	}
	d.mu.Lock()
	streams := slices.Collect(maps.Keys(d.streams))
	d.mu.Unlock()
	var all error
	for _, s := range streams {
		s.mu.Lock()
		if !s.closed.Load() {
			all = errors.Join(all, d.check(s.timed.Collect()))
		}
		s.mu.Unlock()
	}
	return all
}

// Operations waits for the work enqueued so far and returns what each operation took, the longest time first. The first call measures
// the rate of a copy on the device.
func (p *Profile) Operations() ([]Operation, error) {
	if err := p.collect(); err != nil {
		return nil, fmt.Errorf("gpu: profile: %w", err)
	}
	rate, err := p.copyRate()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Operation
	for _, o := range p.operation {
		one := *o
		one.Roofline = roofline(one.Name, one.Bytes, one.Time, rate)
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Operation) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kernel, b.Kernel))
	})
	return all, nil
}

// roofline returns the percent of a time that moving bytes at a rate takes.
func roofline(op string, bytes int64, took time.Duration, rate float64) float64 {
	if took <= 0 || rate <= 0 || op == "CopyToDevice" || op == "CopyToHost" {
		return 0
	}
	return 100 * float64(bytes) / rate / took.Seconds()
}

// Usage waits for the work enqueued so far and returns what was used under each name, the longest time first.
func (p *Profile) Usage() ([]Usage, error) {
	if err := p.collect(); err != nil {
		return nil, fmt.Errorf("gpu: profile: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Usage
	for _, u := range p.usage {
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b Usage) int { return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Name, b.Name)) })
	return all, nil
}

// Reset waits for the work enqueued so far and forgets it.
func (p *Profile) Reset() error {
	if err := p.collect(); err != nil {
		return fmt.Errorf("gpu: profile: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records, p.dropped = nil, 0
	clear(p.operation)
	clear(p.usage)
	return nil
}

// mostHostCopy is what measures a host's memory: servers report caches of 384 MB, of which a process has a part.
const mostHostCopy = 256 << 20

// copyRate returns the bytes a second, read and written, of a copy within the device.
func (p *Profile) copyRate() (float64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bandwidth > 0 {
		return p.bandwidth, nil
	}
	d := p.dev
	d.life.RLock()
	defer d.life.RUnlock()
	if err := d.usable(); err != nil {
		return 0, err
	}
	bytes := max(4*d.info.L2Bytes, 64<<20)
	if d.info.HostMemory {
		bytes = min(bytes, mostHostCopy)
	}
	rate, err := copyRate(d.kernel, min(bytes, d.info.TotalMemory/8))
	if err != nil {
		return 0, fmt.Errorf("gpu: profile: measure a copy on %s: %w", d.info.ID, d.check(err))
	}
	p.bandwidth = rate
	return rate, nil
}

func copyRate(d kernel.Device, bytes int64) (rate float64, err error) {
	s, err := d.NewStream(nil)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	var memory [2]kernel.Ptr
	for i := range memory {
		if memory[i], err = d.Alloc(bytes); err != nil {
			return 0, err
		}
		defer d.Free(memory[i])
		if err = s.Memset(memory[i], 1, bytes); err != nil {
			return 0, err
		}
	}
	var events [2]kernel.Event
	for i := range events {
		if events[i], err = d.NewEvent(); err != nil {
			return 0, err
		}
		defer events[i].Close()
	}
	defer s.Synchronize() // before the memory is given back, also after an error
	for range 5 {
		if err = s.Record(events[0]); err != nil {
			return 0, err
		}
		if err = s.Copy(memory[1], memory[0], kernel.F32, int(bytes/4)); err != nil {
			return 0, err
		}
		if err = s.Record(events[1]); err != nil {
			return 0, err
		}
		if err = s.Synchronize(); err != nil {
			return 0, err
		}
		ms, err := events[1].ElapsedMS(events[0])
		if err != nil {
			return 0, err
		}
		if ms > 0 {
			rate = max(rate, float64(2*bytes)/float64(ms)*1e3)
		}
	}
	return rate, nil
}

// Named calls f; what it enqueues on the stream is shown and summed up under the name, within the names that are in force already.
// Other goroutines do not use the stream meanwhile. On a device that is not profiled it only calls f. ErrInvalid for an empty name.
func (s *Stream) Named(name string, f func() error) error {
	if name == "" {
		return fmt.Errorf("gpu: named work of %s: %w: no name", s.dev, ErrInvalid)
	}
	if s.timed == nil {
		return f()
	}
	s.mu.Lock()
	outer := s.timed.Names
	names := append(outer[:len(outer):len(outer)], name)
	s.timed.Names = names
	s.mu.Unlock()
	p, before := s.dev.profile, s.dev.pool.Stats().InUse
	defer func() {
		s.mu.Lock()
		s.timed.Names = outer
		s.mu.Unlock()
		held := s.dev.pool.Stats().InUse - before
		p.mu.Lock()
		defer p.mu.Unlock()
		u := p.named(names)
		u.Entered++
		u.Held += held
	}()
	return f()
}
