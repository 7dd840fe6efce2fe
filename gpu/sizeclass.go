package gpu

import "math/bits"

// Sizes are rounded up to classes, so that a block may serve any request of its class: multiples of 256 bytes (the
// alignment of device memory) up to 4 KiB, then eight steps a power of two, which wastes at most an eighth.
const (
	grain       = 256
	linearLimit = 4 << 10
	linearSteps = linearLimit / grain
	perDoubling = 8
	maxSize     = int64(1) << 46 // 64 TiB: far above any device
	classes     = linearSteps + perDoubling*(46-12)
	exact       = -1 // the class of blocks that were reserved: of the size asked for, up to the grain, and not kept
)

// sizeClass returns the class that serves a request of that many bytes, and the size of its blocks, which is at least
// that. The request is at most maxSize.
func sizeClass(bytes int64) (class int, size int64) {
	if bytes <= linearLimit {
		steps := max(1, (bytes+grain-1)/grain)
		return int(steps) - 1, steps * grain
	}
	power := bits.Len64(uint64(bytes-1)) - 1 // 2^power < bytes <= 2^(power+1)
	step := int64(1) << (power - 3)
	steps := (bytes - int64(1)<<power + step - 1) / step // 1..8 above 2^power
	return linearSteps + perDoubling*(power-12) + int(steps) - 1, int64(1)<<power + steps*step
}
