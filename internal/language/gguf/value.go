package gguf

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// ValueType is the type of a metadata value, by GGUF's ids.
type ValueType uint32

// The types of metadata values.
const (
	TypeUint8   ValueType = 0
	TypeInt8    ValueType = 1
	TypeUint16  ValueType = 2
	TypeInt16   ValueType = 3
	TypeUint32  ValueType = 4
	TypeInt32   ValueType = 5
	TypeFloat32 ValueType = 6
	TypeBool    ValueType = 7
	TypeString  ValueType = 8
	TypeArray   ValueType = 9
	TypeUint64  ValueType = 10
	TypeInt64   ValueType = 11
	TypeFloat64 ValueType = 12
)

// valueTypes is indexed by id. minSize is the bytes of a value; of a string or array those of the empty one.
var valueTypes = [...]struct {
	name    string
	minSize int
}{
	TypeUint8: {"u8", 1}, TypeInt8: {"i8", 1}, TypeUint16: {"u16", 2}, TypeInt16: {"i16", 2},
	TypeUint32: {"u32", 4}, TypeInt32: {"i32", 4}, TypeFloat32: {"f32", 4}, TypeBool: {"bool", 1},
	TypeString: {"string", 8}, TypeArray: {"array", 12}, TypeUint64: {"u64", 8}, TypeInt64: {"i64", 8},
	TypeFloat64: {"f64", 8},
}

// String returns the short name that ggml uses, such as "u32".
func (t ValueType) String() string {
	if int64(t) < int64(len(valueTypes)) {
		return valueTypes[t].name
	}
	return "value type " + strconv.FormatUint(uint64(t), 10)
}

func (t ValueType) minSize() int {
	if int64(t) < int64(len(valueTypes)) {
		return valueTypes[t].minSize
	}
	return 0
}

func (t ValueType) isInteger() bool {
	switch t {
	case TypeUint8, TypeInt8, TypeUint16, TypeInt16, TypeUint32, TypeInt32, TypeUint64, TypeInt64:
		return true
	}
	return false
}

// Value is one metadata value, decoded when it is asked for.
type Value struct {
	Type ValueType
	Elem ValueType // of an array: the type of its elements
	Len  int       // of an array: how many elements; else 1

	raw string // the elements as the file has them
}

// TypeString returns the type in words, such as "u32" or "array of string".
func (v Value) TypeString() string {
	if v.Type == TypeArray {
		return "array of " + v.Elem.String()
	}
	return v.Type.String()
}

// Any returns the value as the Go type that corresponds: uint8 ... float64, bool, string, a slice of one of these, or
// []any for an array of arrays.
func (v Value) Any() any {
	if v.Type == TypeArray {
		a, _ := array(v.Elem, v.Len, v.raw)
		return a
	}
	if v.raw == "" {
		return nil // the zero Value: a file's values have bytes
	}
	switch v.Type {
	case TypeUint8:
		return uint8(v.integer(0))
	case TypeInt8:
		return int8(v.integer(0))
	case TypeUint16:
		return uint16(v.integer(0))
	case TypeInt16:
		return int16(v.integer(0))
	case TypeUint32:
		return uint32(v.integer(0))
	case TypeInt32:
		return int32(v.integer(0))
	case TypeUint64:
		return v.integer(0)
	case TypeInt64:
		return int64(v.integer(0))
	case TypeFloat32:
		return float32(v.float(0))
	case TypeFloat64:
		return v.float(0)
	case TypeBool:
		return v.raw[0] != 0
	case TypeString:
		return v.raw[8:]
	}
	return nil
}

