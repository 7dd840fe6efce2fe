package optable

import (
	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/cuda"
	"github.com/vibrant-ml/vibrant/internal/fake"
	"github.com/vibrant-ml/vibrant/internal/kernel"
	"github.com/vibrant-ml/vibrant/internal/purego"
)

// Backends lists those that this build can hold devices of.
func Backends() []kernel.Backend {
	all := []kernel.Backend{purego.Backend(), fake.New(fake.Config{Memory: 1 << 30})}
	if c := csrc.Backend(); c != nil {
		all = append(all, c)
	}
	return append(all, cuda.Backend())
}
