package tokenizer

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"os"
	"slices"
	"testing"
	"unicode"
)

// testdata/unicode.py says how Hugging Face's tokenizers made the file.
func readUnicode(t *testing.T) (d struct {
	Classes map[string][2]uint32
	NFC     [][2]string
	BERT    [][2]json.RawMessage
}) {
	t.Helper()
	fillClasses()
	b, err := os.ReadFile("testdata/unicode.json")
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCharactersHaveThePropertiesOfTheLibraries(t *testing.T) {
	d := readUnicode(t)
	if unicode.Version != "15.0.0" {
		t.Skipf("Go's tables are of Unicode %s: what they have beyond 16.0 is not in the libraries'", unicode.Version)
	}
	for name, bit := range map[string]class{
		"letter": letter, "number": number, "mark": mark, "punct": punct, "symbol": symbol, "space": space, "upper": upper,
		"lower": lower, "han": han, "decimal": decimal, "word": wordChar,
	} {
		var found []byte
		for r, c := range classes {
			if c&bit != 0 && (r < 0xd800 || 0xdfff < r) {
				found = binary.LittleEndian.AppendUint32(found, uint32(r))
			}
		}
		if got := [2]uint32{uint32(len(found) / 4), crc32.ChecksumIEEE(found)}; got != d.Classes[name] {
			t.Errorf("%s: count and CRC %v, want %v", name, got, d.Classes[name])
		}
	}
}

func TestMarksAreNormalizedAsByTheLibraries(t *testing.T) {
	d := readUnicode(t)
	if len(d.NFC) < 300 {
		t.Fatalf("%d texts", len(d.NFC))
	}
	for _, c := range d.NFC {
		if got := nfc(c[0]); got != c[1] {
			t.Errorf("%+q: %+q, want %+q", c[0], got, c[1])
		}
	}
}

func TestBERTsWordsAreThoseOfItsLibrary(t *testing.T) {
	d := readUnicode(t)
	if len(d.BERT) < 29 {
		t.Fatalf("%d texts", len(d.BERT))
	}
	for _, c := range d.BERT {
		var text string
		var want []string
		if json.Unmarshal(c[0], &text) != nil || json.Unmarshal(c[1], &want) != nil {
			t.Fatalf("%s", c)
		}
		// Each word of the vocabulary is one that the library made: whatever else comes out is unknown.
		config := Config{Model: "bert", Tokens: []string{"[UNK]"}, Special: map[string]int32{"unknown": 0}, AddBOS: ptr(false), AddEOS: ptr(false)}
		ids := []int32{}
		for _, w := range want {
			i := slices.Index(config.Tokens, underscore+w)
			if i < 0 {
				i = len(config.Tokens)
				config.Tokens = append(config.Tokens, underscore+w)
			}
			ids = append(ids, int32(i))
		}
		if got := encode(t, must(t, config), text, Options{AddBOS: true}); !slices.Equal(got, ids) {
			t.Errorf("%+q: %v, want %v of %+q", text, got, ids, config.Tokens)
		}
	}
}
