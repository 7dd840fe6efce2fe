package dtype_test

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/dtype"
)

// What a row of 4096 weights takes in three types.
func ExampleType_Bytes() {
	for _, t := range []dtype.Type{dtype.F16, dtype.Q8_0, dtype.Q4_K} {
		fmt.Println(t, t.BlockSize(), t.Bytes(4096))
	}
	// Output:
	// F16 1 8192
	// Q8_0 32 4352
	// Q4_K 256 2304
}
