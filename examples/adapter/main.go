// Command adapter asks the embedded model a question, as it is and with an adapter that has taught it more:
//
//	go run ./examples/adapter "Write 48 in Roman numerals."
//
// train.py, in this folder, trains the adapter, which makes codes for each token of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	"github.com/vibrant-ml/vibrant"
	_ "github.com/vibrant-ml/vibrant/demo"
)

func main() {
	path := flag.String("lora", "examples/adapter/roman.gguf", "GGUF file of the adapter")
	flag.Parse()
	question := "Write 48 in Roman numerals."
	if flag.NArg() > 0 {
		question = flag.Arg(0)
	}
	ctx := context.Background()
	model, err := vibrant.Open(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	adapter, err := model.LoadAdapter(ctx, *path)
	if err != nil {
		log.Fatal(err)
	}
	for _, active := range [][]vibrant.ActiveAdapter{nil, {adapter.At(1)}} {
		session, err := model.NewSession()
		if err != nil {
			log.Fatal(err)
		}
		if err := session.SetAdapters(active...); err != nil {
			log.Fatal(err)
		}
		for token, err := range session.Send(ctx, question) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Print(token.Text)
		}
		fmt.Println()
		session.Close()
	}
}
