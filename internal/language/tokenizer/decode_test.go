package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestDecoderHoldsBackIncompleteCharacters(t *testing.T) {
	tok := must(t, bytesVocab())
	d := tok.NewDecoder()
	for _, step := range []struct {
		id   int32
		want string
	}{
		{'a', "a"}, {0xf0, ""}, {0x9f, ""}, {0x99, ""}, {0x82, "🙂"}, {'b', "b"},
		{0xc3, ""}, {'c', "\ufffdc"}, {0x80, "\ufffd"}, {0xe2, ""}, {0x82, ""}, {0xe2, "\ufffd"}, {0x82, ""}, {0xac, "€"}, {0xe2, ""},
	} {
		if got, err := d.Next(step.id); got != step.want || err != nil {
			t.Errorf("%#x: %q, want %q; %v", step.id, got, step.want, err)
		}
	}
	if got := d.Flush(); got != "\ufffd" {
		t.Errorf("at the end: %q", got)
	}
	if got := d.Flush(); got != "" {
		t.Errorf("at the second end: %q", got)
	}
}

// The example of The Unicode Standard, table 3-8, and what Python's bytes.decode("utf-8", "replace") makes of others.
func TestWhatIsNoUTF8IsReplacedAsUnicodeRecommends(t *testing.T) {
	tok := must(t, bytesVocab())
	for in, want := range map[string]string{
		"\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64": "a\ufffd\ufffd\ufffdb\ufffdc\ufffd\ufffdd",
		"\xe0\x80a":        "\ufffd\ufffda",
		"\xed\xa0\x80":     "\ufffd\ufffd\ufffd",
		"\xf4\x90\x80":     "\ufffd\ufffd\ufffd",
		"\xf0\x9f\x99":     "\ufffd",
		"\xc3\xc3\xa9\xfe": "\ufffdé\ufffd",
	} {
		ids := []int32{}
		for _, b := range []byte(in) {
			ids = append(ids, int32(b))
		}
		if got, err := tok.Decode(ids); got != want || err != nil {
			t.Errorf("%x: %q, want %q; %v", in, got, want, err)
		}
	}
}

func TestControlTokensAppearOnlyWhenAsked(t *testing.T) {
	c := bytesVocab()
	end, user := c.add("<|im_end|>", Control), c.add("<tool_call>", UserDefined)
	tok := must(t, c)
	ids := []int32{'a', 0xc3, end, 0xa9, user}
	if s, _ := tok.Decode(ids); s != "aé<tool_call>" {
		t.Errorf("%q", s)
	}
	d := tok.NewDecoder()
	d.Special = true
	var b strings.Builder
	for _, id := range ids {
		s, err := d.Next(id)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(s)
	}
	if b.String() != "a\ufffd<|im_end|>\ufffd<tool_call>" {
		t.Errorf("%q", b.String())
	}
}

// What a decoder returns piece by piece is valid and, together, what Decode returns.
func TestStreamedTextIsThatOfDecode(t *testing.T) {
	c := bytesVocab("a b", "Ã ©", "ð Ł", "Ġ a")
	end := c.add("<|im_end|>", Control)
	tok := must(t, c)
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOf(rapid.OneOf(rapid.Int32Range(0, end), rapid.SampledFrom([]int32{0xf0, 0x9f, 0x99, 0x82, 0xc3, 'a'}))).Draw(t, "ids")
		want, err := tok.Decode(ids)
		if err != nil {
			t.Fatal(err)
		}
		d := tok.NewDecoder()
		var b strings.Builder
		for _, id := range ids {
			s, err := d.Next(id)
			if err != nil || !utf8.ValidString(s) || len(d.held) > 3 {
				t.Fatalf("%q, %v, holding %d bytes", s, err, len(d.held))
			}
			b.WriteString(s)
		}
		b.WriteString(d.Flush())
		if b.String() != want {
			t.Fatalf("%q, want %q", b.String(), want)
		}
	})
}
