package tensor_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/tensor"
)

func ternaryValues(seed uint64, n int) []int8 {
	random := rand.New(rand.NewPCG(seed, 0))
	values := make([]int8, n)
	for i := range values {
		values[i] = int8(random.IntN(3) - 1)
	}
	return values
}

// TestMicrosoftsLayoutIsRead holds Int2Microsoft to the formula by which Microsoft's kernel finds an element, and every pair of
// layouts to giving the same bytes there and back.
func TestMicrosoftsLayoutIsRead(t *testing.T) {
	const rows, cols = 48, 160
	values := ternaryValues(1, rows*cols)
	codes, err := tensor.EncodeInt2(tensor.Int2Microsoft, values, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	for n := range rows {
		for k := range cols {
			word := (n/16)*4*cols + (k/32)*128 + ((n%16)/8)*64 + ((k%32)/16)*32 + (n%8)*4
			bits := uint32(codes[word]) | uint32(codes[word+1])<<8 | uint32(codes[word+2])<<16 | uint32(codes[word+3])<<24
			j := k % 16
			if got := int8(bits>>((j%4)*8+(j/4)*2)&3) - 2; got != values[n*cols+k] {
				t.Fatalf("row %d, column %d: %d, want %d", n, k, got, values[n*cols+k])
			}
		}
	}
	layouts := []tensor.Int2Layout{tensor.Int2Rows, tensor.Int2Interleaved, tensor.Int2Microsoft}
	for _, from := range layouts {
		first, err := tensor.EncodeInt2(from, values, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range layouts {
			there, err := tensor.ConvertInt2(to, from, first, rows, cols)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := tensor.ConvertInt2(from, to, there, rows, cols); err != nil || !bytes.Equal(back, first) {
				t.Errorf("layout %d to %d and back: %v, the same %v", from, to, err, bytes.Equal(back, first))
			}
		}
	}
}

func TestEncodingRefusesOtherWeights(t *testing.T) {
	if _, err := tensor.EncodeInt2(tensor.Int2Rows, []int8{0, 1, 2, 0}, 1, 4); !errors.Is(err, tensor.ErrInt2Code) {
		t.Errorf("the value 2: %v", err)
	}
	if _, err := tensor.ConvertInt2(tensor.Int2Interleaved, tensor.Int2Rows, []byte{0x55, 0xd5}, 2, 4); !errors.Is(err, tensor.ErrInt2Code) {
		t.Errorf("the code 3: %v", err)
	}
	var shape *tensor.ShapeError
	if _, err := tensor.EncodeInt2(tensor.Int2Microsoft, make([]int8, 8*32), 8, 32); !errors.As(err, &shape) {
		t.Errorf("8 rows in tiles of 16: %v", err)
	}
	if _, err := tensor.NewTernary(gpu.CPU(), make([]int8, 6), 1, 6, nil, nil); !errors.As(err, &shape) {
		t.Errorf("6 columns: %v", err)
	}
	if _, err := tensor.NewTernary(gpu.CPU(), make([]int8, 8), 2, 4, []float32{1, 2}, []int32{1, 3}); !errors.As(err, &shape) {
		t.Errorf("a segment that ends behind the last row: %v", err)
	}
	if _, err := tensor.TernaryOf(tensor.FromSlice([]float32{1, -1, 0, 0.5}, 1, 4)); !errors.Is(err, tensor.ErrNotTernary) {
		t.Errorf("1 beside 0.5: %v", err)
	}
}

// TestTernaryOfKeepsEveryWeight encodes matrices whose rows have one scale or several.
func TestTernaryOfKeepsEveryWeight(t *testing.T) {
	for _, scales := range [][]float32{{0.25, 0.25, 0.25}, {0.25, 3, 1e-3}} {
		values := ternaryValues(2, 3*72)
		weights := make([]float32, len(values))
		for i, v := range values {
			weights[i] = float32(v) * scales[i/72]
		}
		w, err := tensor.TernaryOf(tensor.FromSlice(weights, 3, 72))
		if err != nil {
			t.Fatal(err)
		}
		raw := make([]byte, w.Codes.Bytes())
		if err := w.Codes.ReadBytes(raw); err != nil {
			t.Fatal(err)
		}
		if got, err := tensor.DecodeInt2(w.Layout, raw, 3, 72); err != nil || !slices.Equal(got, values) {
			t.Errorf("weights differ (%v)", err)
		}
		if got := w.Scales.Float32s(); len(got) == 1 && got[0] != scales[0] || len(got) == 3 && !slices.Equal(got, scales) {
			t.Errorf("scales %v, want %v", got, scales)
		}
		w.Free()
	}
}

func ExampleBitLinear() {
	// Two rows of four weights: +1 0 -1 +1 and 0 0 +1 -1, all times 0.5.
	w, err := tensor.NewTernary(gpu.CPU(), []int8{1, 0, -1, 1, 0, 0, 1, -1}, 2, 4, []float32{0.5}, nil)
	if err != nil {
		panic(err)
	}
	defer w.Free()
	x := tensor.FromSlice([]float32{1, 2, -127, 8}, 1, 4)
	fmt.Println(tensor.BitLinear(x, w, nil).Float32s())
	// Output: [68 -67.5]
}

// TestRowsWithNaNAreRoundedApart holds a row with NaN to a scale of NaN, wherever it lies, and rows beside it to what they are alone.
// An infinity has a scale of 0.
func TestRowsWithNaNAreRoundedApart(t *testing.T) {
	const cols = 70
	for _, at := range []int{0, 15, 16, 63, cols - 1} {
		x := make([]float32, 4*cols)
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		x[cols+at], x[2*cols+at], x[3*cols+at] = float32(math.NaN()), -float32(math.NaN()), float32(math.Inf(-1))
		_, scales := tensor.QuantizeRows(tensor.FromSlice(x, 4, cols))
		s := scales.Float32s()
		if s[0] != 127.0/3 || s[1] == s[1] || s[2] == s[2] || s[3] != 0 {
			t.Errorf("element %d: scales %v, want 127/3, NaN, NaN, 0", at, s)
		}
	}
}

// TestTuningKeepsSums tunes a product on a GPU: the choice is one of those listed, and later sums are those of before.
func TestTuningKeepsSums(t *testing.T) {
	d, _ := openFake(t, fake.Config{})
	const rows, cols = 40, 192
	w, err := tensor.NewTernary(d, ternaryValues(3, rows*cols), rows, cols, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	codes, _ := tensor.QuantizeRows(on(t, d, tensor.FromSlice(ramp(2*cols), 2, cols)))
	before := tensor.W2A8Sums(codes, w).Int32s()
	best, us, err := tensor.TuneW2A8(2, w)
	if err != nil || !slices.Contains(tensor.Tunings(), best) || !(us > 0) {
		t.Fatalf("%+v in %g us, %v", best, us, err)
	}
	if after := tensor.W2A8Sums(codes, w).Int32s(); !slices.Equal(after, before) {
		t.Errorf("sums differ with %+v", best)
	}
	var shape *tensor.ShapeError
	for m, weights := range map[int][]*tensor.Ternary{0: {w}, 5: {w}, 1: nil} {
		if _, _, err := tensor.TuneW2A8(m, weights...); !errors.As(err, &shape) {
			t.Errorf("%d rows, %d matrices: %v", m, len(weights), err)
		}
	}
	onCPU, err := tensor.NewTernary(gpu.CPU(), ternaryValues(3, rows*cols), rows, cols, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if best, _, err := tensor.TuneW2A8(1, onCPU); err != nil || best != (tensor.Tuning{}) {
		t.Errorf("a CPU: %+v, %v", best, err)
	}
}
