package vibrant

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/digits"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// The failures that callers tell apart, by errors.Is.
var (
	// ErrUnknownDevice says that a device name is none of auto, cpu, cuda, cuda:N, gpu and metal.
	ErrUnknownDevice = errors.New("unknown device")
	// ErrNoModel says that no path was given and that the program embeds no model (RegisterDefault).
	ErrNoModel = errors.New("no model was named, and none is embedded: name a GGUF file (-m FILE)")
	// ErrNoTokenizer says that the model's file has no tokenizer: it can be used by token ids.
	ErrNoTokenizer = errors.New("the model has no tokenizer")
	// ErrContextFull says that a prompt does not fit into the context.
	ErrContextFull = errors.New("the prompt does not fit into the context")
	// ErrDoesNotFit says that the model needs more memory than the device may give; the error has the numbers.
	ErrDoesNotFit = errors.New("the model does not fit")
	// ErrBusy says that a session is answering already.
	ErrBusy = errors.New("the session is busy")
	// ErrFileChanged says that a model's file was cut short or grew while a CPU computed with the weights in it: open it anew.
	ErrFileChanged = gguf.ErrFileChanged
	// ErrClosed says that a model or session was closed.
	ErrClosed = gpu.ErrClosed
	// ErrDeviceLost says that the GPU failed: close the model.
	ErrDeviceLost = gpu.ErrDeviceLost
)

// DeviceInfo describes a device.
type DeviceInfo struct {
	ID                string `json:"id"` // as WithDevice takes it
	Name              string `json:"name"`
	Backend           string `json:"backend"` // "go", "c" or "cuda"
	TotalMemory       int64  `json:"total_memory"`
	FreeMemory        int64  `json:"free_memory"`
	ComputeCapability string `json:"compute_capability,omitempty"`
	Multiprocessors   int    `json:"multiprocessors"` // SMs, or threads of a CPU
	Features          string `json:"features,omitempty"`
}

func deviceInfo(i gpu.Info, free int64) DeviceInfo {
	d := DeviceInfo{ID: i.ID, Name: i.Name, Backend: i.Backend, TotalMemory: i.TotalMemory, FreeMemory: free,
		Multiprocessors: i.Multiprocessors, Features: i.Features}
	if i.ComputeMajor > 0 {
		d.ComputeCapability = fmt.Sprintf("%d.%d", i.ComputeMajor, i.ComputeMinor)
	}
	return d
}

// Devices lists the devices that this build can use on this machine, the CPU first.
func Devices() ([]DeviceInfo, error) {
	infos, err := gpu.Devices()
	if err != nil && !errors.Is(err, gpu.ErrNoKernelImage) { // NoGPU says that
		return nil, err
	}
	devices := make([]DeviceInfo, 0, len(infos))
	for _, i := range infos {
		var free int64
		if d, err := gpu.Open(i.ID); err == nil {
			free, _, _ = d.Memory()
			i = d.Info()
			d.Close()
		}
		devices = append(devices, deviceInfo(i, free))
	}
	return devices, nil
}

// CPULibrary says where the C kernels of this process are: "linked into this program", the path of the library that a build
// without cgo found at run time, or why the CPU's kernels are those in Go.
func CPULibrary() string { return gpu.CPULibrary() }

// CUDALibrary says where the CUDA kernels of this process are: "linked into this program", the path of the
// libvibrant_cuda.so that was found at run time, or each place that was looked at and why no library was taken there.
func CUDALibrary() string { return gpu.CUDALibrary() }

// NoGPU says why this build finds no GPU on this machine, nil where it finds one.
func NoGPU() error {
	d, err := gpu.Open("cuda")
	if err != nil {
		return err
	}
	return d.Close()
}

