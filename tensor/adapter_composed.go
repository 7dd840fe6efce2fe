package tensor

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

var updatesComposed atomic.Bool

// SetFusedUpdate says whether FusedUpdate is one kernel, as it is at first, or MatMul, Mul, MatMul, MulScalar and Add on the same
// device: to compare both, or to find a fault. Each composed call is counted by Fallbacks, and logged the first time.
func SetFusedUpdate(on bool) { updatesComposed.Store(!on) }

// FusedUpdateAvailable returns why a device has no kernel of FusedUpdate, nil where it has. It asks the device with an update of
// one element, and waits for it. The error wraps gpu.ErrUnsupported where it has none; others are trouble of the device.
func FusedUpdateAvailable(d *gpu.Device) error {
	var one [4]*Tensor // out, x, v, u
	for i := range one {
		t, err := NewTensorOnDevice(d, F32, 1, 1)
		if err != nil {
			return err
		}
		defer t.Free()
		if err := t.WriteFloat32s([]float32{1}); err != nil {
			return err
		}
		one[i] = t
	}
	args := kernel.FusedUpdateArgs{M: 1, K: 1, N: 1, R: 1, Scale: 1, Type: F32, WeightType: F32}
	err := enqueue(one[0].Stream(), func(s kernel.Stream, p pointers) error {
		args.Out, args.X, args.V, args.U = p[0], p[1], p[2], p[3]
		return s.FusedUpdate(&args)
	}, one[0], one[1], one[2], one[3])
	if errors.Is(err, gpu.ErrUnsupported) {
		return fmt.Errorf("fused update on %s: %w", d, err)
	}
	return errors.Join(err, d.Stream().Synchronize())
}

// compose writes add + the update to dst by operations that other things are made of.
func (u Update) compose(dst, add, x *Tensor, m, n, r int) {
	var made []*Tensor
	keep := func(t *Tensor) *Tensor {
		made = append(made, t)
		return t
	}
	defer func() {
		for _, t := range made {
			t.Free()
		}
	}()
	v, up := u.V, u.U
	if v.dtype != x.dtype {
		v, up = keep(Convert(v, x.dtype)), keep(Convert(up, x.dtype))
	}
	h := keep(MatMulWith(x.Reshape(m, x.cols()), v, MatMulOptions{TransB: u.VTransposed}))
	if codes := u.Codes; codes != nil {
		if codes.n != m*r { // one row for all
			ones := make([]float32, m)
			for i := range ones {
				ones[i] = 1
			}
			column := keep(output("fused update", x.Stream(), F32, []int{m, 1}))
			if err := column.WriteFloat32s(ones); err != nil {
				fail("fused update", err, column)
			}
			if column.dtype != x.dtype {
				column = keep(Convert(column, x.dtype))
			}
			codes = keep(MatMul(column, codes.Reshape(1, r)))
		}
		MulInto(h, h, codes.Reshape(m, r))
	}
	y := keep(MatMulWith(h, up, MatMulOptions{TransB: !u.UTransposed}))
	if u.Scale != 0 {
		MulScalarInto(y, y, u.Scale)
	}
	if out := dst.Reshape(m, n); add == nil {
		CopyInto(out, y)
	} else {
		AddInto(out, add.Reshape(m, n), y)
	}
}
