// Package demo embeds a small language model of 7 MB in the program that imports it. Package vibrant uses that model for the
// path "":
//
//	import _ "github.com/vibrant-ml/vibrant/demo"
//
// It answers questions about Vibrant, calculates and handles words; docs/demo-model.md is its model card.
package demo

import (
	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/internal/language/demomodel"
)

func init() { vibrant.RegisterDefault(demomodel.GGUF) }