// array decodes n elements of type t from raw and returns what is left of raw.
func array(t ValueType, n int, raw string) (any, string) {
	switch t {
	case TypeString:
		return texts(n, &raw), raw
	case TypeArray:
		a := make([]any, n)
		for i := range a {
			elem, m := ValueType(le(raw, 4)), int(le(raw[4:], 8))
			a[i], raw = array(elem, m, raw[12:])
		}
		return a, raw
	}
	size := n * t.minSize()
	v, rest := Value{Type: TypeArray, Elem: t, Len: n, raw: raw[:size]}, raw[size:]
	switch t {
	case TypeUint8:
		return []uint8(v.raw), rest
	case TypeInt8:
		return integers[int8](v), rest
	case TypeUint16:
		return integers[uint16](v), rest
	case TypeInt16:
		return integers[int16](v), rest
	case TypeUint32:
		return integers[uint32](v), rest
	case TypeInt32:
		return integers[int32](v), rest
	case TypeUint64:
		return integers[uint64](v), rest
	case TypeInt64:
		return integers[int64](v), rest
	case TypeFloat32:
		return floats[float32](v), rest
	case TypeFloat64:
		return floats[float64](v), rest
	default: // TypeBool: the parser lets no other pass
		return bools(v), rest
	}
}

// texts cuts n strings off the front of raw. They share raw's memory.
func texts(n int, raw *string) []string {
	s, r := make([]string, n), *raw
	for i := range s {
		size := int(le64(r))
		s[i], r = r[8:8+size], r[8+size:]
	}
	*raw = r
	return s
}

func integers[T int8 | uint16 | int16 | uint32 | int32 | uint64 | int64](v Value) []T {
	s := make([]T, v.Len)
	for i := range s {
		s[i] = T(v.integer(i))
	}
	return s
}

func floats[T float32 | float64](v Value) []T {
	s := make([]T, v.Len)
	for i := range s {
		s[i] = T(v.float(i))
	}
	return s
}

func bools(v Value) []bool {
	s := make([]bool, v.Len)
	for i := range s {
		s[i] = v.raw[i] != 0
	}
	return s
}

// le64 reads a little-endian u64: as le does, in one load.
func le64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// le reads a little-endian number of n bytes.
func le(s string, n int) (x uint64) {
	for i := n - 1; i >= 0; i-- {
		x = x<<8 | uint64(s[i])
	}
	return x
}

// scalar returns the type of element i: the value's own, or that of an array's elements.
func (v Value) scalar() ValueType {
	if v.Type == TypeArray {
		return v.Elem
	}
	return v.Type
}

// integer returns element i of integer type, sign-extended.
func (v Value) integer(i int) uint64 {
	switch v.scalar() {
	case TypeUint8:
		return uint64(v.raw[i])
	case TypeInt8:
		return uint64(int8(v.raw[i]))
	case TypeUint16:
		return le(v.raw[2*i:], 2)
	case TypeInt16:
		return uint64(int16(le(v.raw[2*i:], 2)))
	case TypeUint32:
		return le(v.raw[4*i:], 4)
	case TypeInt32:
		return uint64(int32(le(v.raw[4*i:], 4)))
	}
	return le(v.raw[8*i:], 8)
}

// float returns element i of type f32 or f64.
func (v Value) float(i int) float64 {
	if v.scalar() == TypeFloat32 {
		return float64(math.Float32frombits(uint32(le(v.raw[4*i:], 4))))
	}
	return math.Float64frombits(le(v.raw[8*i:], 8))
}

// Keys returns the metadata keys in the order of the file. The caller must not change the slice.
func (f *File) Keys() []string { return f.keys }

// Has reports whether the metadata has the key.
func (f *File) Has(key string) bool {
	_, ok := f.values[key]
	return ok
}

// Value returns the value of a key.
func (f *File) Value(key string) (v Value, ok bool) {
	v, ok = f.values[key]
	return v, ok
}

// get returns the value of a key if accept agrees to it. Its errors wrap ErrNoKey, or name the key and its type.
func (f *File) get(key, want string, accept func(Value) bool) (Value, error) {
	v, ok := f.values[key]
	if !ok {
		return v, fmt.Errorf("gguf: key %s: %w", Quote(key), ErrNoKey)
	}
	if !accept(v) {
		return v, fmt.Errorf("gguf: key %s is of type %s, not %s", Quote(key), v.TypeString(), want)
	}
	return v, nil
}

// The getters below return the value of a key. A key that is missing is an error that wraps ErrNoKey; a key of another type is
// an error that names the key and its type. Those with Or return a default instead where the key is missing.

