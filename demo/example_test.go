package demo_test

import (
	"context"
	"fmt"
	"log"

	"github.com/vibrant-ml/vibrant"
	_ "github.com/vibrant-ml/vibrant/demo"
)

func Example() {
	ctx := context.Background()
	model, err := vibrant.Open(ctx, "", vibrant.WithDevice("cpu"))
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	greedy := vibrant.DefaultGeneration()
	greedy.Temperature = 0
	session, err := model.NewSession(vibrant.WithGeneration(greedy))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for token, err := range session.Send(ctx, "What is 123 + 456?") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	// Output: 123 + 456 = 579.
}
