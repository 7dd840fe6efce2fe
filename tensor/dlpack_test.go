//go:build linux && (amd64 || arm64) && !nodlopen

package tensor

import (
	"bytes"
	endian "encoding/binary"
	"errors"
	"math"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/cuda"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/backend/purego"
	"github.com/vibrant-ml/vibrant/internal/check/absent"
	"github.com/vibrant-ml/vibrant/internal/check/busy"
)

func eachDevice(t *testing.T, f func(t *testing.T, d *gpu.Device)) {
	all := []kernel.Backend{purego.Backend(), fake.New(fake.Config{Memory: 1 << 28}), cuda.Backend(), csrc.PTX()}
	if c := csrc.Backend(); c != nil {
		all = append(all, c)
	}
	for _, b := range all {
		t.Run(b.Name(), func(t *testing.T) {
			d, err := gpu.OpenBackend(b, 0)
			if absent.Device(t, b.Name(), err) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			f(t, d)
		})
	}
}

// counted returns 0, 1, ... of a shape on a device.
func counted(t *testing.T, d *gpu.Device, shape ...int) *Tensor {
	t.Helper()
	values := make([]float32, extent(shape))
	for i := range values {
		values[i] = float32(i)
	}
	a, err := New(d.Stream(), F32, shape...)
	if err == nil {
		err = a.WriteFloat32s(values)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestDLPackSharesMemoryAndGivesItBackOnce(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for _, versioned := range []bool{false, true} {
			before, exports := d.Pool().Stats().InUse, len(dlExports.at)
			a := counted(t, d, 3, 4)
			for name, view := range map[string]*Tensor{"whole": a, "transposed": a.T(), "column": a.Select(1, 1), "every other": a.SliceAlong(1, 1, 4, 2),
				"from an odd place": a.Reshape(12).Slice(5, 12), "one": a.Select(0, 2).Select(0, 3), "none": a.Slice(1, 1)} {
				managed, err := view.ToDLPack(versioned)
				if err != nil {
					t.Fatal(err)
				}
				b, err := FromDLPack(d.Stream(), managed, versioned)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if !slices.Equal(b.Shape(), view.Shape()) || !slices.Equal(b.Float32s(), view.Float32s()) {
					t.Errorf("%s: %v, want %v", name, b, view)
				}
				if view.n > 0 && b.Pointer() != view.Pointer() {
					t.Errorf("%s: a copy", name)
				}
				b.Free()
				b.Free()
				if len(dlExports.at) != exports {
					t.Errorf("%s: its deleter was not called", name)
				}
			}
			// The exported memory outlives the tensor.
			managed, err := a.ToDLPack(versioned)
			if err != nil {
				t.Fatal(err)
			}
			a.Free()
			if _, err := a.ToDLPack(versioned); !errors.Is(err, gpu.ErrClosed) {
				t.Errorf("a freed tensor is exported: %v", err)
			}
			b, err := FromDLPack(d.Stream(), managed, versioned)
			if err != nil {
				t.Fatal(err)
			}
			if other := counted(t, d, 3, 4); other.Pointer() == b.Pointer() {
				t.Error("the memory of an export was given to another tensor")
			} else {
				other.Free()
			}
			if got := b.Float32s(); got[11] != 11 {
				t.Errorf("the memory of an export has changed: %v", got)
			}
			b.Free()
			// What nobody takes is given back by hand.
			a = counted(t, d, 3, 4)
			if managed, err = a.ToDLPack(versioned); err != nil {
				t.Fatal(err)
			}
			FreeDLPack(managed)
			FreeDLPack(managed)
			a.Free()
			if now := d.Pool().Stats().InUse; now != before || len(dlExports.at) != exports {
				t.Errorf("versioned %v: %d bytes and %d exports stay", versioned, now-before, len(dlExports.at)-exports)
			}
		}
	})
}

// foreignArray is an array of somebody else's, who counts the calls of its deleter.
type foreignArray struct {
	dlVersioned
	extents [4]int64
	data    [6]float32
}

var deleted atomic.Int32

// count has the deleter of what ToDLPack returns count its calls for an array.
func (a *foreignArray) count() {
	dlExports.Lock()
	defer dlExports.Unlock()
	if dlExports.at == nil {
		dlExports.at = map[uintptr]dlExport{}
	}
	dlExports.at[uintptr(unsafe.Pointer(a))] = dlExport{func() { deleted.Add(1); a.count() }, new(runtime.Pinner)}
}

