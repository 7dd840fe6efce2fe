// Package fake is a GPU made of host memory, for tests of what sits above kernels on machines without one.
//
// It is asynchronous: each stream works in a goroutine of its own and reads host memory when the work runs, so that a
// missing wait shows as wrong numbers or as a data race. Its addresses are not those of the memory behind them, so that
// a device pointer that is read on the host crashes. Each operand is checked to lie inside one live allocation. Fresh
// and freed memory is filled with NaN. Faults can be injected. The kernels are those of internal/backend/purego.
package fake

import (
	"fmt"
	"math/bits"
	"sync"
	"time"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/backend/purego"
)

// Config describes the devices of a backend.
type Config struct {
	Devices  int           // how many there are; 0 means 1
	Memory   int64         // bytes of each; 0 means 256 MiB
	Delay    time.Duration // before each piece of work, so that what does not wait comes too early
	NoGraphs bool
	NoRanks  error    // why its streams cannot be joined with those of other processes; nil: they can
	NoPeers  bool     // its devices cannot reach each other's memory
	Serial   bool     // calls for memory and launches wait for their device, one at a time, as those do that load a kernel
	Crowded  bool     // a device has room for one kernel that waits for other ranks
	Scratch  bool     // streams have memory of their own, as CUDA's do: 4 KiB of counters, and scratch as large as what an attention writes
	Lacks    []string // operations without a kernel, by their name in package kernel: "Add"
}

// Call is a kind of call that can be made to fail.
type Call int

// The calls that FailAfter knows.
const (
	Alloc Call = iota
	AllocHost
	Copy   // in any direction, when it is enqueued
	Launch // of a kernel or a graph, when it is enqueued
	Sync   // of a stream
	calls
)

// Backend is a kernel.Backend of fake GPUs. All that are opened at one index share memory and faults.
type Backend struct {
	gpus   []*GPU
	driver sync.Mutex // held by calls, where they are serial
}

// New returns a backend.
func New(c Config) *Backend {
	if c.Memory == 0 {
		c.Memory = 256 << 20
	}
	b := &Backend{}
	for i := range max(1, c.Devices) {
		g := &GPU{backend: b, config: c, index: i, blocks: map[uintptr]*block{}, streams: map[*stream]struct{}{}, next: base + uintptr(i)<<addressBits}
		for call := range g.failIn {
			g.failIn[call] = -1
		}
		b.gpus = append(b.gpus, g)
	}
	return b
}

// GPU returns the hardware behind index i, to inject faults and count.
func (b *Backend) GPU(i int) *GPU { return b.gpus[i] }

// Name returns "fake".
func (b *Backend) Name() string { return "fake" }

// Devices lists the fake GPUs.
func (b *Backend) Devices() ([]kernel.Info, error) {
	var all []kernel.Info
	for _, g := range b.gpus {
		all = append(all, g.info())
	}
	return all, nil
}

// Open opens a fake GPU.
func (b *Backend) Open(index int, _ kernel.Options) (kernel.Device, error) {
	if index < 0 || index >= len(b.gpus) {
		return nil, fmt.Errorf("fake:%d: %w", index, kernel.ErrNoDevice)
	}
	cpu, err := purego.Backend().Open(0, kernel.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	return &device{GPU: b.gpus[index], cpu: cpu}, nil
}

// base keeps device addresses out of the range of every 64-bit host: reading one faults.
const base = ^uintptr(0)>>8 + 1

// addressBits is how many bits tell the addresses of one GPU apart; those above them are its index.
const addressBits = bits.UintSize * 3 / 4

// owns reports whether an address is of this GPU, allocated or not.
func (g *GPU) owns(p kernel.Ptr) bool {
	return p != nil && uintptr(p) >= base && (uintptr(p)-base)>>addressBits == uintptr(g.index)
}

// GPU is one piece of fake hardware.
type GPU struct {
	backend *Backend
	config  Config
	index   int

	mu       sync.Mutex
	next     uintptr            // address of the next allocation: none is used twice
	blocks   map[uintptr]*block // by address
	used     int64
	failIn   [calls]int // calls left until one fails, -1 for never
	failWith [calls]error
	lost     error
	counts   [calls]int
	misuse   []error
	streams  map[*stream]struct{}
	room     sync.Mutex // held by the kernel that waits for other ranks, of a crowded GPU
}

type block struct {
	address uintptr
	memory  []byte
	freed   bool
}

func (g *GPU) info() kernel.Info {
	return kernel.Info{
		ID: fmt.Sprintf("fake:%d", g.index), Name: "Fake GPU", Backend: "fake", Index: g.index, TotalMemory: g.config.Memory,
		ComputeMajor: 9, Multiprocessors: 1, L2Bytes: 1 << 20, Features: "fake",
	}
}

// FailAfter lets n calls of a kind pass and makes the next one fail with err, once.
func (g *GPU) FailAfter(c Call, n int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failIn[c], g.failWith[c] = n, err
}

// Poison makes everything fail with ErrDeviceLost from here on, as an illegal access does.
func (g *GPU) Poison() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lose("illegal address")
}

func (g *GPU) lose(why string) {
	if g.lost == nil {
		g.lost = fmt.Errorf("%s: %w", why, kernel.ErrDeviceLost)
	}
}

// Calls returns how many calls of a kind there were.
func (g *GPU) Calls(c Call) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counts[c]
}

// Used returns the bytes that are allocated.
func (g *GPU) Used() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used
}

