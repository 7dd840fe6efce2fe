package purego_test

import (
	"fmt"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/backend/purego"
	"github.com/vibrant-ml/vibrant/internal/check/kerneltest"
)

func TestKernels(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		t.Run(fmt.Sprint("go/threads=", threads), func(t *testing.T) {
			dev, err := purego.Backend().Open(0, kernel.Options{Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			kerneltest.Run(t, dev, kerneltest.Tolerance{Linear: 1e-6}) // float32 with no other rounding
		})
	}
}
