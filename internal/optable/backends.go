package optable

import (
	"github.com/vibrant-ml/vibrant/cuda"
	"github.com/vibrant-ml/vibrant/internal/fake"
	"github.com/vibrant-ml/vibrant/internal/kernel"
	"github.com/vibrant-ml/vibrant/internal/purego"
)

// Backends lists those that this build can hold devices of.
func Backends() []kernel.Backend {
	return []kernel.Backend{purego.Backend(), fake.New(fake.Config{Memory: 1 << 30}), cuda.Backend()}
}