// String returns a string.
func (f *File) String(key string) (string, error) {
	v, err := f.get(key, "string", func(v Value) bool { return v.Type == TypeString })
	if err != nil {
		return "", err
	}
	return v.raw[8:], nil
}

// Int returns an integer of any size and sign that fits.
func (f *File) Int(key string) (int64, error) {
	v, err := f.get(key, "an integer", func(v Value) bool { return v.Type.isInteger() })
	if err != nil {
		return 0, err
	}
	x := v.integer(0)
	if v.Type == TypeUint64 && x > math.MaxInt64 {
		return 0, fmt.Errorf("gguf: key %s: %d is out of range", Quote(key), x)
	}
	return int64(x), nil
}

// Uint returns an integer of any size that is not negative.
func (f *File) Uint(key string) (uint64, error) {
	v, err := f.get(key, "an integer", func(v Value) bool { return v.Type.isInteger() })
	if err != nil {
		return 0, err
	}
	x := v.integer(0)
	if v.Type != TypeUint64 && int64(x) < 0 {
		return 0, fmt.Errorf("gguf: key %s: %d is negative", Quote(key), int64(x))
	}
	return x, nil
}

// Float returns an f32 or f64.
func (f *File) Float(key string) (float64, error) {
	v, err := f.get(key, "f32 or f64", func(v Value) bool { return v.Type == TypeFloat32 || v.Type == TypeFloat64 })
	if err != nil {
		return 0, err
	}
	return v.float(0), nil
}

// Bool returns a bool.
func (f *File) Bool(key string) (bool, error) {
	v, err := f.get(key, "bool", func(v Value) bool { return v.Type == TypeBool })
	if err != nil {
		return false, err
	}
	return v.raw[0] != 0, nil
}

// Strings returns an array of strings. They share the memory of the metadata, so that a large vocabulary costs one
// allocation.
func (f *File) Strings(key string) ([]string, error) {
	v, err := f.get(key, "array of string", func(v Value) bool { return v.Type == TypeArray && v.Elem == TypeString })
	if err != nil {
		return nil, err
	}
	return texts(v.Len, &v.raw), nil
}

// Ints returns an array of integers of any size and sign that fit.
func (f *File) Ints(key string) ([]int64, error) {
	v, err := f.get(key, "array of integers", func(v Value) bool { return v.Type == TypeArray && v.Elem.isInteger() })
	if err != nil {
		return nil, err
	}
	s := integers[int64](v)
	if v.Elem == TypeUint64 {
		for i, x := range s {
			if x < 0 {
				return nil, fmt.Errorf("gguf: key %s: element %d, %d, is out of range", Quote(key), i, uint64(x))
			}
		}
	}
	return s, nil
}

// Floats returns an array of f32, or of f64 rounded to float32.
func (f *File) Floats(key string) ([]float32, error) {
	v, err := f.get(key, "array of f32 or f64", func(v Value) bool {
		return v.Type == TypeArray && (v.Elem == TypeFloat32 || v.Elem == TypeFloat64)
	})
	if err != nil {
		return nil, err
	}
	return floats[float32](v), nil
}

// Bools returns an array of bools.
func (f *File) Bools(key string) ([]bool, error) {
	v, err := f.get(key, "array of bool", func(v Value) bool { return v.Type == TypeArray && v.Elem == TypeBool })
	if err != nil {
		return nil, err
	}
	return bools(v), nil
}

// StringOr is String with a default.
func (f *File) StringOr(key, def string) (string, error) {
	v, err := f.String(key)
	return or(v, err, def)
}

// UintOr is Uint with a default.
func (f *File) UintOr(key string, def uint64) (uint64, error) {
	v, err := f.Uint(key)
	return or(v, err, def)
}

// FloatOr is Float with a default.
func (f *File) FloatOr(key string, def float64) (float64, error) {
	v, err := f.Float(key)
	return or(v, err, def)
}

// BoolOr is Bool with a default.
func (f *File) BoolOr(key string, def bool) (bool, error) {
	v, err := f.Bool(key)
	return or(v, err, def)
}

func or[T any](v T, err error, def T) (T, error) {
	if errors.Is(err, ErrNoKey) {
		return def, nil
	}
	return v, err
}
