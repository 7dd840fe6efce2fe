// Command graph records a small network once and replays it with new inputs: one call a step, however many operations
// it has.
//
//	go run ./examples/go/graph -device cuda
package main

import (
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

func main() {
	log.SetFlags(0)
	device := flag.String("device", "cpu", "cpu, cuda or cuda:N")
	flag.Parse()

	d, err := gpu.Open(*device)
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	if err := run(d); err != nil {
		log.Fatal(err)
	}
}

func run(d *gpu.Device) error {
	const width, layers = 256, 8
	values := make([]float32, width*width)
	for i := range values {
		values[i] = float32(i%13-6) / width
	}
	w, err := tensor.FromSlice(values, width, width).ToDevice(tensor.On(d))
	if err != nil {
		return err
	}
	x, err := tensor.New(d.Stream(), tensor.F32, 1, width)
	if err != nil {
		return err
	}
	h, y := x.Clone(), x.Clone()
	step := func() error {
		return tensor.Try(func() {
			tensor.CopyInto(h, x)
			for range layers {
				tensor.RMSNormInto(h, h, nil, 1e-6)
				tensor.LinearInto(y, h, w, nil)
				tensor.SiLUInto(y, y)
				tensor.AddInto(h, h, y)
			}
		})
	}
	if err := x.WriteFloat32s(values[:width]); err != nil {
		return err
	}
	if err := step(); err != nil { // loads the kernels
		return err
	}
	g, err := d.Stream().Capture(step)
	if err != nil {
		return err
	}
	defer g.Close()

	input := make([]float32, width)
	start := time.Now()
	const steps = 100
	for i := range steps {
		input[0] = float32(i)
		if err := x.WriteFloat32s(input); err != nil {
			return err
		}
		if err := g.Launch(); err != nil {
			return err
		}
	}
	if err := h.SyncGPU(); err != nil {
		return err
	}
	fmt.Printf("%s: %d operations in %v a step\n", d.Info().Name, 4*layers+1, (time.Since(start) / steps).Round(time.Microsecond))
	fmt.Println(h)
	return nil
}
