package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is a format specification: [[fill]align][sign][#][0][width][,][.precision][type] of str.format; the conversions of
// the operator % are translated to it.
type spec struct {
	fill      rune
	align     rune // < > ^ =, 0 for the default of the type
	sign      byte // + - or space; 0 as -
	alt       bool
	width     int64
	comma     byte // , or _ between thousands; 0 for none
	precision int64
	verb      byte // 0 for none
}

// maxPrecision bounds the digits after the point; a float64 has no more than 1074 that are not zero.
const maxPrecision = 1100

func (in *interp) parseSpec(text string) spec {
	f := spec{fill: ' ', precision: -1}
	isAlign := func(r rune) bool { return r == '<' || r == '>' || r == '^' || r == '=' }
	if r, n := utf8.DecodeRuneInString(text); n > 0 && n < len(text) && isAlign(rune(text[n])) {
		f.fill, f.align = r, rune(text[n])
		text = text[n+1:]
	} else if text != "" && isAlign(rune(text[0])) {
		f.align = rune(text[0])
		text = text[1:]
	}
	eat := func(chars string) byte {
		if text != "" && strings.IndexByte(chars, text[0]) >= 0 {
			c := text[0]
			text = text[1:]
			return c
		}
		return 0
	}
	f.sign = eat("+- ")
	f.alt = eat("#") != 0
	if eat("0") != 0 && f.align == 0 {
		f.fill, f.align = '0', '='
	}
	f.width, text = in.leadingInt(text)
	f.width = max(f.width, 0)
	f.comma = eat(",_")
	if eat(".") != 0 {
		if f.precision, text = in.leadingInt(text); f.precision < 0 {
			in.fail("Format specifier missing precision")
		}
	}
	if text != "" {
		f.verb = text[0]
		text = text[1:]
	}
	if text != "" {
		in.fail("Invalid format specifier")
	}
	return f
}

// leadingInt reads digits; -1 if there are none.
func (in *interp) leadingInt(s string) (int64, string) {
	i := 0
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	if i == 0 {
		return -1, s
	}
	n, err := strconv.ParseInt(s[:i], 10, 64)
	if err != nil || n > int64(in.limits.Text) {
		in.exceeded("a width or precision of %s", s[:i])
	}
	return n, s[i:]
}

// formatValue is Python's format(v, spec).
func (in *interp) formatValue(v Value, text string) Str {
	if text == "" {
		return in.str(v)
	}
	f := in.parseSpec(text)
	switch v := v.(type) {
	case Str:
		if f.verb != 0 && f.verb != 's' || f.align == '=' && f.fill != '0' {
			in.fail("Unknown format code '%c' for object of type 'str'", f.verb)
		}
		if f.precision >= 0 {
			v = v.sub(0, in.offset(v.text, f.precision))
		}
		if f.align == 0 || f.align == '=' {
			f.align = '<'
		}
		return in.alignText(v, f)
	case bool, int64, *big.Int, float64:
		return in.alignNumber(in.formatNumber(v, f), f)
	case *undefined:
		if f.verb == 0 || f.verb == 's' {
			return in.alignText(Str{}, f)
		}
		in.failUndefined(v)
	}
	in.fail("unsupported format string passed to %s.__format__", typeName(v))
	return Str{}
}

// alignText fills a text up to the width of its format.
func (in *interp) alignText(s Str, f spec) Str {
	n, _ := in.length(s)
	room := f.width - n
	if room <= 0 {
		return s
	}
	left := int64(0)
	switch f.align {
	case '>', '=':
		left = room
	case '^':
		left = room / 2
	}
	fill := NewStr(string(f.fill))
	return in.concat(in.repeat(fill, left), s, in.repeat(fill, room-left))
}

// alignNumber does the same for a number, where '=' puts the filling between sign and digits.
func (in *interp) alignNumber(s string, f spec) Str {
	if f.align == 0 {
		f.align = '>'
	}
	sign := len(s) - len(strings.TrimLeft(s, "+- "))
	if f.align != '=' || sign == 0 && !f.alt {
		return in.alignText(NewStr(s), f)
	}
	if f.alt && len(s) > sign+1 && s[sign] == '0' && strings.IndexByte("xXob", s[sign+1]) >= 0 {
		sign += 2
	}
	f.width -= int64(sign)
	return in.concat(NewStr(s[:sign]), in.alignText(NewStr(s[sign:]), f))
}

// formatNumber writes sign, prefix and digits of a number.
func (in *interp) formatNumber(v Value, f spec) string {
	verb := f.verb
	_, isFloat := v.(float64)
	if !isFloat && strings.IndexByte("eEfFgG%", verb) >= 0 && verb != 0 {
		v, isFloat = in.mustFloat(v), true
	}
	if isFloat {
		return in.formatFloat(v.(float64), f)
	}
	n := toBig(v)
	if f.precision >= 0 {
		in.fail("Precision not allowed in integer format specifier")
	}
	digits, prefix := "", ""
	abs := new(big.Int).Abs(n)
	switch verb {
	case 0, 'd', 'n':
		digits = group(abs.String(), f.comma, 3)
	case 'b':
		digits, prefix = abs.Text(2), "0b"
	case 'o':
		digits, prefix = abs.Text(8), "0o"
	case 'x':
		digits, prefix = abs.Text(16), "0x"
	case 'X':
		digits, prefix = strings.ToUpper(abs.Text(16)), "0X"
	case 'c':
		if !n.IsInt64() || n.Int64() < 0 || n.Int64() > utf8.MaxRune {
			in.fail("%%c arg not in range(0x110000)")
		}
		return string(rune(n.Int64()))
	default:
		in.fail("Unknown format code '%c' for object of type 'int'", verb)
	}
	if prefix != "" {
		digits = group(digits, f.comma, 4)
	}
	if !f.alt {
		prefix = ""
	}
	return signOf(n.Sign() < 0, f) + prefix + digits
}

func signOf(negative bool, f spec) string {
	switch {
	case negative:
		return "-"
	case f.sign == '+' || f.sign == ' ':
		return string(f.sign)
	}
	return ""
}

// group puts a separator between groups of digits.
func group(digits string, sep byte, size int) string {
	if sep == 0 {
		return digits
	}
	whole, rest := digits, ""
	if i := strings.IndexAny(digits, ".e"); i >= 0 {
		whole, rest = digits[:i], digits[i:]
	}
	var b strings.Builder
	for i := range whole {
		if i > 0 && (len(whole)-i)%size == 0 {
			b.WriteByte(sep)
		}
		b.WriteByte(whole[i])
	}
	return b.String() + rest
}

func (in *interp) formatFloat(x float64, f spec) string {
	if f.precision > maxPrecision {
		in.exceeded("a precision of more than %d digits", maxPrecision)
	}
	negative := math.Signbit(x) && !math.IsNaN(x)
	abs := math.Abs(x)
	precision := int(f.precision)
	if precision < 0 {
		precision = 6
	}
	verb := f.verb
	lower := verb | 0x20
	digits := ""
	switch {
	case math.IsNaN(x):
		digits = "nan"
	case math.IsInf(x, 0):
		digits = "inf"
	case verb == 0 && f.precision < 0:
		digits = floatRepr(abs)
	case verb == '%':
		digits = strconv.FormatFloat(abs*100, 'f', precision, 64)
	case lower == 'f':
		digits = strconv.FormatFloat(abs, 'f', precision, 64)
	case lower == 'e':
		digits = strconv.FormatFloat(abs, 'e', precision, 64)
	case lower == 'g' || verb == 0 || verb == 'n':
		digits = general(abs, max(precision, 1), f.alt, verb == 0)
	default:
		in.fail("Unknown format code '%c' for object of type 'float'", verb)
	}
	digits = group(digits, f.comma, 3)
	if verb == '%' {
		digits += "%"
	}
	if verb == 'E' || verb == 'F' || verb == 'G' {
		digits = strings.ToUpper(digits)
	}
	return signOf(negative, f) + digits
}

// general is the conversion g: the shorter of fixed and exponent notation, without zeros at the end unless alt. Where the
// format names no type, a whole number keeps one digit after the point, and the last digit forces exponent notation.
func general(x float64, precision int, alt, noType bool) string {
	e := strconv.FormatFloat(x, 'e', precision-1, 64)
	at := strings.IndexByte(e, 'e')
	exp, _ := strconv.Atoi(e[at+1:])
	high := precision
	if noType {
		high--
	}
	if exp < -4 || exp >= high && !(noType && high < 1 && exp < 1) {
		mantissa := e[:at]
		if !alt && strings.ContainsRune(mantissa, '.') {
			mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
		}
		return mantissa + e[at:]
	}
	s := strconv.FormatFloat(x, 'f', max(precision-1-exp, 0), 64)
	if !alt && strings.ContainsRune(s, '.') {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if noType && !strings.ContainsRune(s, '.') {
		s += ".0"
	}
	return s
}

// format is Python's s.format(...).
func (in *interp) format(s Str, a *callArgs) Value {
	f := formatter{in: in, args: a}
	return f.run(s, 2)
}

// formatter fills the fields of one format string.
type formatter struct {
	in   *interp
	args *callArgs
	auto int // number of the next field without one; -1 once fields are numbered by hand
}

func (f *formatter) run(s Str, depth int) Str {
	in := f.in
	if depth == 0 {
		in.fail("Max string recursion exceeded")
	}
	b := textBuilder{in: in}
	text := s.text
	last := 0
	for i := 0; i < len(text); {
		in.step(1)
		c := text[i]
		if c != '{' && c != '}' {
			i++
			continue
		}
		b.add(s.sub(last, i))
		if i+1 < len(text) && text[i+1] == c {
			b.add(s.sub(i, i+1))
			i += 2
			last = i
			continue
		}
		if c == '}' {
			in.fail("Single '}' encountered in format string")
		}
		end, level := i+1, 1
		for ; end < len(text) && level > 0; end++ {
			switch text[end] {
			case '{':
				level++
			case '}':
				level--
			}
		}
		if level > 0 {
			in.fail("expected '}' before end of string")
		}
		b.add(f.field(text[i+1:end-1], depth))
		i = end
		last = i
	}
	b.add(s.sub(last, len(text)))
	return b.str()
}

// field formats "name!conversion:spec".
func (f *formatter) field(text string, depth int) Str {
	in := f.in
	name, specText := text, ""
	level := 0
	for i := 0; i < len(text); i++ {
		if text[i] == '[' {
			level++
		} else if text[i] == ']' {
			level--
		} else if level == 0 && text[i] == ':' {
			name, specText = text[:i], text[i+1:]
			break
		}
	}
	conversion := ""
	if k := strings.LastIndexByte(name, '!'); k >= 0 {
		name, conversion = name[:k], name[k+1:]
	}
	v := f.lookup(name)
	switch conversion {
	case "":
	case "r", "a":
		b := textBuilder{in: in}
		in.writeRepr(&b, v)
		v = b.str()
	case "s":
		v = in.str(v)
	default:
		in.fail("Unknown conversion specifier '%s'", conversion)
	}
	if strings.ContainsAny(specText, "{}") {
		specText = f.run(NewStr(specText), depth-1).text
	}
	return in.formatValue(v, specText)
}

func (f *formatter) lookup(path string) Value {
	in := f.in
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		end = len(path)
	}
	first, rest := path[:end], path[end:]
	var v Value
	n, err := strconv.Atoi(first)
	switch {
	case first == "":
		if f.auto < 0 {
			in.fail("cannot switch from manual field specification to automatic field numbering")
		}
		v = f.positional(f.auto)
		f.auto++
	case err == nil:
		if f.auto > 0 {
			in.fail("cannot switch from automatic field numbering to manual field specification")
		}
		f.auto = -1
		v = f.positional(n)
	default:
		found := false
		for _, k := range f.args.kw {
			if k.name.text == first {
				v, found = k.value, true
			}
		}
		if !found {
			in.fail("the format names '%s', which is not among the arguments", first)
		}
	}
	for rest != "" {
		in.step(1)
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			v = in.getAttr(v, rest[1:1+end])
			rest = rest[1+end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 0 {
			in.fail("Only '.' or '[' may follow ']' in format field specifier")
		}
		key := rest[1:end]
		if n, err := strconv.Atoi(key); err == nil {
			v = in.getItem(v, int64(n))
		} else {
			v = in.getItem(v, NewStr(key))
		}
		rest = rest[end+1:]
	}
	return v
}

func (f *formatter) positional(i int) Value {
	if i < 0 || i >= len(f.args.pos) {
		f.in.fail("Replacement index %d out of range for positional args tuple", i)
	}
	return f.args.pos[i]
}

// printf is Python's s % v.
func (in *interp) printf(s Str, v Value) Value {
	values := []Value{v}
	if tuple, ok := v.(*Tuple); ok {
		values = tuple.items
	}
	used := 0
	next := func() Value {
		if used >= len(values) {
			in.fail("not enough arguments for format string")
		}
		used++
		return values[used-1]
	}
	b := textBuilder{in: in}
	text := s.text
	last := 0
	for {
		k := strings.IndexByte(text[last:], '%')
		if k < 0 {
			break
		}
		in.step(1)
		i := last + k
		b.add(s.sub(last, i))
		i++
		var arg Value
		named := false
		if i < len(text) && text[i] == '(' {
			end := strings.IndexByte(text[i:], ')')
			d, ok := v.(*Dict)
			if end < 0 || !ok {
				in.fail("format requires a mapping")
			}
			key := text[i+1 : i+end]
			if arg, named = d.get(key); !named {
				in.fail("the format names '%s', which the mapping lacks", key)
			}
			i += end + 1
		}
		f := spec{fill: ' ', precision: -1}
		leftAlign, zero := false, false
	flags:
		for ; i < len(text); i++ {
			switch text[i] {
			case '-':
				leftAlign = true
			case '0':
				zero = true
			case '#':
				f.alt = true
			case '+':
				f.sign = '+'
			case ' ':
				if f.sign == 0 {
					f.sign = ' '
				}
			default:
				break flags
			}
		}
		number := func() int64 {
			if i < len(text) && text[i] == '*' {
				i++
				n := in.intArg(next())
				if n > int64(in.limits.Text) || n < -int64(in.limits.Text) {
					in.exceeded("a width or precision of %d", n)
				}
				return n
			}
			n, rest := in.leadingInt(text[i:])
			i = len(text) - len(rest)
			return max(n, 0)
		}
		if f.width = number(); f.width < 0 {
			leftAlign, f.width = true, -f.width
		}
		if i < len(text) && text[i] == '.' {
			i++
			f.precision = max(number(), 0)
		}
		for i < len(text) && strings.IndexByte("hlL", text[i]) >= 0 {
			i++
		}
		if i >= len(text) {
			in.fail("incomplete format")
		}
		verb := text[i]
		last = i + 1
		if verb == '%' {
			b.text("%")
			continue
		}
		if !named {
			arg = next()
		}
		f.align = '>'
		if leftAlign {
			f.align = '<'
		} else if zero && strings.IndexByte("diuxXoeEfFgG", verb) >= 0 {
			f.fill, f.align = '0', '='
		}
		b.add(in.convert(arg, verb, f))
	}
	b.add(s.sub(last, len(text)))
	switch v.(type) {
	case *Dict, *List, *rangeValue, *undefined: // what can be subscripted may stay unused
	default:
		if used < len(values) {
			in.fail("not all arguments converted during string formatting")
		}
	}
	return b.str()
}

func btoi(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// convert formats one value by a conversion of the operator %.
func (in *interp) convert(v Value, verb byte, f spec) Str {
	switch verb {
	case 's', 'r', 'a':
		s := in.str(v)
		if verb != 's' {
			b := textBuilder{in: in}
			in.writeRepr(&b, v)
			s = b.str()
		}
		if f.precision >= 0 {
			s = s.sub(0, in.offset(s.text, f.precision))
		}
		return in.alignText(s, f)
	case 'c':
		if s, ok := v.(Str); ok {
			if utf8.RuneCountInString(s.text) != 1 {
				in.fail("%%c requires int or char")
			}
			return in.alignText(s, f)
		}
	}
	if u, ok := v.(*undefined); ok {
		in.failUndefined(u)
	}
	if !isNumber(v) {
		in.fail("%%%c format: a number is required, not %s", verb, typeName(v))
	}
	digits := int64(0)
	switch verb {
	case 'd', 'i', 'u':
		if x, ok := v.(float64); ok {
			v = in.truncate(x)
		}
		f.verb, digits = 'd', f.precision
		f.precision = -1
	case 'x', 'X', 'o', 'c':
		if _, ok := v.(float64); ok {
			in.fail("%%%c format: an integer is required, not float", verb)
		}
		f.verb, digits = verb, f.precision
		f.precision = -1
	case 'e', 'E', 'f', 'F', 'g', 'G':
		f.verb = verb
	default:
		in.fail("unsupported format character '%c'", verb)
	}
	s := in.formatNumber(normBool(v), f)
	if missing := digits - int64(len(strings.TrimLeft(s, "+- "))); missing > 0 { // %.3d means at least three digits
		sign := len(s) - len(strings.TrimLeft(s, "+- "))
		s = s[:sign] + in.repeat(NewStr("0"), missing).text + s[sign:]
	}
	return in.alignNumber(s, f)
}

func normBool(v Value) Value {
	if b, ok := v.(bool); ok {
		return btoi(b)
	}
	return v
}

// truncate is Python's int(x) of a float.
func (in *interp) truncate(x float64) Value {
	switch {
	case math.IsNaN(x):
		in.fail("cannot convert float NaN to integer")
	case math.IsInf(x, 0):
		in.fail("cannot convert float infinity to integer")
	}
	n, _ := big.NewFloat(x).Int(nil)
	return normInt(n)
}
