package vibrant

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
)

const (
	// GPULayersAuto asks WithGPULayers for as many layers as fit.
	GPULayersAuto = -1
	// StreamAuto asks WithStreamedPrompts for the model's own number of tokens.
	StreamAuto = -1
	// StreamWherePossible asks WithStreamedPrompts for the same, or for none where prompts cannot be streamed: the note in Info says why.
	StreamWherePossible = -2
	// AllLayers stands for all layers in WithGPULayers and WithCPUExperts.
	AllLayers = 1 << 30
)

// WithGPULayers keeps the last n layers, and what follows them, on the GPU of WithDevice; the CPU has the other layers in RAM and
// computes them. GPULayersAuto takes as many as fit into the GPU's memory, beside cache and workspace. As many layers as the model
// has, or more, are the whole model. Several GPUs have n layers together, with WithLayerSplit. Without this option a model that does
// not fit is an error: nothing moves on its own.
//
// Open's errors: a device without a GPU; more GPUs than layers; ErrDoesNotFit where not one layer fits.
func WithGPULayers(n int) Option { return func(c *config) { c.gpuLayers = &n } }

// WithCPUExperts keeps the routed experts of the first n layers in RAM, or AllLayers, where the CPU computes them. Attention, the router
// and shared experts stay on the GPU. What a layer's experts need and their sum cross once each for every pass.
//
// Open's errors: a model without experts, or with fewer layers; a device without a GPU; several GPUs without WithLayerSplit.
func WithCPUExperts(n int) Option { return func(c *config) { c.cpuExperts = n } }

// WithStreamedPrompts has the GPU compute passes of so many tokens of a prompt, or more, alone: the weights in RAM come into its memory
// a layer ahead, in two slots of a layer each. StreamAuto means 32 tokens, of a model with experts 32 times all of them by those that a
// token has. The default 0 leaves every pass where the weights are. It takes a part of the model in RAM, and one GPU.
//
// Open's errors: nothing in RAM, layers of recurrent models there, matrices in two-bit codes, several GPUs. StreamWherePossible leaves
// every pass where the weights are in these cases, and where the slots do not fit.
func WithStreamedPrompts(tokens int) Option { return func(c *config) { c.streamFrom = tokens } }

// WithLayerSplit gives each of WithDevices whole layers, as many as its share of their memory, in place of a part of every layer:
// for devices that differ, or do not reach each other's memory. They compute a token one after another.
func WithLayerSplit() Option { return func(c *config) { c.layerSplit = true } }

// ParseGPULayers reads "auto", "all", or a number of layers; -1 means all, as other engines have it.
func ParseGPULayers(s string) (int, error) {
	switch s {
	case "auto":
		return GPULayersAuto, nil
	case "all", "-1":
		return AllLayers, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("layers on the GPU %q: want a number, auto or all", s)
	}
	return n, nil
}

// placement is where the layers of a model are.
type placement struct {
	model.Placement // of layers; without any, all devices compute every layer together
	devices         []*gpu.Device
	note            string
	streamNote      string     // why prompts are not streamed, of StreamWherePossible
	ranks           *gpu.Ranks // processes with the other parts of every layer; nil for this one alone
}

// leader is the device whose streams and memory a session's tokens are on.
func (p placement) leader() *gpu.Device {
	if p.Layers != nil {
		return p.devices[len(p.devices)-1]
	}
	return p.devices[0]
}

// exchanging returns how many devices compute every layer together.
func (p placement) exchanging() int {
	if p.Layers != nil {
		return 1
	}
	return len(p.devices)
}

// pipelined reports whether prompts are computed in short chunks, so that each device has another chunk at a time.
func (p placement) pipelined() bool {
	busy := 0
	for _, n := range p.Layers {
		if n > 0 {
			busy++
		}
	}
	return busy > 1 && p.Experts == 0 && p.Stream == 0
}

// place opens the devices (see config.open) and divides the layers of f among them.
func (c *config) place(f *gguf.File, open func() ([]*gpu.Device, string, error)) (p placement, err error) {
	if p.devices, p.note, err = open(); err != nil {
		return p, err
	}
	defer func() {
		if err != nil {
			closeDevices(p.devices)
			p.devices = nil
		}
	}()
	if c.gpuLayers == nil && c.cpuExperts == 0 && (!c.layerSplit || len(p.devices) == 1) {
		return p, nil // nothing to divide
	}
	shape, err := readShape(f)
	if err != nil {
		return p, err
	}
	return p, c.divide(f, shape, &p)
}