// deviceKind reads a device's name: "auto", or what package gpu opens.
func deviceKind(name string) (string, error) {
	kind, number, numbered := strings.Cut(strings.ToLower(name), ":")
	_, valid := digits.Int(number)
	valid = valid || !numbered
	switch kind {
	case "gpu", "metal": // what users of other engines and systems type; here they mean CUDA
		kind = "cuda"
	case "cuda":
	case "auto", "cpu":
		valid = !numbered
	default:
		valid = false
	}
	switch {
	case !valid:
		return "", fmt.Errorf("%w %.40q: want auto, cpu, cuda, cuda:N, gpu, metal, or several GPUs as cuda:0,cuda:1", ErrUnknownDevice, name)
	case numbered:
		return kind + ":" + number, nil
	}
	return kind, nil
}

// deviceKinds reads the names of the devices that a model is divided among, separated by commas.
func deviceKinds(names string) ([]string, error) {
	var kinds []string
	for _, name := range strings.Split(names, ",") {
		kind, err := deviceKind(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if kind == "cuda" {
			kind = "cuda:0"
		}
		kinds = append(kinds, kind)
	}
	for i, kind := range kinds {
		if len(kinds) > 1 && kind == "auto" {
			return nil, fmt.Errorf("%w %q: auto is no one of several", ErrUnknownDevice, names)
		}
		if kind != "cpu" && slices.Contains(kinds[:i], kind) {
			return nil, fmt.Errorf("%w %q: %s is named twice", ErrUnknownDevice, names, kind)
		}
	}
	return kinds, nil
}

// openDevices opens the devices of a list of names.
func openDevices(names string, o ...gpu.Option) (devices []*gpu.Device, note string, err error) {
	kinds, err := deviceKinds(names)
	if err != nil {
		return nil, "", err
	}
	for _, kind := range kinds {
		var d *gpu.Device
		if d, note, err = openDevice(kind, o...); err != nil {
			closeDevices(devices)
			if n := len(devices); n > 0 && errors.Is(err, gpu.ErrNoDevice) {
				err = fmt.Errorf("%d of %d devices that were asked for are here: %w", n, len(kinds), err)
			}
			return nil, "", err
		}
		devices = append(devices, d)
	}
	return devices, note, nil
}

// opening is devices that a goroutine opens.
type opening struct {
	done    chan struct{} // closed when devices, note and err are there
	devices []*gpu.Device
	note    string
	err     error
	taken   bool
}

// openAhead opens the devices while the caller does something else: a GPU's driver and context take about as long as a tokenizer's
// vocabulary. The caller drops what it returns.
func (c config) openAhead() *opening {
	o := &opening{done: make(chan struct{})}
	go func() {
		defer close(o.done)
		o.devices, o.note, o.err = c.open()
	}()
	return o
}

// take waits for the devices, which the caller closes.
func (o *opening) take() ([]*gpu.Device, string, error) {
	<-o.done
	o.taken = true
	return o.devices, o.note, o.err
}

// drop has devices that were not taken closed when they are there, and does not wait for that.
func (o *opening) drop() {
	if o.taken {
		return
	}
	go func() {
		<-o.done
		closeDevices(o.devices)
	}()
}

// closeDevices returns the first error.
func closeDevices(devices []*gpu.Device) (err error) {
	for _, d := range devices {
		if e := d.Close(); err == nil {
			err = e
		}
	}
	return err
}

// OpenDevice opens the device that Open with these options would use, for package tensor. Where "auto" took no GPU, note
// says why. The caller closes it.
func OpenDevice(options ...Option) (d *gpu.Device, note string, err error) {
	c, err := newConfig(options)
	if err != nil {
		return nil, "", err
	}
	return openDevice(c.device, c.deviceOptions()...)
}

// openDevice opens the device of a name. auto takes the first GPU, or else the CPU with a note that says why.
func openDevice(name string, o ...gpu.Option) (d *gpu.Device, note string, err error) {
	id, err := deviceKind(name)
	if err != nil {
		return nil, "", err
	}
	if id != "auto" {
		d, err = gpu.Open(id, o...)
		return d, "", err
	}
	if d, err = gpu.Open("cuda", o...); err == nil {
		return d, "", nil
	}
	note = "no GPU: " + err.Error()
	d, err = gpu.Open("cpu", o...)
	return d, note, err
}
