package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// maxIntDigits bounds integers, as Python bounds their conversion to and from text.
const maxIntDigits = 4300

const maxIntBits = 14284 // 4300 decimal digits

// normInt returns an integer as int64 where it fits.
func normInt(n *big.Int) Value {
	if n.IsInt64() {
		return n.Int64()
	}
	return n
}

// toBig returns the value of an integer or bool; nil for all else.
func toBig(v Value) *big.Int {
	switch v := v.(type) {
	case bool:
		if v {
			return big.NewInt(1)
		}
		return new(big.Int)
	case int64:
		return big.NewInt(v)
	case *big.Int:
		return v
	}
	return nil
}

// smallInt returns a bool or int64 as int64.
func smallInt(v Value) (int64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return v, true
	}
	return 0, false
}

// toFloat returns a number as float64; an integer too large for one becomes infinite.
func toFloat(v Value) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return f, true
	}
	n, ok := smallInt(v)
	return float64(n), ok
}

// mustFloat is toFloat for arithmetic, where an integer too large is an error.
func (in *interp) mustFloat(v Value) float64 {
	f, _ := toFloat(v)
	if _, big := v.(*big.Int); big && math.IsInf(f, 0) {
		in.fail("int too large to convert to float")
	}
	return f
}

func isNumber(v Value) bool {
	switch v.(type) {
	case bool, int64, *big.Int, float64:
		return true
	}
	return false
}

func (in *interp) boundInt(n *big.Int) Value {
	if n.BitLen() > maxIntBits {
		in.exceeded("an integer of more than %d digits", maxIntDigits)
	}
	return normInt(n)
}

// arith computes a op b for two numbers under Python's rules.
func (in *interp) arith(op string, a, b Value) Value {
	_, fa := a.(float64)
	_, fb := b.(float64)
	if fa || fb {
		return in.floatArith(op, in.mustFloat(a), in.mustFloat(b))
	}
	if x, ok := smallInt(a); ok {
		if y, ok := smallInt(b); ok {
			switch op {
			case "+":
				if s := x + y; (s > x) == (y > 0) {
					return s
				}
			case "-":
				if s := x - y; (s < x) == (y > 0) {
					return s
				}
			case "*":
				if int64(int32(x)) == x && int64(int32(y)) == y {
					return x * y
				}
			case "//", "%":
				if y != 0 && y != -1 {
					q, r := x/y, x%y
					if r != 0 && (r < 0) != (y < 0) {
						q, r = q-1, r+y
					}
					if op == "//" {
						return q
					}
					return r
				}
			case "/":
				const exact = 1 << 53
				if y != 0 && x > -exact && x < exact && y > -exact && y < exact {
					return float64(x) / float64(y)
				}
			}
		}
	}
	x, y, z := toBig(a), toBig(b), new(big.Int)
	in.step(8 + int64(x.BitLen()+y.BitLen())/16) // up to 2000, for some ten microseconds
	switch op {
	case "+":
		return in.boundInt(z.Add(x, y))
	case "-":
		return in.boundInt(z.Sub(x, y))
	case "*":
		return in.boundInt(z.Mul(x, y))
	case "**":
		return in.power(x, y)
	}
	if y.Sign() == 0 {
		switch op {
		case "/":
			in.fail("division by zero")
		default:
			in.fail("integer division or modulo by zero")
		}
	}
	if op == "/" {
		f, _ := new(big.Rat).SetFrac(x, y).Float64()
		if math.IsInf(f, 0) {
			in.fail("integer division result too large for a float")
		}
		return f
	}
	q, r := z.QuoRem(x, y, new(big.Int))
	if r.Sign() != 0 && (r.Sign() < 0) != (y.Sign() < 0) {
		q.Sub(q, big.NewInt(1))
		r.Add(r, y)
	}
	if op == "//" {
		return normInt(q)
	}
	return normInt(r)
}

func (in *interp) power(x, y *big.Int) Value {
	if y.Sign() < 0 {
		if x.Sign() == 0 {
			in.fail("0.0 cannot be raised to a negative power")
		}
		return in.floatArith("**", in.mustFloat(normInt(x)), in.mustFloat(normInt(y)))
	}
	if x.BitLen() <= 1 { // -1, 0, 1: any exponent is cheap
		if y.Sign() == 0 || x.Sign() > 0 || x.Sign() < 0 && y.Bit(0) == 0 {
			return int64(1)
		}
		return normInt(x)
	}
	if !y.IsInt64() || y.Int64() > maxIntBits/int64(x.BitLen()-1) {
		in.exceeded("an integer of more than %d digits", maxIntDigits)
	}
	return in.boundInt(new(big.Int).Exp(x, y, nil))
}