func newForeign(pins *runtime.Pinner) *foreignArray {
	a := &foreignArray{extents: [4]int64{2, 3, 3, 1}, data: [6]float32{1, 2, 3, 4, 5, 6}}
	pins.Pin(a)
	a.count()
	a.major = 1
	a.deleter, _ = dlDeleter()
	a.tensor = dlTensor{data: uintptr(unsafe.Pointer(&a.data)), deviceType: dlCPU, dims: 2, code: 2, bits: 32, lanes: 1,
		shape: uintptr(unsafe.Pointer(&a.extents[0])), strides: uintptr(unsafe.Pointer(&a.extents[2]))}
	return a
}

func TestDLPackOfOthers(t *testing.T) {
	var pins runtime.Pinner
	defer pins.Unpin()
	s := gpu.CPU().Stream()
	deleted.Store(0)
	a := newForeign(&pins)
	x, err := FromDLPack(s, unsafe.Pointer(a), true)
	if err != nil {
		t.Fatal(err)
	}
	view := x.T()
	x = nil
	runtime.GC()
	AddInto(view, view, view) // in place, in the memory of others
	if a.data != [6]float32{2, 4, 6, 8, 10, 12} || deleted.Load() != 0 {
		t.Errorf("%v, %d deletions", a.data, deleted.Load())
	}
	view = nil
	busy.Until(t, "a dropped array is not deleted", func() bool { runtime.GC(); return deleted.Load() > 0 })
	if deleted.Load() != 1 {
		t.Errorf("a dropped array was deleted %d times", deleted.Load())
	}
	a.tensor.strides = 0 // row-major
	a.tensor.byteOffset = 4
	a.extents[0] = 1
	if x, err = FromDLPack(s, unsafe.Pointer(a), true); err != nil || !slices.Equal(x.Float32s(), []float32{4, 6, 8}) {
		t.Errorf("from an offset: %v %v", x, err)
	}
	x.Free()
	if deleted.Load() != 2 {
		t.Errorf("deleted %d times", deleted.Load())
	}
}

// TestDLPackRefuses keeps the arrays their owner's: no deleter is called.
func TestDLPackRefuses(t *testing.T) {
	var pins runtime.Pinner
	defer pins.Unpin()
	deleted.Store(0)
	for name, c := range map[string]struct {
		change func(a *foreignArray)
		want   error
		text   string
	}{
		"version":          {func(a *foreignArray) { a.major = 2 }, gpu.ErrUnsupported, "version 2.0"},
		"read-only":        {func(a *foreignArray) { a.flags = 1 }, gpu.ErrUnsupported, "read-only"},
		"int64":            {func(a *foreignArray) { a.tensor.code, a.tensor.bits = 0, 64 }, gpu.ErrUnsupported, "64 bits"},
		"lanes":            {func(a *foreignArray) { a.tensor.lanes = 4 }, gpu.ErrUnsupported, "4 lanes"},
		"device":           {func(a *foreignArray) { a.tensor.deviceType = dlCUDA }, gpu.ErrInvalid, "device (2, 0)"},
		"nil":              {func(a *foreignArray) { a.tensor.data = 0 }, gpu.ErrInvalid, "nil"},
		"misaligned":       {func(a *foreignArray) { a.tensor.byteOffset = 2 }, gpu.ErrInvalid, "multiple of 4"},
		"dimensions":       {func(a *foreignArray) { a.tensor.dims = -1 }, gpu.ErrInvalid, "-1 dimensions"},
		"negative stride":  {func(a *foreignArray) { a.extents[2] = -3 }, nil, "stride -3"},
		"stride too large": {func(a *foreignArray) { a.extents[2] = 1 << 62 }, nil, "stride"},
		"negative shape":   {func(a *foreignArray) { a.extents[0] = -2 }, nil, "negative"},
	} {
		a := newForeign(&pins)
		c.change(a)
		x, err := FromDLPack(gpu.CPU().Stream(), unsafe.Pointer(a), true)
		var shape *ShapeError
		if x != nil || err == nil || !strings.Contains(err.Error(), c.text) || c.want != nil && !errors.Is(err, c.want) || c.want == nil && !errors.As(err, &shape) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := FromDLPack(gpu.CPU().Stream(), nil, false); !errors.Is(err, gpu.ErrInvalid) {
		t.Error(err)
	}
	if deleted.Load() != 0 {
		t.Errorf("%d arrays that were refused are deleted", deleted.Load())
	}
	q, err := New(gpu.CPU().Stream(), Q8_0, 32)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.ToDLPack(false); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("blocks: %v", err)
	}
}

