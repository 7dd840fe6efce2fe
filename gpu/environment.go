package gpu

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// known are the values of environment variables that choose among few.
var known = []struct {
	name   string
	values []string
	list   bool // several, separated by commas
}{
	{"VIBRANT_CPU", []string{"go", "c"}, false},
	{"VIBRANT_CUDA", []string{"library", "ptx"}, false},
	{"VIBRANT_SIMD", []string{"plain", "avx2", "avx512", "amx"}, false},
	{"VIBRANT_TRACE", []string{"kernels", "ptx", "start"}, true},
}

// checkEnvironment refuses values without meaning, by the variable's name: a status of C cannot say which variable it was.
func checkEnvironment() error {
	for _, k := range known {
		all := []string{os.Getenv(k.name)}
		if k.list {
			all = strings.Split(all[0], ",")
		}
		for _, v := range all {
			if v != "" && !slices.Contains(k.values, v) {
				return fmt.Errorf("gpu: %s is %.40q: %w: want %s", k.name, v, ErrInvalid, strings.Join(k.values, ", "))
			}
		}
	}
	const capability = "VIBRANT_CUDA_CAPABILITY"
	if v := os.Getenv(capability); v != "" {
		if n, err := strconv.Atoi(v); err != nil || n < 53 {
			return fmt.Errorf("gpu: %s is %.40q: %w: want a compute capability without its point, such as 86", capability, v, ErrInvalid)
		}
	}
	return nil
}
