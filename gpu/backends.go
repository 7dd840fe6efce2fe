package gpu

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/cuda"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/backend/purego"
	"github.com/vibrant-ml/vibrant/internal/digits"
	"github.com/vibrant-ml/vibrant/internal/environment"
)

// cpuBackend is the one behind the name "cpu": C kernels where cgo is on, or a library of them is found at run time. VIBRANT_CPU=go
// chooses pure Go in any build.
func cpuBackend() kernel.Backend {
	if b := csrc.Backend(); b != nil && os.Getenv("VIBRANT_CPU") != "go" {
		return b
	}
	return purego.Backend()
}

// cudaBackend is the one behind the names "cuda" and "cuda:N".
func cudaBackend() kernel.Backend { return cuda.Backend() }

// CPULibrary says where the C kernels of this process are: "linked into this program", the path of the libvibrant.so (or
// libvibrant_cuda.so) that a build without cgo found at run time, or why the CPU's kernels are those in Go.
func CPULibrary() string {
	if os.Getenv("VIBRANT_CPU") == "go" {
		return "VIBRANT_CPU=go chooses the kernels in Go"
	}
	return csrc.Library()
}

// CUDALibrary says where the CUDA kernels of this process are: "linked into this program", the path of the
// libvibrant_cuda.so that was found, or why there are none.
func CUDALibrary() string { return csrc.CUDALibrary() }

// parseID splits "cuda:1" into its kind and index. A name without a number has 0.
func parseID(id string) (kind string, index int, err error) {
	kind, number, numbered := strings.Cut(id, ":")
	if !numbered {
		number = "0"
	}
	index, valid := digits.Int(number)
	if !valid || kind != "cuda" && (kind != "cpu" || index != 0) {
		return "", 0, fmt.Errorf("gpu: device %.40q: %w: want cpu, cuda or cuda:N", id, ErrInvalid)
	}
	return kind, index, nil
}

// checkEnvironment refuses variables of the environment whose value has no meaning.
func checkEnvironment() error {
	if err := environment.Check(); err != nil {
		return fmt.Errorf("gpu: %w: %w", err, ErrInvalid)
	}
	return nil
}

// Devices lists the devices of this machine that this build can use, the CPU first. That there is no GPU is no error;
// Open says why. One that is there and cannot be used (ErrNoKernelImage) is an error beside the list of the others.
func Devices() ([]Info, error) {
	if err := checkEnvironment(); err != nil {
		return nil, err
	}
	var all []Info
	for _, b := range []kernel.Backend{cpuBackend(), cudaBackend()} {
		infos, err := b.Devices()
		for _, i := range infos {
			all = append(all, Info(i))
		}
		if err != nil && !errors.Is(err, ErrNotCompiled) && !errors.Is(err, ErrNoDevice) {
			return all, err
		}
	}
	return all, nil
}

// Open opens a device by name: "cpu", "cuda" (the first GPU) or "cuda:1". The caller closes it. Each Open of the same
// GPU gives a device of its own with its own pool; see Shared for one that a whole process uses.
//
// Errors: ErrNotCompiled, ErrNoDevice, ErrNoKernelImage; ErrInvalid for a name that is none, and for an environment variable
// (VIBRANT_CPU and its neighbours) whose value has no meaning.
func Open(id string, opts ...Option) (*Device, error) {
	kind, index, err := parseID(id)
	if err != nil {
		return nil, err
	}
	if err := checkEnvironment(); err != nil {
		return nil, err
	}
	b := cpuBackend()
	if kind == "cuda" {
		b = cudaBackend()
	}
	return OpenBackend(b, index, opts...)
}
