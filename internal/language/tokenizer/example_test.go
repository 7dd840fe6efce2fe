package tokenizer_test

import (
	"context"
	"fmt"

	"github.com/vibrant-ml/vibrant/internal/language/tokenizer"
)

// A vocabulary is usually read by FromGGUF.
func Example() {
	t, err := tokenizer.New(tokenizer.Config{
		Model:   "gpt2",
		Pre:     "qwen2",
		Tokens:  []string{"h", "i", "Ġ", "hi", "Ġhi", "<|im_end|>"},
		Types:   []tokenizer.Type{1, 1, 1, 1, 1, tokenizer.Control},
		Merges:  []string{"h i", "Ġ hi"},
		Special: map[string]int32{"eos": 5},
	})
	if err != nil {
		panic(err)
	}
	ids, _ := t.Encode(context.Background(), "hi hi<|im_end|>", tokenizer.Options{ParseSpecial: true})
	fmt.Println(ids, t.IsEOG(ids[2]))
	text, _ := t.Decode(ids)
	fmt.Printf("%q\n", text)
	ids, _ = t.Encode(context.Background(), "hi<|im_end|>", tokenizer.Options{}) // what a user types never is a control token
	fmt.Println(ids)                                                             // and bytes without a token are dropped
	// Output:
	// [3 4 5] true
	// "hi hi"
	// [3 1]
}

// A decoder gives out text while it is generated.
func ExampleDecoder() {
	t, err := tokenizer.New(tokenizer.Config{Model: "gpt2", Pre: "qwen2", Tokens: []string{"a", "Ã", "©"}})
	if err != nil {
		panic(err)
	}
	d := t.NewDecoder()
	for _, id := range []int32{0, 1, 2, 1} {
		s, _ := d.Next(id)
		fmt.Printf("%q ", s)
	}
	fmt.Printf("%q\n", d.Flush())
	// Output: "a" "" "é" "" "�"
}
