package vibrant

import "testing"

func TestRanksOfAHostHaveAGPUEach(t *testing.T) {
	for _, c := range []struct {
		kind        string
		local, gpus int
		chosen      bool
		want        string
	}{
		{"auto", 3, 4, false, "cuda:3"},
		{"cuda", 0, 1, false, "cuda:0"},
		{"cuda", 5, 1, true, "cuda:0"}, // the launcher shows each rank its own
		{"auto", 1, 0, false, "cpu"},
		{"cuda", 1, 0, false, "cuda:1"}, // which is no device
		{"auto", 5, 4, true, "local rank 5 wants a GPU of its own, but this host shows 4: no such device"},
		{"cuda", 1, 1, false, "local rank 1 wants a GPU of its own, but this host shows 1: no such device"},
	} {
		got, err := gpuOfRank(c.kind, c.local, c.gpus, c.chosen)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s, local rank %d of %d GPUs: %q, want %q", c.kind, c.local, c.gpus, got, c.want)
		}
	}
}
