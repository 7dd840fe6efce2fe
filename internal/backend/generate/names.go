package main

import (
	"go/token"
	"regexp"
	"strings"
)

// values are the structs that lie inside others or go by value, whose forms in Go and in each binding are written by hand.
var values = map[string]string{"vb_weight": "Weight", "vb_view": "View", "vb_step": "Step"}

// special are the operations whose memory is no shape: the fake binds them by hand, in its memory.go.
var special = map[string]bool{"weight_pack": true}

// words are the parts of C names that Go does not just capitalize.
var words = map[string]string{
	"rms": "RMS", "silu": "SiLU", "gelu": "GELU", "relu": "ReLU", "swiglu": "SwiGLU", "glu": "GLU", "geglu": "GeGLU", "rope": "RoPE", "neox": "NeoX",
	"matmul": "MatMul", "kv": "KV", "qkv": "QKV", "i32": "I32", "int2": "Int2", "w2a8": "W2A8", "gemv": "GEMV", "dp4a": "DP4A", "tmac": "TMAC", "lut": "LUT", "f32": "F32", "ieee": "IEEE", "tf32": "TF32", "moe": "MoE", "ids": "IDs", "argmax": "Argmax", "argmin": "Argmin", "logsumexp": "LogSumExp", "cumsum": "CumSum",
	"wq": "WQ", "wk": "WK", "wv": "WV", "bq": "BQ", "bk": "BK", "bv": "BV", "l2": "L2", "id": "ID", "ok": "OK",
}

// goName returns the exported Go name of a C name: rms_norm_batched is RMSNorm, q_row_stride is QRowStride.
func goName(c string) string {
	var b strings.Builder
	for _, w := range strings.Split(strings.ToLower(strings.TrimSuffix(c, "_batched")), "_") {
		if known, ok := words[w]; ok {
			b.WriteString(known)
		} else if w != "" {
			b.WriteString(strings.ToUpper(w[:1]) + w[1:])
		}
	}
	return b.String()
}

// typeName returns the Go name of a C type: vb_rope_args is RoPEArgs.
func typeName(c string) string { return goName(strings.TrimPrefix(c, "vb_")) }

// local returns the Go name of a parameter: next_norm is nextNorm, type is t, as type is a word of Go's.
func local(c string) string {
	if c == "type" {
		return "t"
	}
	first, rest, more := strings.Cut(c, "_")
	if more {
		first += goName(rest)
	}
	if token.IsKeyword(first) || first == "s" || first == "o" || first == "err" { // names of the generated functions
		return first + "_"
	}
	return first
}

// valueName returns the Go name of a C enumerator: VB_ROPE_NEOX of vb_rope_mode is RoPENeoX, VB_SILU of vb_activation is
// ActivationSiLU.
func valueName(e *enum, c string) string {
	name := goName(strings.TrimPrefix(c, "VB_"))
	first, _, _ := strings.Cut(strings.TrimPrefix(e.name, "vb_"), "_")
	if strings.HasPrefix(name, goName(first)) {
		return name
	}
	return typeName(e.name) + name
}

// title makes a section of the header the head of a group of methods: "rows; in place allowed" is "Rows".
func title(section string) string {
	section, _, _ = strings.Cut(section, ";")
	section, _, _ = strings.Cut(section, ":")
	return strings.ToUpper(section[:1]) + section[1:]
}

var identifier = regexp.MustCompile(`[A-Za-z_]\w*(?:(?:->|\.)\w+)*`)

// expression makes an expression of C, over operands, one of Go. Fields of arguments are those of the variable a. "x ?: y" is y
// where x is 0.
func expression(c string, arguments bool) string {
	if x, y, both := strings.Cut(c, " ?: "); both {
		return "cmp.Or(" + expression(x, arguments) + ", " + expression(y, arguments) + ")"
	}
	return identifier.ReplaceAllStringFunc(c, func(path string) string {
		parts := regexp.MustCompile(`->|\.`).Split(path, -1)
		switch {
		case strings.HasPrefix(parts[0], "VB_"):
			return "kernel." + strings.TrimPrefix(parts[0], "VB_")
		case arguments:
			parts[0] = "a." + goName(parts[0])
		default:
			parts[0] = local(parts[0])
		}
		for i := range parts[1:] {
			parts[i+1] = goName(parts[i+1])
		}
		return strings.Join(parts, ".")
	})
}
