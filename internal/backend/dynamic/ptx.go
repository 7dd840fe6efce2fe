//go:build linux && (amd64 || arm64) && !nodlopen

package dynamic

import (
	"fmt"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// ptxKernel is vb_ptx_kernel.
type ptxKernel struct {
	size                           uintptr
	kind                           int32
	m, n, k, rows, dim, seq, heads int64
	tile, target                   int32
	epsilon                        float32
	rms, plain, causal, weight     int32
	kvHeads, capacity              int64
	theta                          float32
	neox, activation               int32
	entry                          *byte
}

// EmitPTX returns a kernel's PTX, the name of its entry, and how it is launched. kernel.ErrNotCompiled where no library was found.
func EmitPTX(p kernel.PTX) (source, entry string, launch kernel.PTXLaunch, err error) {
	if found().path == "" {
		return "", "", launch, fmt.Errorf("the emitter of PTX is part of the C library: %w: %s", kernel.ErrNotCompiled, Library())
	}
	k := &ptxKernel{
		size: unsafe.Sizeof(ptxKernel{}), kind: int32(p.Kind), m: int64(p.M), n: int64(p.N), k: int64(p.K), rows: int64(p.Rows), dim: int64(p.Dim), seq: int64(p.Seq),
		heads: int64(p.Heads), tile: int32(p.Tile), target: int32(p.Target), epsilon: p.Epsilon,
		rms: truth(p.RMS), plain: truth(p.Plain), causal: truth(p.Causal), weight: int32(p.Weight), kvHeads: int64(p.KVHeads),
		capacity: int64(p.Capacity), theta: p.Theta, neox: truth(p.NeoX), activation: int32(p.Activation),
	}
	if p.Entry != "" {
		k.entry = unsafe.StringData(p.Entry + "\x00")
	}
	if why := text(invoke(fnPTXInvalid, uintptr(unsafe.Pointer(k)))); why != "" {
		return "", "", launch, fmt.Errorf("%s: %w", why, kernel.ErrInvalid)
	}
	var size struct {
		x, y    int64
		threads int32
	}
	if err := check("ptx", invoke(fnPTXLaunch, uintptr(unsafe.Pointer(&size)), uintptr(unsafe.Pointer(k))), nil); err != nil {
		return "", "", launch, err
	}
	var out uintptr
	if err := check("ptx", invoke(fnPTXEmit, uintptr(unsafe.Pointer(&out)), uintptr(unsafe.Pointer(k))), nil); err != nil {
		return "", "", launch, err
	}
	defer invoke(fnPTXFree, out)
	return text(out), text(invoke(fnPTXName, uintptr(unsafe.Pointer(k)))), kernel.PTXLaunch{GridX: int(size.x), GridY: int(size.y), Threads: int(size.threads)}, nil
}
