module github.com/vibrant-ml/vibrant/scripts/bench_tensor

go 1.24.0

require (
	github.com/vibrant-ml/vibrant v0.0.0
	golang.org/x/sys v0.36.0
	gonum.org/v1/gonum v0.16.0
)

require github.com/ebitengine/purego v0.10.2 // indirect

replace github.com/vibrant-ml/vibrant => ../..
