//go:build cgo

package ptx_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/vibrant-ml/vibrant/ptx"
)

func Example() {
	module, err := ptx.Emitter{Target: "sm_80"}.Emit(ptx.Kernel{Kind: ptx.Softmax, Rows: 32, Dim: 4096})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Join(strings.SplitN(module.Text, "\n", 4)[:3], "\n"))
	fmt.Println(module.Entry, module.GridX, module.Threads)
	// Output:
	// .version 8.0
	// .target sm_80
	// .address_size 64
	// softmax_warp_shuffle 32 256
}
