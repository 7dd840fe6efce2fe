package vibrant

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
)

// GPULayersAuto asks WithGPULayers for as many layers as fit.
const GPULayersAuto = -1

// WithGPULayers keeps the last n layers, and what follows them, on the GPU of WithDevice; the CPU has the other layers in RAM and
// computes them. GPULayersAuto takes as many as fit into the GPU's memory, beside cache and workspace. As many layers as the model
// has, or more, are the whole model. Without this option a model that does not fit is an error: nothing moves on its own.
func WithGPULayers(n int) Option { return func(c *config) { c.gpuLayers = &n } }

// WithLayerSplit gives each of WithDevices whole layers, as many as its share of their memory, in place of a part of every layer:
// for devices that differ, or do not reach each other's memory. They compute a token one after another.
func WithLayerSplit() Option { return func(c *config) { c.layerSplit = true } }

// ParseGPULayers reads "auto", "all", or a number of layers; -1 means all, as other engines have it.
func ParseGPULayers(s string) (int, error) {
	const all = 1 << 30
	switch s {
	case "auto":
		return GPULayersAuto, nil
	case "all", "-1":
		return all, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("layers on the GPU %q: want a number, auto or all", s)
	}
	return n, nil
}

// placement is where the layers of a model are.
type placement struct {
	devices []*gpu.Device
	layers  []int // of each device, in order; nil where all compute every layer together
	note    string
}

// leader is the device whose streams and memory a session's tokens are on.
func (p placement) leader() *gpu.Device {
	if p.layers != nil {
		return p.devices[len(p.devices)-1]
	}
	return p.devices[0]
}

// exchanging returns how many devices compute every layer together.
func (p placement) exchanging() int {
	if p.layers != nil {
		return 1
	}
	return len(p.devices)
}

// place opens the devices and divides the layers of f among them.
func (c *config) place(f *gguf.File) (p placement, err error) {
	if p.devices, p.note, err = c.open(); err != nil {
		return p, err
	}
	defer func() {
		if err != nil {
			closeDevices(p.devices)
			p.devices = nil
		}
	}()
	switch {
	case c.layerSplit && c.gpuLayers != nil:
		return p, errors.New("layers divided among GPUs, and some of them on the CPU: choose one")
	case c.layerSplit:
		if len(p.devices) == 1 {
			return p, nil // nothing to divide
		}
		shape, err := readShape(f)
		if err != nil {
			return p, err
		}
		p.layers, err = sharesOf(shape.Layers, p.devices)
		return p, err
	case c.gpuLayers != nil:
		return p, c.offload(f, &p)
	}
	return p, nil
}

func readShape(f *gguf.File) (*model.Config, error) {
	if err := isModel(f); err != nil {
		return nil, err
	}
	return model.ReadConfig(f)
}

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

// offload keeps some layers on the GPU, and the others on the CPU.
func (c *config) offload(f *gguf.File, p *placement) error {
	card, n := p.devices[0], *c.gpuLayers
	if card.Info().HostMemory {
		if n > 0 && p.note == "" {
			p.note = "the layers that were asked for on a GPU are on the CPU, which was asked for too"
		}
		return nil
	}
	shape, err := readShape(f)
	if err != nil || n >= shape.Layers {
		return err
	}
	if len(p.devices) > 1 {
		return errors.New("layers on the CPU beside several GPUs are not supported")
	}
	if n == 0 {
		return fmt.Errorf("no layer on %s: ask for the CPU instead (--device cpu)", card)
	}
	whole := placement{devices: []*gpu.Device{card}}
	if n == GPULayersAuto {
		fit, err := predict(f, whole, *c)
		if err != nil || fit.Fits {
			return err
		}
	}
	cpu, err := gpu.Open("cpu", c.deviceOptions()...)
	if err != nil {
		return err
	}
	p.devices = []*gpu.Device{cpu, card}
	if n > 0 {
		p.layers = []int{shape.Layers - n, n}
		return nil
	}
	// The most that fit: more layers need more memory.
	low, high := 0, shape.Layers-1
	for low < high {
		middle := (low + high + 1) / 2
		p.layers = []int{shape.Layers - middle, middle}
		fit, err := predict(f, *p, *c)
		if err != nil {
			return err
		}
		if fit.Devices[1].Fits {
			low = middle
		} else {
			high = middle - 1
		}
	}
	if low == 0 {
		return wrapped{ErrDoesNotFit, fmt.Sprintf("%v on %s: not one of its %d layers", ErrDoesNotFit, card, shape.Layers)}
	}
	p.layers = []int{shape.Layers - low, low}
	return nil
}