func TestFromPointerChecks(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		theirs := counted(t, d, 64)
		released := 0
		of := func(shape, strides []int, bytes int64) Memory {
			return Memory{Pointer: theirs.Pointer(), Bytes: bytes, DType: F32, Shape: shape, Strides: strides, Release: func() { released++ }}
		}
		x, err := FromPointer(d.Stream(), of([]int{4, 8}, []int{16, 2}, 256))
		if err != nil {
			t.Fatal(err)
		}
		want := theirs.Reshape(4, 16).SliceAlong(1, 0, 16, 2)
		if !slices.Equal(x.Float32s(), want.Float32s()) {
			t.Errorf("%v, want %v", x, want)
		}
		x.Free()
		if released != 1 {
			t.Errorf("released %d times", released)
		}
		for name, m := range map[string]Memory{
			"too short": of([]int{65}, nil, 256), "strides too far": of([]int{4, 8}, []int{17, 2}, 256), "strides of another rank": of([]int{4}, []int{1, 1}, 256),
			"negative": of([]int{4}, []int{-1}, 256), "shape": of([]int{-4}, nil, 256),
		} {
			var shape *ShapeError
			if _, err := FromPointer(d.Stream(), m); !errors.As(err, &shape) {
				t.Errorf("%s: %v", name, err)
			}
		}
		m := of([]int{1}, nil, 254)
		m.Pointer = unsafe.Add(m.Pointer, 2)
		if _, err := FromPointer(d.Stream(), m); !errors.Is(err, gpu.ErrInvalid) {
			t.Errorf("misaligned: %v", err)
		}
		if !d.Info().HostMemory {
			host := make([]float32, 4)
			if _, err := FromPointer(d.Stream(), Memory{Pointer: unsafe.Pointer(&host[0]), Bytes: 16, DType: F32, Shape: []int{4}}); !errors.Is(err, gpu.ErrInvalid) {
				t.Errorf("host memory on a GPU: %v", err)
			}
		}
		if released != 1 {
			t.Errorf("memory that was refused is released")
		}
	})
}

func TestEnqueueOrdersOperandsAndChecksDevices(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		a, b := counted(t, d, 8), counted(t, d, 8)
		view := a.Slice(2, 6)
		if err := Enqueue("mine", d.Stream(), func(l Launch) error {
			if l.At[0] != view.Pointer() || l.At[1] != nil || l.At[2] != b.Pointer() {
				t.Errorf("operands at %v", l.At)
			}
			if driven := d.Info().Backend == "cuda" || d.Info().Backend == "ptx"; driven != (l.Stream != nil) {
				t.Errorf("stream %v of %s", l.Stream, d)
			}
			if d.Info().HostMemory {
				copy(unsafe.Slice((*float32)(l.At[0]), 4), unsafe.Slice((*float32)(l.At[2]), 4))
			}
			return nil
		}, view, nil, b); err != nil {
			t.Fatal(err)
		}
		if got := a.Float32s(); d.Info().HostMemory && !slices.Equal(got, []float32{0, 1, 0, 1, 2, 3, 6, 7}) {
			t.Errorf("%v", got)
		}
		mine := errors.New("refused")
		if err := Enqueue("mine", d.Stream(), func(Launch) error { return mine }, a); !errors.Is(err, mine) || !strings.HasPrefix(err.Error(), "mine: ") {
			t.Error(err)
		}
		never := func(Launch) error { t.Error("launched"); return nil }
		if err := Enqueue("mine", d.Stream(), never, a, FromSlice([]float32{1})); !errors.Is(err, gpu.ErrInvalid) {
			t.Errorf("an operand elsewhere: %v", err)
		}
		b.Free()
		if err := Enqueue("mine", d.Stream(), never, a, b); !errors.Is(err, gpu.ErrClosed) {
			t.Errorf("a freed operand: %v", err)
		}
	})
}

// forgedArray is memory that a forged description is of, and what the description says.
type forgedArray struct {
	dlVersioned
	extents [128]int64
	data    [4096]byte
}

