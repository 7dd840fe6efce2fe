// Package demomodel holds the small language model that is embedded in the command vibrant: a GGUF file of under 8 MiB
// that answers questions about Vibrant, calculates and handles words, so that a chat works on a fresh machine.
//
// scripts/demo_model makes it; docs/demo-model.md says what it knows and how it scores.
package demomodel

import _ "embed"

// Name is what stands for the model where a model file would be named.
const Name = "demo"

//go:embed demo.gguf
var gguf []byte

// GGUF returns the whole file. Every caller gets the same bytes, which are not to be changed; the linker promises them
// no alignment, so tensors are to be copied where a kernel wants one.
func GGUF() []byte { return gguf }
