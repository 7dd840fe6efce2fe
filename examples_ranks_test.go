package vibrant_test

import (
	"context"
	"fmt"
	"log"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/gpu"
)

// A service that runs alone, or as one of the processes of torchrun, mpirun, srun or a LeaderWorkerSet.
func ExampleWithRanks() {
	ctx := context.Background()
	ranks, err := gpu.RanksFromEnvironment() // nil where no launcher has started this process
	if err != nil {
		log.Fatal(err)
	}
	model, err := vibrant.OpenBytes(ctx, modelFile, vibrant.WithRanks(ranks))
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	if model.Rank() > 0 { // until rank 0 closes its model, or a rank is lost
		if err := model.Follow(ctx); err != nil {
			log.Fatal(err)
		}
		return
	}
	session, err := model.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for token, err := range session.Send(ctx, "Why is the sky blue?") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	// Output: Light scatters, blue most.
}