// FuzzDLPack wants an error, or the elements that the description's strides lead to. Where the described memory is not what there is,
// which nobody can check on a CPU, a tensor must only not reach behind the end of all addresses.
func FuzzDLPack(f *testing.F) {
	extents := func(n ...int64) (b []byte) {
		for _, x := range n {
			b = endian.LittleEndian.AppendUint64(b, uint64(x))
		}
		return b
	}
	f.Add(uint32(1), uint64(0), int32(dlCPU), int32(0), int32(2), uint32(2<<8|32), uint16(1), uint64(0), uint64(0), extents(2, 3, 3, 1))
	f.Add(uint32(1), uint64(0), int32(dlCPU), int32(0), int32(2), uint32(2<<8|32), uint16(1), uint64(8), uint64(1), extents(2, 3, 1, 2))
	f.Add(uint32(1), uint64(0), int32(dlCUDAHost), int32(7), int32(1), uint32(1<<8|8), uint16(1), uint64(3), uint64(2), extents(5))
	f.Add(uint32(1), uint64(0), int32(dlCPU), int32(0), int32(2), uint32(2<<8|32), uint16(1), uint64(0), uint64(0), extents(5, 4, 2, 1)) // shares
	f.Add(uint32(1), uint64(0), int32(dlCPU), int32(0), int32(2), uint32(2<<8|32), uint16(1), uint64(0), uint64(0), extents(3, 4, 0, 1)) // repeats
	f.Add(uint32(1), uint64(0), int32(dlCPU), int32(0), int32(1), uint32(2<<8|32), uint16(1), ^uint64(3), uint64(0), extents(1, 1))
	f.Add(uint32(1), uint64(0), int32(dlCPU), int32(0), int32(1), uint32(1<<8|8), uint16(1), ^uint64(0), uint64(3), extents(1, 1))
	f.Add(uint32(1), uint64(0), int32(dlCPU), int32(0), int32(3), uint32(2<<8|32), uint16(1), uint64(0), uint64(0), extents(1<<40, 1<<40, 0, 1, 1, 1))
	f.Add(uint32(1), uint64(0), int32(dlCPU), int32(0), int32(2), uint32(2<<8|32), uint16(1), uint64(0), uint64(0), extents(1<<32, 1, 1<<32, 1))
	f.Add(uint32(1), uint64(0), int32(dlCPU), int32(0), int32(2), uint32(2<<8|32), uint16(1), uint64(0), uint64(0), extents(-1, -1, 1, 1))
	f.Add(uint32(1), uint64(0), int32(dlCPU), int32(0), int32(2), uint32(2<<8|32), uint16(1), uint64(0), uint64(0), extents(2, 2, math.MinInt64, math.MaxInt64))
	f.Add(uint32(1), uint64(0), int32(dlCPU), int32(0), int32(64), uint32(6<<8|8), uint16(1), uint64(0), uint64(2), extents(slices.Repeat([]int64{1}, 64)...))
	f.Add(uint32(1), uint64(0), int32(dlCPU), int32(0), int32(3), uint32(2<<8|32), uint16(1), uint64(0), uint64(2), extents(0, 1<<40, 1<<40))
	f.Add(uint32(1), uint64(0), int32(dlCPU), int32(0), int32(65), uint32(2<<8|32), uint16(1), uint64(0), uint64(0), extents(1))
	f.Add(uint32(0), uint64(0), int32(dlCPU), int32(0), int32(math.MinInt32), uint32(0), uint16(0), uint64(0), uint64(0), extents())
	f.Fuzz(func(t *testing.T, major uint32, flags uint64, device, id, dims int32, kind uint32, lanes uint16, offset, how uint64, extents []byte) {
		var pins runtime.Pinner
		defer pins.Unpin()
		a := &forgedArray{dlVersioned: dlVersioned{major: major, flags: flags}}
		pins.Pin(a)
		for i := range min(len(a.extents), len(extents)/8) {
			a.extents[i] = int64(endian.LittleEndian.Uint64(extents[8*i:]))
		}
		for i := range a.data {
			a.data[i] = byte(i*37) & 0x3f // no NaN, which a kernel may make quiet
		}
		at := 0
		if dims > 0 && dims <= 64 {
			at = int(dims)
		}
		a.tensor = dlTensor{data: uintptr(unsafe.Pointer(&a.data)), deviceType: device, deviceID: id, dims: dims, code: uint8(kind >> 8), bits: uint8(kind),
			lanes: lanes, shape: uintptr(unsafe.Pointer(&a.extents[0])), strides: uintptr(unsafe.Pointer(&a.extents[at])), byteOffset: offset}
		switch how % 4 {
		case 1:
			a.tensor.shape = 0
		case 2:
			a.tensor.strides = 0
		case 3:
			a.tensor.data = ^uintptr(0) - 15 // the last 16 bytes
		}
		x, err := FromDLPack(gpu.CPU().Stream(), unsafe.Pointer(&a.dlVersioned), true)
		if err != nil {
			if shape := (*ShapeError)(nil); x != nil || !errors.As(err, &shape) && !errors.Is(err, gpu.ErrInvalid) && !errors.Is(err, gpu.ErrUnsupported) {
				t.Fatal(x, err)
			}
			return
		}
		defer x.Free()
		first, reach := new(big.Int).SetUint64(uint64(a.tensor.data)), big.NewInt(1)
		first.Add(first, new(big.Int).SetUint64(offset))
		for d, s := range x.Strides() {
			if s < 0 || x.Shape()[d] < 0 {
				t.Fatalf("%v of strides %v", x.Shape(), x.Strides())
			}
			reach.Add(reach, new(big.Int).Mul(big.NewInt(int64(x.Shape()[d])-1), big.NewInt(int64(s))))
		}
		size := int64(x.DType().BlockBytes())
		end := new(big.Int).Add(first, reach.Mul(reach, big.NewInt(size)))
		if x.Len() > 0 && end.BitLen() > 64 {
			t.Fatalf("%v of strides %v from %d on", x.Shape(), x.Strides(), first)
		}
		memory := new(big.Int).SetUint64(uint64(uintptr(unsafe.Pointer(&a.data))))
		if x.Len() == 0 || x.Len() > 4096 || first.Cmp(memory) < 0 || end.Cmp(memory.Add(memory, big.NewInt(int64(len(a.data))))) > 0 {
			return // not this memory
		}
		var want []byte
		for n := range x.Len() {
			place := int64(offset)
			for d := x.Rank() - 1; d >= 0; d-- {
				place += size * int64(n%x.Shape()[d]) * int64(x.Strides()[d])
				n /= x.Shape()[d]
			}
			want = append(want, a.data[place:place+size]...)
		}
		got := make([]byte, len(want))
		if shape := (*ShapeError)(nil); x.Rank() > kernel.MaxDims && errors.As(x.ReadBytes(got), &shape) {
			return // kernels of strides take no more dimensions
		}
		if err := x.ReadBytes(got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v of strides %v: % x, want % x, %v", x.Shape(), x.Strides(), got, want, err)
		}
		err = Try(func() { CopyInto(x, x.ToContiguous()) })
		if shape := (*ShapeError)(nil); err != nil && !(errors.As(err, &shape) && x.repeats()) || err == nil && x.repeats() {
			t.Fatalf("%v of strides %v written: %v", x.Shape(), x.Strides(), err)
		}
	})
}

