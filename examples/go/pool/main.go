// Command pool shows where the memory of a device goes: what is in use, what is kept for reuse, and what happens at the
// limit.
//
//	go run ./examples/go/pool -device cuda
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

func main() {
	log.SetFlags(0)
	device := flag.String("device", "cpu", "cpu, cuda or cuda:N")
	flag.Parse()

	d, err := gpu.Open(*device, gpu.WithPoolLimit(64<<20))
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	show := func(what string) {
		s := d.Pool().Stats()
		fmt.Printf("%-22s in use %3d MiB, cached %3d MiB of %d; %d hits, %d misses, %d retries\n",
			what, s.InUse>>20, s.Cached>>20, s.Limit>>20, s.Hits, s.Misses, s.Retries)
	}
	show("at the start")

	x, err := tensor.NewTensorOnDevice(d, tensor.F32, 16<<18) // 16 MiB
	if err != nil {
		log.Fatal(err)
	}
	x.Zero()
	if err := tensor.Try(func() {
		for range 100 {
			tensor.Add(x, x) // dropped: the garbage collector or the limit brings the memory back
		}
	}); err != nil {
		log.Fatal(err)
	}
	show("after 100 dropped sums")

	if _, err := tensor.NewTensorOnDevice(d, tensor.F32, 1<<30); errors.Is(err, gpu.ErrOutOfMemory) {
		fmt.Println(err)
	}
	x.Free()
	show("after Free")
	d.Pool().Trim()
	show("after Trim")
}