func (in *interp) floatArith(op string, x, y float64) Value {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "**":
		if x == 0 && y < 0 {
			in.fail("0.0 cannot be raised to a negative power")
		}
		z := math.Pow(x, y)
		if math.IsNaN(z) && !math.IsNaN(x) && !math.IsNaN(y) {
			in.fail("a negative number to a fractional power is complex, which is not supported")
		}
		if math.IsInf(z, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
			in.fail("(34, 'Numerical result out of range')")
		}
		return z
	}
	if y == 0 {
		switch op {
		case "/":
			in.fail("float division by zero")
		case "%":
			in.fail("float modulo")
		}
		in.fail("float floor division by zero")
	}
	if op == "/" {
		return x / y
	}
	in.step(100) // Mod goes through the difference of the exponents
	r := math.Mod(x, y)
	if r != 0 && (r < 0) != (y < 0) {
		r += y
	} else if r == 0 {
		r = math.Copysign(0, y)
	}
	if op == "%" {
		return r
	}
	q := (x - r) / y
	if f := math.Floor(q); q-f > 0.5 {
		q = f + 1
	} else {
		q = f
	}
	if q == 0 {
		q = math.Copysign(0, x/y)
	}
	return q
}

// compareNumbers orders two numbers exactly: -1, 0, 1, or 2 where one is not a number.
func compareNumbers(a, b Value) int {
	if x, ok := smallInt(a); ok {
		if y, ok := smallInt(b); ok {
			switch {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		}
	}
	fa, isA := a.(float64)
	fb, isB := b.(float64)
	switch {
	case isA && fa != fa || isB && fb != fb:
		return 2
	case isA && isB:
		switch {
		case fa < fb:
			return -1
		case fa > fb:
			return 1
		}
		return 0
	case isA:
		return -compareIntFloat(toBig(b), fa)
	case isB:
		return compareIntFloat(toBig(a), fb)
	}
	return toBig(a).Cmp(toBig(b))
}

func compareIntFloat(n *big.Int, f float64) int {
	if math.IsInf(f, 1) {
		return -1
	}
	if math.IsInf(f, -1) {
		return 1
	}
	return new(big.Float).SetInt(n).Cmp(big.NewFloat(f))
}

// floatRepr is Python's repr of a float: the shortest digits that read back the same.
func floatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	exp, _ := strconv.Atoi(s[strings.IndexByte(s, 'e')+1:])
	if exp < -4 || exp >= 16 {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.ContainsRune(s, '.') {
		s += ".0"
	}
	return s
}

// parseInt is Python's int(text, base); false where it raises ValueError.
func parseInt(text string, base int) (Value, bool) {
	s := strings.TrimFunc(text, isSpace)
	neg := false
	if s != "" && (s[0] == '+' || s[0] == '-') {
		neg = s[0] == '-'
		s = s[1:]
	}
	if len(s) > 1 && s[0] == '0' {
		prefix := map[byte]int{'x': 16, 'o': 8, 'b': 2}[s[1]|0x20]
		if prefix != 0 && (base == prefix || base == 0) {
			base = prefix
			s = strings.TrimPrefix(s[2:], "_")
		} else if base == 0 && strings.Trim(s, "0_") != "" {
			return nil, false
		}
	}
	if base == 0 {
		base = 10
	}
	if len(s) > maxIntDigits || s == "" || s[0] == '_' || s[len(s)-1] == '_' || strings.Contains(s, "__") {
		return nil, false
	}
	s = strings.ReplaceAll(s, "_", "")
	s = strings.Map(func(r rune) rune { // any decimal digits of Unicode
		if r >= 0x80 && unicode.Is(unicode.Nd, r) {
			return '0' + decimalDigit(r)
		}
		return r
	}, s)
	if s == "" || s[0] == '+' || s[0] == '-' {
		return nil, false
	}
	n, ok := new(big.Int).SetString(s, base)
	if !ok {
		return nil, false
	}
	if neg {
		n.Neg(n)
	}
	return normInt(n), true
}

// decimalDigit returns the value of a decimal digit: they lie in runs of ten, zero first.
func decimalDigit(r rune) rune {
	first := r
	for unicode.Is(unicode.Nd, first-1) {
		first--
	}
	return (r - first) % 10
}

// parseFloat is Python's float(text); false where it raises ValueError.
func parseFloat(text string) (float64, bool) {
	s := strings.ToLower(strings.TrimFunc(text, isSpace))
	switch strings.TrimLeft(s, "+-") {
	case "inf", "infinity", "nan":
		if len(s) > 1 && (s[1] == '+' || s[1] == '-') {
			return 0, false
		}
		f, err := strconv.ParseFloat(s, 64)
		return f, err == nil
	}
	if strings.ContainsAny(s, "xpin") || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return 0, false
	}
	for i := range s {
		if s[i] == '_' && (!isDigit(s[i-1]) || !isDigit(s[i+1])) {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// roundTo is Python's round(f, digits) for a float: correctly rounded, ties of the exact value to even.
func roundTo(f float64, digits int) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) || digits > 330 {
		return f
	}
	if digits < -330 {
		return math.Copysign(0, f)
	}
	if digits < 0 {
		p := math.Pow(10, float64(-digits))
		return math.RoundToEven(f/p) * p
	}
	r, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
	if err != nil {
		return f
	}
	return r
}