// TestTensorsOfTheSameForeignMemory has operations see that an operand shares memory with the result, as they see it of views.
func TestTensorsOfTheSameForeignMemory(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		theirs := counted(t, d, 64)
		from := func(first int, shape, strides []int) *Tensor {
			x, err := FromPointer(d.Stream(), Memory{Pointer: theirs.Slice(first, 64).Pointer(), Bytes: 4 * int64(64-first), DType: F32, Shape: shape, Strides: strides})
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		sum, from0 := from(4, []int{16}, nil), from(0, []int{16}, nil)
		want := Add(from0, from0).Float32s()
		if AddInto(sum, from0, from0); !slices.Equal(sum.Float32s(), want) {
			t.Errorf("a sum beside its operand: %v, want %v", sum, want)
		}
		square := from(0, []int{4, 4}, nil)
		want = Add(square, square).Float32s()
		if AddInto(from(0, []int{4, 4}, nil), square, square); !slices.Equal(square.Float32s(), want) {
			t.Errorf("in place: %v, want %v", square, want)
		}
		shared := from(0, []int{5, 4}, []int{2, 1})
		for what, err := range map[string]error{
			"product": Try(func() { MatMulInto(square, from(0, []int{4, 4}, []int{1, 4}), square.Clone()) }),
			"sum":     Try(func() { AddInto(shared, shared, shared) }), "copy": Try(func() { CopyInto(shared, shared.Clone()) }),
			"write": shared.WriteFloat32s(make([]float32, 20)), "reduction": Try(func() { SumInto(shared, counted(t, d, 5, 4, 3), 2) }),
		} {
			if shape := (*ShapeError)(nil); !errors.As(err, &shape) {
				t.Errorf("%s into memory that is shared: %v", what, err)
			}
		}
	})
}
