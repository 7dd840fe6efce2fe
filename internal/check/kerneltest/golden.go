package kerneltest

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(testdata.Path(t, "quants", name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// quantTypes are the block types of the catalogue.
func quantTypes() (types []kernel.DType) {
	for _, t := range dtype.All() {
		if t.Quantized() {
			types = append(types, t)
		}
	}
	return types
}

// golden returns blocks of a type and their values, by another engine.
func golden(t testing.TB, dt kernel.DType) (blocks []byte, values []float64) {
	t.Helper()
	blocks = file(t, dt.String()+".blocks.bin")
	values = decode(file(t, dt.String()+".f32.bin"), kernel.F32)
	if len(values)/dt.BlockSize()*dt.BlockBytes() != len(blocks) || len(values) == 0 {
		t.Fatalf("%v: %d bytes of blocks, %d values", dt, len(blocks), len(values))
	}
	return blocks, values
}

// matrix draws a weight matrix: of random floats, or of golden blocks in random order.
func (h *harness) matrix(dt kernel.DType, rows, cols int) (values []float64, w kernel.Weight) {
	h.t.Helper()
	w = kernel.Weight{Type: dt, Rows: rows, Cols: cols}
	if !dt.Quantized() {
		values, w.Data = h.floats(dt, rows*cols, 1)
		return values, w
	}
	blocks, all := golden(h.t, dt)
	size, bytes := dt.BlockSize(), dt.BlockBytes()
	var raw []byte
	for range rows * cols / size {
		// The second half of the golden blocks was made by a quantizer: values of one magnitude, as in a real matrix.
		i := len(all)/size/2 + h.rng.IntN(len(all)/size/2)
		raw = append(raw, blocks[i*bytes:(i+1)*bytes]...)
		values = append(values, all[i*size:(i+1)*size]...)
	}
	w.Data = upload(h, raw)
	return values, w
}

func testDequantize(h *harness) {
	for _, dt := range quantTypes() {
		blocks, want := golden(h.t, dt)
		out := h.output(kernel.F32, len(want))
		h.ok(h.stream.Convert(out, kernel.F32, upload(h, blocks), dt, len(want)))
		h.near(dt.String(), h.read(out, kernel.F32, len(want)), want, 0, 0)

		// Through a table of rows, and from an odd number of blocks, as the tails of vector code see them.
		for _, n := range []int{1, 3, 7} {
			cols := n * dt.BlockSize()
			table := kernel.Weight{Data: upload(h, blocks), Type: dt, Rows: 64 / n, Cols: cols}
			out := h.output(kernel.F32, 2*cols)
			h.ok(h.stream.Embedding(out, table, upload(h, []int32{1, 0}), 2))
			h.near(dt.String()+" rows", h.read(out, kernel.F32, 2*cols), append(append([]float64{}, want[cols:2*cols]...), want[:cols]...), 0, 0)
		}
	}
}

func testHalfConversions(h *harness) {
	// Every code of both 16-bit types, widened and brought back.
	codes := make([]uint16, 1<<16)
	for i := range codes {
		codes[i] = uint16(i)
	}
	for _, dt := range []kernel.DType{kernel.F16, kernel.BF16} {
		raw := make([]byte, 2<<16)
		for i, c := range codes {
			binary.LittleEndian.PutUint16(raw[2*i:], c)
		}
		wide := h.output(kernel.F32, len(codes))
		h.ok(h.stream.Convert(wide, kernel.F32, upload(h, codes), dt, len(codes)))
		values := h.read(wide, kernel.F32, len(codes))
		h.near(dt.String(), values, decode(raw, dt), 0, 0)
		back := h.output(dt, len(codes))
		h.ok(h.stream.Convert(back, dt, wide, kernel.F32, len(codes)))
		for i, c := range download[uint16](h, back, len(codes)) {
			if math.IsNaN(values[i]) {
				if !math.IsNaN(decode(binary.LittleEndian.AppendUint16(nil, c), dt)[0]) {
					h.t.Fatalf("%v: NaN %#x became %#x", dt, i, c)
				}
			} else if c != codes[i] {
				h.t.Fatalf("%v: %#x came back as %#x", dt, i, c)
			}
		}

		// Between all neighbours: the midpoint (a tie, to even) and a float32 step to either side.
		var mids []float32
		var want []uint16
		infinity := map[kernel.DType]uint16{kernel.F16: 0x7c00, kernel.BF16: 0x7f80}[dt]
		value := map[kernel.DType]func(uint16) float64{kernel.F16: halfValue, kernel.BF16: bfloatValue}[dt]
		for c := range infinity {
			mid := value(c) + (value(c+1)-value(c))/2
			if c+1 == infinity {
				mid = value(c) + (value(c)-value(c-1))/2
			}
			m := float32(mid)
			for _, v := range []float32{m, math.Nextafter32(m, 0), math.Nextafter32(m, float32(math.Inf(1))), -m} {
				mids = append(mids, v)
				want = append(want, nearest(float64(v), value, infinity))
			}
		}
		out := h.output(dt, len(mids))
		h.ok(h.stream.Convert(out, dt, upload(h, mids), kernel.F32, len(mids)))
		for i, c := range download[uint16](h, out, len(mids)) {
			if c != want[i] {
				h.t.Fatalf("%v: %v rounds to %#x, want %#x", dt, mids[i], c, want[i])
			}
		}
	}
	for _, golden := range []struct {
		dt        kernel.DType
		f32, bits string
		narrow    bool
	}{
		{kernel.F16, "F16.f32.bin", "F16.u16.bin", false}, {kernel.BF16, "BF16.f32.bin", "BF16.u16.bin", false},
		{kernel.F16, "F32_to_F16.f32.bin", "F32_to_F16.u16.bin", true},
	} {
		wide, narrow := file(h.t, golden.f32), file(h.t, golden.bits)
		n := len(narrow) / 2
		if golden.narrow {
			out := h.output(golden.dt, n)
			h.ok(h.stream.Convert(out, golden.dt, upload(h, wide), kernel.F32, n))
			h.near(golden.f32, h.read(out, golden.dt, n), decode(narrow, golden.dt), 0, 0)
			continue
		}
		out := h.output(kernel.F32, n)
		h.ok(h.stream.Convert(out, kernel.F32, upload(h, narrow), golden.dt, n))
		h.near(golden.f32, h.read(out, kernel.F32, n), decode(wide, kernel.F32), 0, 0)
	}
}

// testLinearGolden repeats the dot products of the golden data.
func testLinearGolden(h *harness) {
	var index struct {
		Types map[string]struct {
			NRand int `json:"n_rand"`
		} `json:"types"`
		VecDot struct {
			Cases map[string]struct {
				N   int
				Dot float64 `json:"dot_f64"`
				Abs float64 `json:"sum_abs_f64"`
			}
		} `json:"vec_dot"`
	}
	h.ok(json.Unmarshal(file(h.t, "index.json"), &index))
	activations := file(h.t, "vecdot_act.f32.bin")
	for _, dt := range quantTypes() {
		c, ok := index.VecDot.Cases[dt.String()]
		if !ok && (dt == kernel.Q1_0 || dt == kernel.Q2_0) {
			continue // these came later, with golden values alone
		}
		if !ok {
			h.t.Fatalf("no golden dot product of %v", dt)
		}
		blocks, _ := golden(h.t, dt)
		w := kernel.Weight{Data: upload(h, blocks[index.Types[dt.String()].NRand*dt.BlockBytes():]), Type: dt, Rows: 1, Cols: c.N}
		y := h.output(kernel.F32, 1)
		h.ok(h.stream.Linear(y, upload(h, activations), w, nil, 1))
		// One dot product cancels almost entirely, so its error is measured against the RMS size of such sums.
		h.near(dt.String(), h.read(y, kernel.F32, 1), []float64{c.Dot}, 0, h.tol.Linear*c.Abs)
	}
}