// Misuse returns what was done to the device that may not be done: a free of what is not allocated, an operand outside
// of a live allocation. Tests expect none.
func (g *GPU) Misuse() []error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]error(nil), g.misuse...)
}

// enter counts a call and returns the fault that it meets. The caller holds mu.
func (g *GPU) enter(c Call) error {
	g.counts[c]++
	if g.lost != nil {
		return g.lost
	}
	if g.failIn[c] >= 0 {
		if g.failIn[c]--; g.failIn[c] < 0 {
			return g.failWith[c]
		}
	}
	return nil
}

func (g *GPU) blame(format string, args ...any) error {
	err := fmt.Errorf("fake: "+format, args...)
	g.misuse = append(g.misuse, err)
	return err
}

// find returns the allocation around [p, p+bytes). The caller holds mu.
func (g *GPU) find(op string, p kernel.Ptr, bytes int64) (*block, error) {
	a := uintptr(p)
	for _, b := range g.blocks {
		if a < b.address || a >= b.address+uintptr(max(1, len(b.memory))) {
			continue
		}
		if a+uintptr(bytes) > b.address+uintptr(len(b.memory)) {
			return nil, g.blame("%s: %d bytes at offset %d of an allocation of %d: %w", op, bytes, a-b.address, len(b.memory), kernel.ErrInvalid)
		}
		return b, nil
	}
	return nil, g.blame("%s: %d bytes at an address that is not allocated: %w", op, bytes, kernel.ErrInvalid)
}

// at returns the host address behind a device address of the block.
func (b *block) at(p kernel.Ptr) kernel.Ptr {
	return unsafe.Pointer(&b.memory[uintptr(p)-b.address])
}

// scribble fills memory with bytes that read as NaN in every float type.
func scribble(b []byte) {
	if len(b) > 0 {
		b[0] = 0xff
	}
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

type device struct {
	*GPU
	cpu  kernel.Device
	host sync.Map // memory of AllocHost, by address
}

func (d *device) Info() kernel.Info { return d.info() }

func (d *device) Memory() (free, total int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.config.Memory - d.used, d.config.Memory, d.lost
}

func (d *device) CheckMemory(p kernel.Ptr, bytes int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.blocks {
		if at := uintptr(p); at >= b.address && at < b.address+uintptr(len(b.memory)) && bytes <= int64(b.address+uintptr(len(b.memory))-at) {
			return nil
		}
	}
	return fmt.Errorf("fake: %d bytes of memory that is not this device's: %w", bytes, kernel.ErrInvalid)
}

// serial is what calls for memory and launches do first. Another call may come before it.
func (g *GPU) serial() {
	if !g.config.Serial {
		return
	}
	time.Sleep(20 * time.Microsecond)
	g.backend.driver.Lock()
	defer g.backend.driver.Unlock()
	g.drain()
}

func (d *device) Alloc(bytes int64) (kernel.Ptr, error) {
	d.serial()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.enter(Alloc); err != nil {
		return nil, err
	}
	if bytes > d.config.Memory-d.used {
		return nil, fmt.Errorf("fake: %d bytes, %d are free: %w", bytes, d.config.Memory-d.used, kernel.ErrOutOfMemory)
	}
	b := &block{address: d.next, memory: make([]byte, bytes)}
	scribble(b.memory)
	d.next += (uintptr(bytes) + 4095) &^ 4095
	d.next += 4096 // so that neighbours do not touch
	d.blocks[b.address] = b
	d.used += bytes
	return unsafe.Add(nil, b.address), nil
}

func (d *device) Free(p kernel.Ptr) error {
	d.serial()
	d.drain()
	d.mu.Lock()
	defer d.mu.Unlock()
	if p == nil {
		return nil
	}
	b := d.blocks[uintptr(p)]
	if b == nil {
		return d.blame("free of an address that is not allocated: %w", kernel.ErrInvalid)
	}
	delete(d.blocks, b.address)
	d.used -= int64(len(b.memory))
	b.freed = true
	scribble(b.memory)
	return d.lost
}

// drain waits until every stream has nothing to do.
func (g *GPU) drain() {
	g.mu.Lock()
	var all []*stream
	for s := range g.streams {
		all = append(all, s)
	}
	g.mu.Unlock()
	for _, s := range all {
		s.q.Lock()
		s.settle()
		s.q.Unlock()
	}
}

func (d *device) AllocHost(bytes int64) (kernel.Ptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.enter(AllocHost); err != nil {
		return nil, err
	}
	b := make([]byte, max(1, bytes))
	p := unsafe.Pointer(&b[0])
	d.host.Store(p, b)
	return p, nil
}

func (d *device) FreeHost(p kernel.Ptr) error {
	if _, ok := d.host.LoadAndDelete(p); !ok && p != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.blame("free of host memory that is not allocated: %w", kernel.ErrInvalid)
	}
	return nil
}

// packedHeader is what the packed form of a quantized weight begins with; the stored form follows.
const packedHeader = 16

func (d *device) PackedSize(w kernel.Weight) (int64, error) {
	if !w.Type.Quantized() {
		return 0, nil
	}
	return packedHeader + w.Type.Bytes(w.Rows*w.Cols), nil
}

func (d *device) ScratchBytes(p kernel.Pass) int64 {
	if !d.config.Scratch {
		return 0
	}
	return kernel.F32.Bytes(p.Rows * p.Heads * p.HeadDim)
}

func (d *device) Close() error {
	d.drain()
	return d.cpu.Close()
}
