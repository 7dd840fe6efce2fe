package tensor

import (
	"fmt"
	"runtime"

	"github.com/vibrant-ml/vibrant/gguf"
	"github.com/vibrant-ml/vibrant/gpu"
)

// FromGGUF returns a tensor of a GGUF file on a device, in the type that the file stores; Convert to F32 dequantizes. On a CPU it lies
// in the mapped file where its data is aligned to 16 bytes, as files have it, and stays valid when the file is closed; it may be
// written, and the file does not change. Tensors of one name that lie in the file share memory. GPUs get a copy.
//
// Errors: gguf.ErrNoTensor; gpu.ErrUnsupported for a type that has no kernels, such as F64; trouble of the device.
func FromGGUF(d *gpu.Device, f *gguf.File, name string) (*Tensor, error) {
	info, err := f.Tensor(name)
	if err != nil {
		return nil, err
	}
	if !info.Type.Known() {
		return nil, fmt.Errorf("tensor: %.64q of the GGUF file has type %v, which has no kernels: %w", name, info.Type, gpu.ErrUnsupported)
	}
	data, keep, err := f.Data(name)
	if err != nil {
		return nil, err
	}
	t, err := FromMemory(d, info.Type, data, keep, info.Shape...)
	runtime.KeepAlive(keep)
	if err != nil {
		return nil, fmt.Errorf("tensor: %.64q of the GGUF file: %w", name, err)
	}
	return t, nil
}
