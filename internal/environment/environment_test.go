package environment

import (
	"strings"
	"testing"
)

func TestAValueWithoutMeaningIsRefusedByName(t *testing.T) {
	for _, c := range []struct{ name, value, wants string }{
		{"VIBRANT_CPU", "rust", "go, c"},
		{"VIBRANT_CUDA", "PTX", "library, ptx"},
		{"VIBRANT_SIMD", "avx", "plain, avx2, avx512, amx"},
		{"VIBRANT_FUSE", "maybe", "on, off"},
		{"VIBRANT_TRACE", "start,kernel", "kernels, ptx, start"},
		{"VIBRANT_CUDA_CAPABILITY", "8.6", "a compute capability without its point"},
		{"VIBRANT_CUDA_CAPABILITY", "52", "a compute capability without its point"},
		{"VIBRANT_CPU", "", ""},
		{"VIBRANT_TRACE", "start,,ptx", ""},
		{"VIBRANT_CUDA_CAPABILITY", "86", ""},
		{"VIBRANT_LIBRARY", "anything", ""},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			for _, err := range []error{Check(), Check(c.name)} {
				if refused := err != nil; refused != (c.wants != "") || refused &&
					(!strings.HasPrefix(err.Error(), c.name+" is ") || !strings.Contains(err.Error(), "want "+c.wants)) {
					t.Errorf("%v, want %q", err, c.wants)
				}
			}
			if err := Check("VIBRANT_PORT"); err != nil {
				t.Errorf("of another variable: %v", err)
			}
		})
	}
}

func TestTheTableNamesEveryValue(t *testing.T) {
	table := Markdown()
	for _, v := range All {
		for _, name := range v.Names {
			if !strings.Contains(table, "`"+name+"`") {
				t.Errorf("the table lacks %s", name)
			}
		}
		for _, value := range v.Values {
			if !strings.Contains(v.About, "`"+value+"`") {
				t.Errorf("the row of %s does not say %q", v.Names[0], value)
			}
		}
	}
}
