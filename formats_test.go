package vibrant

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// A model with weights of each format, blocks that another engine made, computes what its values as float32 do. The hidden
// sizes are of real models: those that are no multiple of 256 take the formats with smaller blocks.
func TestModelsOfEveryFormatComputeAsTheirValues(t *testing.T) {
	for _, format := range dtype.All() {
		if !format.Quantized() && format != dtype.F16 && format != dtype.BF16 {
			continue
		}
		for _, hidden := range []int{256, 576, 896} {
			if hidden%format.BlockSize() != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%v/%d", format, hidden), func(t *testing.T) {
				name := format.String() + ".blocks.bin"
				if !format.Quantized() {
					name = format.String() + ".u16.bin"
				}
				blocks, err := os.ReadFile(testdata.Path(t, "quants", name))
				if err != nil {
					t.Fatal(err)
				}
				file := modelOfBlocks(t, format, hidden, blocks)
				want := logitsOf(t, dequantized(t, file))
				for _, kv := range []KVType{KVF16, KVBF16} {
					// Inputs are rounded to int8 for integer products, up to 1/254 of a block's largest value, and keys and values to
					// 8 bits for BF16. Norms and sums that cancel take that to 0.04 here; blocks read wrongly give 0.5 and more.
					if off := distance(want, logitsOf(t, file, WithKVType(kv))); !(off <= 0.06) {
						t.Errorf("cache of %v: the logits are %.4f of their size off", kv, off)
					}
				}
			})
		}
	}
}

// modelOfBlocks returns a small model whose matrices are of a format, of blocks that a quantizer made: in golden data these
// are the second half. Rows begin at different blocks.
func modelOfBlocks(t *testing.T, format dtype.Type, hidden int, blocks []byte) []byte {
	t.Helper()
	shape := testmodel.Shape{Hidden: hidden, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 64, FeedForward: 2 * hidden, Vocab: 320, Context: 128}
	f, err := gguf.FromBytes(testmodel.Random(shape))
	if err != nil {
		t.Fatal(err)
	}
	at, size := 0, format.BlockBytes()
	half := blocks[len(blocks)/size/2*size:]
	if !format.Quantized() { // golden floats have all magnitudes; these lie in 0.5 to 1
		half = halves(format)
	}
	return testmodel.Retype(f, func(x *gguf.Tensor, data []byte) (gguf.Type, []byte) {
		if strings.HasSuffix(x.Name, "attn_norm.weight") { // keeps attention's scores small: large ones tell rounding apart
			data = bytes.Repeat(binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.03)), len(data)/4)
		}
		if len(x.Dims) != 2 {
			return x.Type, data
		}
		out := make([]byte, format.Bytes(x.Elements()))
		for i := 0; i < len(out); i += size {
			copy(out[i:], half[at:at+size])
			at = (at + 7*size) % len(half)
		}
		return gguf.Type(format), out
	})
}

// halves returns floats of 16 bits between 0.5 and 1 of either sign.
func halves(format dtype.Type) (b []byte) {
	exponent := uint16(0x3800) // of F16
	mask := uint16(0x3ff)
	if format == dtype.BF16 {
		exponent, mask = 0x3f00, 0x7f
	}
	for i := range uint16(1001) {
		x := exponent | i*40503>>3&mask | i*25173&0x8000
		b = append(b, byte(x), byte(x>>8))
	}
	return b
}

func logitsOf(t *testing.T, file []byte, options ...Option) [][]float32 {
	t.Helper()
	m, err := OpenBytes(t.Context(), file, append(options, WithDevice("cpu"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	logits, err := m.Logits(t.Context(), []int32{1, 17, 300, 5, 99, 250, 3, 42, 160, 7, 311, 64})
	if err != nil {
		t.Fatal(err)
	}
	return logits
}

// distance returns the norm of what two results differ by, of the first one's.
func distance(want, got [][]float32) float64 {
	sum, diff := 0.0, 0.0
	for i, row := range want {
		for j, x := range row {
			d := float64(x) - float64(got[i][j])
			sum, diff = sum+float64(x)*float64(x), diff+d*d
		}
	}
	return math.Sqrt(diff / sum)
}
