package main

import (
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
)

// TestTheNetworkLearns trains on the CPU. A network that has learnt nothing is right at half of the points with a loss of log 2.
func TestTheNetworkLearns(t *testing.T) {
	d, err := gpu.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	first, last, right := train(d, 1500)
	if !(first > 0.5 && last < 0.15 && right > 0.95) {
		t.Errorf("loss %v before, %v after; %v right", first, last, right)
	}
}
