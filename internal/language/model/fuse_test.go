package model

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
)

// operations names the operations of a block.
func operations(block []op) string {
	var names []string
	for _, o := range block {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", o), "*model."), "Op"))
	}
	return strings.Join(names, " ")
}

// TestPlainLayersAreThreeFusedOperations holds the architectures of llama's shape to what GPUs are fastest at.
func TestPlainLayersAreThreeFusedOperations(t *testing.T) {
	for _, architecture := range []string{"llama", "qwen2", "qwen3"} {
		shape := testmodel.Tiny
		shape.Architecture = architecture
		c, err := ReadConfig(file(t, nil, shape))
		if err != nil {
			t.Fatal(err)
		}
		blocks := c.graph.blocks
		for i, want := range []string{
			"embedding",
			"normQKV attentionLinearAdd feedForward",
			"normQKV attentionLinearAdd feedForward",
			"normLinear",
		} {
			if got := operations(blocks[i]); got != want {
				t.Errorf("%s, block %d: %s, want %s", architecture, i, got, want)
			}
		}
		first, second := blocks[1][2].(*feedForwardOp), blocks[2][0].(*normQKVOp)
		attention := blocks[1][1].(*attentionLinearAddOp)
		if attention.normed != first.normed || attention.nextNorm != first.norm {
			t.Errorf("%s: attention does not prepare what the feed-forward reads", architecture)
		}
		if first.normed != second.normed || first.nextNorm != second.norm {
			t.Errorf("%s: the feed-forward does not prepare what the next layer reads", architecture)
		}
		if blocks[2][2].(*feedForwardOp).nextNorm != nil {
			t.Errorf("%s: a handing over without a partner", architecture)
		}
	}
}

// TestBitNetLayersRotateAndWriteAtOnce holds a layer of BitNet to six operations.
func TestBitNetLayersRotateAndWriteAtOnce(t *testing.T) {
	shape := testmodel.Tiny
	shape.Architecture = "bitnet-b1.58"
	c, err := ReadConfig(file(t, nil, shape))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := operations(c.graph.blocks[1]), "bitLinears ropeKVWrite attention bitLinears bitLinears bitLinears"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestAdaptersLeaveLayersFused: a stack's changes are within the three operations, and behind the output's product.
func TestAdaptersLeaveLayersFused(t *testing.T) {
	c, err := ReadConfig(file(t, nil, testmodel.Tiny))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"embedding codes",
		"normQKV attentionLinearAdd feedForward",
		"normQKV attentionLinearAdd feedForward",
		"norm linear update",
	} {
		if got := operations(c.within.blocks[i]); !strings.HasPrefix(got, want) {
			t.Errorf("block %d: %s, want %s", i, got, want)
		}
	}
	layer := c.within.blocks[1]
	if !layer[0].(*normQKVOp).adapted || !layer[1].(*attentionLinearAddOp).adapted || !layer[2].(*feedForwardOp).adapted {
		t.Error("an operation of the layer leaves its adapters out")
	}
	if c.graph.blocks[1][0].(*normQKVOp).adapted {
		t.Error("an operation of the graph without adapters has some")
	}
}

// A rank's layer is the same three operations, with a sum behind the second and the third, which passes on what these prepare.
func TestLayersOfRanksAreThreeFusedOperationsAndTwoSums(t *testing.T) {
	f := file(t, nil, testmodel.Tiny)
	c, err := ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := c.Split(f, 2)
	if err != nil {
		t.Fatal(err)
	}
	for rank, p := range parts {
		blocks := p.graph.blocks
		for i := 1; i <= 2; i++ {
			if got, want := operations(blocks[i]), "normQKV attentionLinearAdd reduce feedForward reduce"; got != want {
				t.Fatalf("rank %d, block %d: %s, want %s", rank, i, got, want)
			}
		}
		attention, first, ffn := blocks[1][1].(*attentionLinearAddOp), blocks[1][2].(*reduceOp), blocks[1][3].(*feedForwardOp)
		second, next := blocks[1][4].(*reduceOp), blocks[2][0].(*normQKVOp)
		if attention.x != nil || !ffn.alone {
			t.Errorf("rank %d: a part of a sum has the residual stream in it", rank)
		}
		if attention.normed != ffn.normed || first.normed != ffn.normed || first.nextNorm != ffn.norm || first.from != kernel.AfterAttention {
			t.Errorf("rank %d: the sum after attention does not prepare what the feed-forward reads", rank)
		}
		if second.normed != ffn.normed || next.normed != ffn.normed || second.nextNorm != next.norm || second.from != kernel.AfterFeedForward {
			t.Errorf("rank %d: the sum after the feed-forward does not prepare what the next layer reads", rank)
		}
		last := blocks[len(blocks)-2]
		if !first.parted || !second.parted || last[len(last)-1].(*reduceOp).parted {
			t.Errorf("rank %d: not all sums but the last may leave a rank its own columns alone", rank)
		}
		checkPlaces(t, p.graph)
	}
}

// TestValuesDoNotShareMemoryWhileTheyAreNeeded replays the placement of every graph.
func TestValuesDoNotShareMemoryWhileTheyAreNeeded(t *testing.T) {
	for _, fuse := range []string{"on", "off"} {
		t.Setenv("VIBRANT_FUSE", fuse)
		c, err := ReadConfig(file(t, nil, testmodel.Tiny))
		if err != nil {
			t.Fatal(err)
		}
		checkPlaces(t, c.graph)
	}
}

// checkPlaces follows which value lies in each slot, and names operands that another value has overwritten.
func checkPlaces(t *testing.T, g *graph) {
	t.Helper()
	holds := map[int]*value{}
	if g.counting != nil {
		holds[g.counting.slot] = g.counting
	}
	for i, block := range g.blocks {
		for _, o := range block {
			for _, v := range o.reads() {
				if holds[v.slot] != v {
					t.Errorf("block %d: %T reads a value that another one has overwritten", i, o)
				}
			}
			mine := map[int]bool{}
			for _, v := range o.writes() {
				if mine[v.slot] {
					t.Errorf("block %d: %T writes two values to one place", i, o)
				}
				mine[v.slot], holds[v.slot] = true, v
			}
			for _, v := range o.reads() {
				over := false
				for _, x := range o.overwrites() {
					over = over || x == v
				}
				if mine[v.slot] && !over && holds[v.slot] != v {
					t.Errorf("block %d: %T overwrites what it reads", i, o)
				}
			}
		}
	}
	if holds[g.hidden.slot] != g.hidden {
		t.Error("the hidden states are overwritten by the logits")
	}
}

func TestFusingIsOnOrOff(t *testing.T) {
	t.Setenv("VIBRANT_FUSE", "maybe")
	_, err := ReadConfig(file(t, nil, testmodel.Tiny))
	if err == nil || !strings.Contains(err.Error(), "VIBRANT_FUSE") {
		t.Errorf("%v", err)
	}
}
