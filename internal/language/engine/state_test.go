package engine

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestACacheThatWasReadGoesOnAsTheOneThatWasWritten has every architecture, with rings and recurrent states too, compute a prompt,
// hand its cache to another session, and go on there: greedily, and from an earlier position.
func TestACacheThatWasReadGoesOnAsTheOneThatWasWritten(t *testing.T) {
	dir := testdata.Path(t, "models")
	nothing := func() error { return nil }
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for _, c := range fewer(randomModels) {
			t.Run(c.file, func(t *testing.T) {
				golden := readGolden(t, dir, c.file)
				m := loadModel(t, d, filepath.Join(dir, c.file+".gguf"), 128)
				o := Options{Context: 128, KVType: tensor.F32, Chunk: 7}
				first, second := newSession(t, m, o), newSession(t, m, o)
				if err := first.Prefill(context.Background(), golden.IDs); err != nil {
					t.Fatal(err)
				}
				var written bytes.Buffer
				if err := first.WriteCache(&written); err != nil {
					t.Fatal(err)
				}
				if err := second.ReadCache(&written, first.Tokens(), first.Past(), nothing); err != nil {
					t.Fatal(err)
				}
				for _, prompt := range [][]int32{golden.IDs, golden.IDs[:len(golden.IDs)/2]} {
					reused := second.Stats().ReusedTokens
					want, got := greedy(t, first, prompt, 5), greedy(t, second, prompt, 5)
					if !slices.Equal(got, want) {
						t.Errorf("%d tokens: %v, want %v", len(prompt), got, want)
					}
					if len(prompt) == len(golden.IDs) && second.Stats().ReusedTokens == reused {
						t.Error("nothing of the cache was used")
					}
				}
				past := first.Past()
				past.Rooms = append(slices.Clone(past.Rooms), 9)
				if err := second.ReadCache(strings.NewReader(""), first.Tokens(), past, nothing); err == nil {
					t.Error("a cache of other rings was read")
				}
			})
		}
	})
}
