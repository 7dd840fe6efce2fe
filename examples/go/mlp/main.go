// Command mlp trains a network of two layers to tell the two arms of a spiral apart, with gradients written out by hand: reductions,
// broadcasting, transposed views and a fused expression.
//
//	go run ./examples/go/mlp -device cuda
package main

import (
	"flag"
	"fmt"
	"log"
	"math"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

func main() {
	log.SetFlags(0)
	device := flag.String("device", "cpu", "cpu, cuda or cuda:N")
	steps := flag.Int("steps", 1500, "steps of gradient descent")
	flag.Parse()

	d, err := gpu.Open(*device)
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	if err := tensor.Try(func() {
		first, last, right := train(d, *steps)
		fmt.Printf("loss %.2f before, %.2f after; %.0f %% right\n", first, last, 100*right)
	}); err != nil {
		log.Fatal(err)
	}
}

const points, hidden = 200, 32

// spiral returns points (points, 2) of two arms, and 1 for those of the second (points, 1).
func spiral(s *gpu.Stream) (x, y *tensor.Tensor) {
	arm := tensor.Arange(s, 0, 1, points, tensor.F32)
	y = tensor.Convert(tensor.Ge(arm, tensor.Full(s, points/2, tensor.F32)), tensor.F32)
	radius := tensor.Sub(arm, tensor.MulScalar(y, points/2))
	radius = tensor.MulScalar(radius, 2.0/points) // 0 to 1 along each arm
	angle := tensor.Add(tensor.MulScalar(radius, 4.5), tensor.MulScalar(y, math.Pi))
	x = tensor.Stack(1, tensor.Mul(radius, tensor.Cos(angle)), tensor.Mul(radius, tensor.Sin(angle)))
	return x, y.Reshape(points, 1)
}

// train returns the mean cross-entropy before and after, and the share of points on the right side.
func train(d *gpu.Device, steps int) (first, last, right float32) {
	s := d.Stream()
	x, y := spiral(s)
	w1, b1 := tensor.MulScalar(tensor.RandN(s, 1, tensor.F32, 2, hidden), 2), tensor.MulScalar(tensor.RandN(s, 2, tensor.F32, hidden), 0.5)
	w2, b2 := tensor.MulScalar(tensor.RandN(s, 3, tensor.F32, hidden, 1), 0.3), tensor.Full(s, 0, tensor.F32, 1)

	// One kernel each: the gradient through tanh, and a step of descent with momentum.
	throughTanh := tensor.Fuse(func(gradient, h tensor.Expr) tensor.Expr { return gradient.Mul(h.Mul(h).Neg().AddScalar(1)) })
	accelerate := tensor.Fuse(func(speed, gradient tensor.Expr) tensor.Expr {
		return speed.MulScalar(0.9).Sub(gradient.MulScalar(0.2))
	})
	parameters := []*tensor.Tensor{w1, b1, w2, b2}
	var speeds []*tensor.Tensor
	for _, p := range parameters {
		speeds = append(speeds, tensor.Full(s, 0, tensor.F32, p.Shape()...))
	}

	for step := range steps + 1 {
		tensor.Scope(func(func(*tensor.Tensor) *tensor.Tensor) { // what a step made is freed behind it
			h := tensor.Tanh(tensor.Add(tensor.MatMul(x, w1), b1)) // (points, hidden)
			p := tensor.Sigmoid(tensor.Add(tensor.MatMul(h, w2), b2))
			if step == 0 || step == steps {
				likely := tensor.Where(tensor.Gt(y, tensor.Full(s, 0.5, tensor.F32)), p, tensor.Sub(tensor.Ones(s, tensor.F32), p))
				last = -tensor.Mean(tensor.Log(likely)).Float32s()[0]
				hits := tensor.Gt(likely, tensor.Full(s, 0.5, tensor.F32))
				right = tensor.Mean(tensor.Convert(hits, tensor.F32)).Float32s()[0]
				if step == 0 {
					first = last
				}
			}
			error := tensor.MulScalar(tensor.Sub(p, y), 1.0/points) // of the loss by the logits
			back := throughTanh.Call(tensor.MatMul(error, w2.T()), h)
			gradients := []*tensor.Tensor{tensor.MatMul(x.T(), back), tensor.Sum(back, 0), tensor.MatMul(h.T(), error), tensor.Sum(error, 0)}
			for i, g := range gradients {
				tensor.CopyInto(speeds[i], accelerate.Call(speeds[i], g))
				tensor.AddInto(parameters[i], parameters[i], speeds[i])
			}
		})
	}
	return first, last, right
}
