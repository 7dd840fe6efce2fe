package tensor

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// Softmax returns exp(a - max) / sum over each row (the last dimension); types F32, F16, BF16, arithmetic in float32. A
// row of -Inf only gives NaN, as IEEE arithmetic does. Panics: *ShapeError, *OpError.
func Softmax(a *Tensor) *Tensor {
	elementwise("softmax", a)
	out := like("softmax", a)
	SoftmaxInto(out, a)
	return out
}

// SoftmaxInto writes Softmax(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func SoftmaxInto(dst, a *Tensor) {
	elementwise("softmax", dst, a)
	exec("softmax", dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.Softmax(p[0], p[1], a.dtype, a.rows(), a.cols())
	}, dst, a)
}

// checkNorm checks a norm's weight or bias, nil for none, against the rows that it applies to.
func checkNorm(op string, x, weight *Tensor) {
	if weight != nil && (weight.dtype != F32 || weight.n != x.cols()) {
		misuse(op, "%s with weight %v %s: want F32 (%d)", shapeString(x.shape), weight.dtype, shapeString(weight.shape), x.cols())
	}
}

// RMSNorm returns x / sqrt(mean(x^2) + eps) * weight over each row (the last dimension; Zhang & Sennrich 2019). The
// weight is F32 of a row's length, nil for ones; x is F32, F16 or BF16. Panics: *ShapeError, *OpError.
func RMSNorm(x, weight *Tensor, eps float32) *Tensor {
	elementwise("rmsnorm", x)
	checkNorm("rmsnorm", x, weight)
	out := like("rmsnorm", x)
	RMSNormInto(out, x, weight, eps)
	return out
}

// RMSNormInto writes RMSNorm(x, weight, eps) to dst, which may be x. Panics: *ShapeError, *OpError.
func RMSNormInto(dst, x, weight *Tensor, eps float32) {
	elementwise("rmsnorm", dst, x)
	checkNorm("rmsnorm", x, weight)
	weight = weight.on("rmsnorm", dst.Stream())
	exec("rmsnorm", dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.RMSNorm(p[0], p[1], p[2], x.dtype, x.rows(), x.cols(), eps)
	}, dst, x, weight)
}

// LayerNorm returns (x - mean) / sqrt(variance + eps) * weight + bias over each row (the last dimension; Ba, Kiros & Hinton
// 2016). Weight and bias are F32 of a row's length, each nil for none; x is F32, F16 or BF16.
// Panics: *ShapeError, *OpError.
func LayerNorm(x, weight, bias *Tensor, eps float32) *Tensor {
	elementwise("layernorm", x)
	checkNorm("layernorm", x, weight)
	checkNorm("layernorm", x, bias)
	out := like("layernorm", x)
	LayerNormInto(out, x, weight, bias, eps)
	return out
}

// LayerNormInto writes LayerNorm(x, weight, bias, eps) to dst, which may be x. Panics: *ShapeError, *OpError.
func LayerNormInto(dst, x, weight, bias *Tensor, eps float32) {
	elementwise("layernorm", dst, x)
	checkNorm("layernorm", x, weight)
	checkNorm("layernorm", x, bias)
	weight, bias = weight.on("layernorm", dst.Stream()), bias.on("layernorm", dst.Stream())
	exec("layernorm", dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.LayerNorm(p[0], p[1], p[2], p[3], x.dtype, x.rows(), x.cols(), eps)
	}, dst, x, weight, bias)
}

// AddRMSNorm returns sum = a + b and RMSNorm(sum, weight, eps): a residual connection and the norm that follows it.
// Panics: *ShapeError, *OpError.
func AddRMSNorm(a, b, weight *Tensor, eps float32) (sum, out *Tensor) {
	elementwise("add rmsnorm", a, b)
	sameShape("add rmsnorm", a, b)
	checkNorm("add rmsnorm", a, weight)
	sum, out = like("add rmsnorm", a), like("add rmsnorm", a)
	AddRMSNormInto(sum, out, a, b, weight, eps)
	return sum, out
}

// AddRMSNormInto writes AddRMSNorm(a, b, weight, eps) to sum, which may be a or b, and out.
// Panics: *ShapeError, *OpError.
func AddRMSNormInto(sum, out, a, b, weight *Tensor, eps float32) {
	elementwise("add rmsnorm", out, sum, a, b)
	checkNorm("add rmsnorm", a, weight)
	weight = weight.on("add rmsnorm", out.Stream())
	exec("add rmsnorm", out.Stream(), 2, func(k kernel.Stream, p pointers) error {
		return k.AddRMSNorm(p[0], p[1], p[2], p[3], p[4], a.dtype, a.rows(), a.cols(), eps)
	}, sum, out, a, b, weight)
}
