package tensor_test

import (
	"errors"
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

func Example() {
	a := tensor.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	b := tensor.FromSlice([]float32{5, 6, 7, 8}, 2, 2)
	if x, err := a.ToDevice(tensor.GPU); err == nil { // stay on the CPU where there is no GPU
		a = x
		if b, err = b.ToDevice(tensor.GPU); err != nil {
			fmt.Println(err)
			return
		}
	}
	result := tensor.MatMul(a, b)
	fmt.Println(result.Float32s())
	// Output: [19 22 43 50]
}

// Operands that do not fit are a mistake of the program: they panic, and Try gives the error.
func ExampleTry() {
	err := tensor.Try(func() { tensor.MatMul(tensor.Zeros(4, 8), tensor.Zeros(7, 16)) })
	var shape *tensor.ShapeError
	fmt.Println(err, errors.As(err, &shape))
	// Output: matmul: (4,8) x (7,16): inner dimensions 8 and 7 differ true
}

// Weights are [outputs][inputs], in the type that a file stores.
func ExampleLinear() {
	x := tensor.FromSlice([]float32{1, 2, 3}, 1, 3)
	w := tensor.FromSlice([]float32{
		1, 0, 0,
		1, 1, 1,
	}, 2, 3)
	fmt.Println(tensor.Linear(x, w, tensor.FromSlice([]float32{10, 20})).Float32s())
	// Output: [11 26]
}

// Products of batches of matrices, of transposed ones, and in another precision.
func ExampleMatMulWith() {
	q := tensor.FromSlice([]float32{1, 0, 0, 1, 1, 1, 2, 2}, 2, 2, 2)
	k := tensor.FromSlice([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 2, 2, 2)
	scores := tensor.MatMulWith(q, k, tensor.MatMulOptions{TransB: true, Precision: tensor.PrecisionTF32})
	fmt.Println(scores)
	// Output:
	// [[[ 1.  3.]
	//   [ 2.  4.]]
	//
	//  [[11. 15.]
	//   [22. 30.]]]
}

func ExampleSoftmax() {
	x := tensor.FromSlice([]float32{0, 0, 5, 5, 200, 0}, 3, 2)
	fmt.Println(tensor.Softmax(x).Float32s())
	// Output: [0.5 0.5 0.5 0.5 1 0]
}

func ExampleLayerNorm() {
	x := tensor.FromSlice([]float32{1, 3, 100, 104}, 2, 2)
	fmt.Println(tensor.LayerNorm(x, tensor.FromSlice([]float32{1, 2}), tensor.FromSlice([]float32{0, 10}), 0).Float32s())
	// Output: [-1 12 -1 12]
}

func ExampleGELU() {
	x := tensor.FromSlice([]float32{-1, 0, 1, 2})
	fmt.Printf("%.4f\n%.4f\n", tensor.GELU(x).Float32s(), tensor.GELUTanh(x).Float32s())
	// Output:
	// [-0.1587 0.0000 0.8413 1.9545]
	// [-0.1588 0.0000 0.8412 1.9546]
}

func ExampleTensor_Slice() {
	x := tensor.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 3, 2)
	row := x.Slice(1, 2) // shares memory
	tensor.MulScalarInto(row, row, 10)
	fmt.Println(x)
	// Output:
	// [[ 1.  2.]
	//  [30. 40.]
	//  [ 5.  6.]]
}

func ExampleTopK() {
	values, ids := tensor.TopK(tensor.FromSlice([]float32{3, 9, 7, 9}), 3)
	fmt.Println(values.Float32s(), ids.Int32s())
	// Output: [9 9 7] [1 3 2]
}

// A graph replays recorded work on the same tensors.
func ExampleAddInto() {
	s := gpu.CPU().Stream()
	x, y := tensor.FromSlice([]float32{1, 2}), tensor.Zeros(2)
	g, err := s.Capture(func() error {
		return tensor.Try(func() { tensor.AddInto(y, y, x) })
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	for range 3 {
		if err := g.Launch(); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(y.Float32s())
	// Output: [3 6]
}

// A cache of keys and values, one query a step.
func ExampleAttention() {
	const heads, dim, capacity = 1, 2, 4
	k, v := tensor.Zeros(1, heads, capacity, dim), tensor.Zeros(1, heads, capacity, dim)
	for step, value := range [][]float32{{1, 0}, {3, 0}} {
		position := tensor.FromInt32s([]int32{int32(step)})
		in := tensor.FromSlice(value, 1, heads, dim)
		tensor.KVWrite(k, v, tensor.FromSlice([]float32{0, 0}, 1, heads, dim), in, position, nil)
		q := tensor.FromSlice([]float32{1, 1}, 1, heads, dim)
		out := tensor.Attention(q, k, v, tensor.AttentionOptions{Causal: true, Positions: position})
		fmt.Println(out.Float32s()) // the mean of the values so far, as all keys are alike
	}
	// Output:
	// [1 0]
	// [2 0]
}

// One kernel computes the whole expression.
func ExampleFuse() {
	f := tensor.Fuse(func(x, y tensor.Expr) tensor.Expr { return x.Mul(y).AddScalar(1).ReLU() })
	column := tensor.FromSlice([]float32{1, -1}, 2, 1)
	row := tensor.FromSlice([]float32{1, 2, 3})
	fmt.Println(f.Call(column, row))
	// Output:
	// [[2. 3. 4.]
	//  [0. 0. 0.]]
}

// The gradient of a bias is the sum of the rows, that of a weight a product with a transposed view.
func ExampleSum() {
	x := tensor.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 3, 2)
	gradient := tensor.FromSlice([]float32{1, 0, 0, 1, 1, 1}, 3, 2)
	fmt.Println(tensor.Sum(gradient, 0))
	fmt.Println(tensor.MatMul(x.T(), gradient))
	// Output:
	// [2. 2.]
	// [[ 6.  8.]
	//  [ 8. 10.]]
}
