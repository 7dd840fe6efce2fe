//go:build cgo

package csrc

// #include <stdlib.h>
// #include "vibrant.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func ptxKernel(p kernel.PTX) C.vb_ptx_kernel {
	k := C.vb_ptx_kernel{
		size: C.sizeof_vb_ptx_kernel, kind: C.vb_ptx_kind(p.Kind), m: C.int64_t(p.M), n: C.int64_t(p.N), k: C.int64_t(p.K), rows: C.int64_t(p.Rows), dim: C.int64_t(p.Dim),
		seq: C.int64_t(p.Seq), heads: C.int64_t(p.Heads), tile: C.int(p.Tile), target: C.int(p.Target), epsilon: C.float(p.Epsilon),
		rms: truth(p.RMS), plain: truth(p.Plain), causal: truth(p.Causal), weight: C.vb_dtype(p.Weight), kv_heads: C.int64_t(p.KVHeads),
		capacity: C.int64_t(p.Capacity), theta: C.float(p.Theta), neox: truth(p.NeoX), activation: C.int(p.Activation),
	}
	if p.Entry != "" {
		k.entry = C.CString(p.Entry)
	}
	return k
}

// EmitPTX returns a kernel's PTX, the name of its entry, and how it is launched.
func EmitPTX(p kernel.PTX) (text, entry string, launch kernel.PTXLaunch, err error) {
	k := ptxKernel(p)
	defer C.free(unsafe.Pointer(k.entry))
	if why := C.vb_ptx_invalid(&k); why != nil {
		return "", "", launch, fmt.Errorf("%s: %w", C.GoString(why), kernel.ErrInvalid)
	}
	var out *C.char
	if err := check("ptx", C.vb_ptx_emit(&out, &k), nil); err != nil {
		return "", "", launch, err
	}
	defer C.vb_ptx_free(out)
	var size C.vb_ptx_launch_size
	if err := check("ptx", C.vb_ptx_launch(&size, &k), nil); err != nil {
		return "", "", launch, err
	}
	return C.GoString(out), C.GoString(C.vb_ptx_name(&k)), kernel.PTXLaunch{GridX: int(size.grid_x), GridY: int(size.grid_y), Threads: int(size.threads)}, nil
}
