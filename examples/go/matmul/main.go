// Command matmul multiplies two matrices where the user says and prints how fast.
//
//	go run ./examples/go/matmul -device cuda -n 4096
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
	n := flag.Int("n", 512, "rows and columns")
	flag.Parse()

	d, err := gpu.Open(*device)
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	if err := run(d, *n); err != nil {
		log.Fatal(err)
	}
}

func run(d *gpu.Device, n int) error {
	values := make([]float32, n*n)
	for i := range values {
		values[i] = float32(i%7) - 3
	}
	a, err := tensor.FromSlice(values, n, n).ToDevice(tensor.On(d))
	if err != nil {
		return err
	}
	return tensor.Try(func() {
		c := tensor.MatMul(a, a) // warms up
		c.SyncGPU()
		start := time.Now()
		const times = 5
		for range times {
			tensor.MatMulInto(c, a, a) // returns before a GPU has finished
		}
		c.SyncGPU()
		t := time.Since(start) / times
		fmt.Printf("%s: %d x %d in %v, %.1f GFLOP/s\n", d.Info().Name, n, n, t.Round(time.Microsecond), 2*float64(n)*float64(n)*float64(n)/t.Seconds()/1e9)
		fmt.Println(c.Slice(0, 1))
	})
}