// divide decides which layers and experts each device has.
func (c *config) divide(f *gguf.File, shape *model.Config, p *placement) error {
	onGPU, experts := shape.Layers, c.cpuExperts
	if c.gpuLayers != nil {
		onGPU = min(*c.gpuLayers, shape.Layers)
	}
	if experts == AllLayers {
		experts = shape.Layers
	}
	if experts > 0 {
		if err := shape.CheckExperts(experts); err != nil {
			return err
		}
	}
	stream := c.streamFrom
	if stream == StreamAuto || stream == StreamWherePossible {
		stream = shape.StreamFrom()
	}
	asked := onGPU != 0 && c.gpuLayers != nil && (onGPU > 0 || p.note == "") || experts > 0
	switch inRAM := onGPU < shape.Layers || experts > 0; {
	case asked && slices.ContainsFunc(p.devices, onHost):
		if p.note != "" {
			return fmt.Errorf("a part of the model on a GPU: %s", p.note)
		}
		return errors.New("a part of the model on a GPU, and the CPU as the device: choose one")
	case !c.layerSplit && onHost(p.devices[0]): // there is no GPU, and none was insisted on
		return nil
	case onGPU == 0:
		return fmt.Errorf("no layer on %s: ask for the CPU instead (--device cpu)", p.devices[0])
	case inRAM && len(p.devices) > 1 && !c.layerSplit:
		return errors.New("a part of the model in RAM beside several GPUs that have a part of every layer: give them whole layers (--split layer)")
	}
	cards := p.devices
	var cpu *gpu.Device
	defer func() {
		if cpu != nil && !slices.Contains(p.devices, cpu) {
			cpu.Close()
		}
	}()
	put := func(onGPU int) (err error) {
		p.streamNote = ""
		if onGPU == shape.Layers && experts == 0 {
			if p.devices, p.Placement = cards, (model.Placement{}); len(cards) > 1 {
				p.Layers, err = sharesOf(onGPU, cards)
				if err == nil && !shape.Recurrent() && !slices.ContainsFunc(cards, onHost) && slices.Min(p.Layers) >= runsOfLayers {
					p.Turns = runsOfLayers
				}
			}
			return err
		}
		if cpu == nil {
			if cpu, err = gpu.Open("cpu", c.deviceOptions()...); err != nil {
				return err
			}
		}
		p.devices = append([]*gpu.Device{cpu}, cards...)
		p.Experts, p.Stream = experts, stream
		shares, err := sharesOf(onGPU, cards)
		p.Layers = append([]int{shape.Layers - onGPU}, shares...)
		if why := p.Streamable(shape); err == nil && why != nil && c.streamFrom == StreamWherePossible {
			p.Stream, p.streamNote = 0, why.Error()
		}
		return err
	}
	fill := func() error {
		if onGPU == GPULayersAuto {
			return c.most(f, shape.Layers, len(cards), p, put)
		}
		return put(onGPU)
	}
	err := fill()
	if c.streamFrom != StreamWherePossible || p.Stream == 0 {
		return err
	}
	fits := false
	if err == nil {
		fits, err = c.fits(f, *p)
	}
	if fits || err != nil && !errors.Is(err, ErrDoesNotFit) {
		return err
	}
	stream = 0
	err = fill()
	p.streamNote = fmt.Sprintf("%s has no room for the weights that would come", p.leader())
	return err
}

// fits reports whether each GPU has room for its part.
func (c *config) fits(f *gguf.File, p placement) (bool, error) {
	fit, err := predict(f, p, *c)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(fit.ofCards(), func(d DeviceFit) bool { return !d.Fits }), nil
}

// most puts as many layers on GPUs as fit: more layers need more memory.
func (c *config) most(f *gguf.File, layers, cards int, p *placement, put func(int) error) error {
	fits := func(n int) (bool, error) {
		if err := put(n); err != nil {
			return false, err
		}
		return c.fits(f, *p)
	}
	low, high := cards-1, layers // of which low is known to fit, or too few
	for low < high {
		middle := (low + high + 1) / 2
		fit, err := fits(middle)
		if err != nil {
			return err
		}
		if fit {
			low = middle
		} else {
			high = middle - 1
		}
	}
	if low < cards {
		leader := p.leader()
		return wrapped{ErrDoesNotFit, fmt.Sprintf("%v on %s: not one of its %d layers", ErrDoesNotFit, leader, layers)}
	}
	return put(low)
}

// runsOfLayers is in how many runs a GPU has its layers, in turn with others: the first tokens of a prompt then reach all GPUs in half the
// time. Each run more is a crossing more for a token.
const runsOfLayers = 2

// sharesOf divides layers by what each device has of all their memory, one at least.
func sharesOf(layers int, devices []*gpu.Device) ([]int, error) {
	if layers < len(devices) {
		return nil, fmt.Errorf("%d layers on %d devices: want a layer for each", layers, len(devices))
	}
	var all, before float64
	for _, d := range devices {
		all += float64(d.Info().TotalMemory)
	}
	shares, taken := make([]int, len(devices)), 0
	for i, d := range devices {
		before += float64(d.Info().TotalMemory)
		bound := layers * (i + 1) / len(devices)
		if all > 0 {
			bound = int(before/all*float64(layers) + 0.5)
		}
		bound = min(max(bound, taken+1), layers-(len(devices)-1-i))
		shares[i], taken = bound-taken, bound
	}
	return shares, nil
}
