package ranks

import (
	"context"
	"fmt"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
)

// BenchmarkAllReduce sums over ranks of one process, over loopback.
func BenchmarkAllReduce(b *testing.B) {
	for _, n := range []int{2, 4} {
		for _, bytes := range []int{8 << 10, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("ranks=%d/bytes=%d", n, bytes), func(b *testing.B) {
				at := busy.Address(b)
				done := make(chan error, n)
				for rank := range n {
					go func() {
						g, err := Join(context.Background(), Config{Place: Place{Rank: rank, Size: n, Address: at}, Timeout: busy.Limit})
						if err == nil {
							x := make([]float32, bytes/4)
							if err = g.AllReduce(9, x); rank == 0 {
								b.ResetTimer()
							}
							for i := 0; i < b.N && err == nil; i++ {
								err = g.AllReduce(9, x)
							}
							if rank == 0 {
								b.StopTimer()
							}
							g.Close()
						}
						done <- err
					}()
				}
				for range n {
					if err := <-done; err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
