package vibrant_test

import (
	"context"
	"fmt"
	"log"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
)

// modelFile stands for a file of yours: a model that always says the same.
var modelFile = testmodel.Reciter("▁Light", "▁scatters", ",", "▁blue", "▁most", ".")

func open() *vibrant.Model {
	model, err := vibrant.OpenBytes(context.Background(), modelFile, vibrant.WithDevice("cpu"))
	if err != nil {
		log.Fatal(err)
	}
	return model
}

func Example() {
	ctx := context.Background()
	model, err := vibrant.OpenBytes(ctx, modelFile) // or Open(ctx, "model.gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	session, err := model.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	for token, err := range session.Send(ctx, "Why is the sky blue?") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	// Output: Light scatters, blue most.
}

func ExampleSession_Complete() {
	model := open()
	defer model.Close()
	g := vibrant.DefaultGeneration()
	g.Temperature = 0 // the likeliest token, always
	g.MaxTokens = 3
	session, err := model.NewSession(vibrant.WithGeneration(g))
	if err != nil {
		log.Fatal(err)
	}
	for token, err := range session.Complete(context.Background(), "The sky is blue because") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q ", token.Text)
	}
	fmt.Println(session.Finish())
	// Output: " Light" " scatters" "," length
}

func ExampleBatch() {
	ctx := context.Background()
	model := open()
	defer model.Close()
	batch, err := model.NewBatch(8) // up to eight answers at once
	if err != nil {
		log.Fatal(err)
	}
	defer batch.Close()
	g := vibrant.DefaultGeneration()
	g.Temperature = 0
	var answers []*vibrant.Answer
	for i, question := range []string{"Why is the sky blue?", "What is light?", "Is it?"} {
		g.MaxTokens = 2 + 2*i // each answer has options of its own
		a, err := batch.Send(ctx, []vibrant.Message{{Role: "user", Content: question}}, g)
		if err != nil {
			log.Fatal(err)
		}
		answers = append(answers, a)
	}
	for batch.Len() > 0 {
		if _, err := batch.Step(ctx); err != nil { // a token of each
			log.Fatal(err)
		}
	}
	for _, a := range answers {
		fmt.Printf("%q %s\n", a.Text(), a.Finish())
	}
	// Output:
	// " Light scatters" length
	// " Light scatters, blue" length
	// " Light scatters, blue most." length
}

func ExampleModel_Logits() {
	model := open()
	defer model.Close()
	tokenizer, err := model.Tokenizer()
	if err != nil {
		log.Fatal(err)
	}
	ids, err := tokenizer.Encode(context.Background(), "Why?", vibrant.EncodeOptions{AddBOS: true})
	if err != nil {
		log.Fatal(err)
	}
	logits, err := model.Logits(context.Background(), ids)
	if err != nil {
		log.Fatal(err)
	}
	next := 0
	for id, x := range logits[len(ids)-1] {
		if x > logits[len(ids)-1][next] {
			next = id
		}
	}
	text, err := tokenizer.TokenText(int32(next))
	fmt.Printf("%d rows of %d; next %q %v\n", len(logits), len(logits[0]), text, err)
	// Output: 6 rows of 265; next " Light" <nil>
}

func ExampleTokenizer_Encode() {
	model := open()
	defer model.Close()
	tokenizer, err := model.Tokenizer()
	if err != nil {
		log.Fatal(err)
	}
	typed, _ := tokenizer.Encode(context.Background(), "</s>", vibrant.EncodeOptions{})
	parsed, _ := tokenizer.Encode(context.Background(), "</s>", vibrant.EncodeOptions{ParseSpecial: true})
	fmt.Println(len(typed), parsed)
	// Output: 5 [2]
}
