package tensor_test

import (
	"testing"

	"github.com/vibrant-ml/vibrant/internal/optable"
)

// TestOps holds every operation to its row in the table, on every backend of this build: TestOps/cuda/RMSNorm/...
func TestOps(t *testing.T) { optable.Test(t) }
