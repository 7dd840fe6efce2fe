// Command chat is a chat in ten lines: go run ./examples/chat model.gguf
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/vibrant-ml/vibrant"
)

func main() {
	ctx := context.Background()
	path := "" // the embedded model of package demo, if it is imported
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	model, err := vibrant.Open(ctx, path)
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	session, err := model.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); fmt.Println() {
		for token, err := range session.Send(ctx, lines.Text()) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Print(token.Text)
		}
	}
}
