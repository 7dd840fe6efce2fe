package jinja

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// checkSpans fails unless the spans of s are sorted, disjoint, not empty and on the borders of code points.
func checkSpans(t *testing.T, s Str) {
	t.Helper()
	last := 0
	for _, m := range s.Spans() {
		if m.Start < last || m.End <= m.Start || m.End > len(s.String()) {
			t.Fatalf("span %v of %q after offset %d", m, s.String(), last)
		}
		if !utf8.RuneStart(s.String()[m.Start]) || m.End < len(s.String()) && !utf8.RuneStart(s.String()[m.End]) {
			t.Fatalf("span %v cuts a code point of %q", m, s.String())
		}
		last = m.End
	}
}

// bracketed shows the marks of a string: text from outside in brackets.
func bracketed(s Str) string {
	var b strings.Builder
	last := 0
	for _, m := range s.Spans() {
		fmt.Fprintf(&b, "%s[%s]", s.String()[last:m.Start], s.String()[m.Start:m.End])
		last = m.End
	}
	return b.String() + s.String()[last:]
}

func TestMarksFollowTheTextOfInputs(t *testing.T) {
	for _, c := range []struct{ template, want string }{
		{`<|user|>{{ s }}<|end|>`, `<|user|>[ ab-cd ]<|end|>`},
		{`x{{ s|trim }}y`, `x[ab-cd]y`},
		{`{{ s.strip().split('-') }}`, `['[ab]', '[cd]']`},
		{`{{ s.split('-')[1] ~ 'x' ~ s[1] }}`, `[cd ]x[a]`},
		{`{{ s[::-1] }}`, `[ dc-ba ]`},
		{`{{ s|upper ~ s|title }}`, `[ AB-CD  Ab-Cd ]`},
		{`{{ s|replace('-', '<>') }}`, `[ ab]<>[cd ]`},
		{`{{ '<a>'|replace('a', s) }}`, `<[ ab-cd ]>`},
		{`{{ s|tojson }}{{ {s: s}|tojson }}`, `"[ ab-cd ]"{"[ ab-cd ]": "[ ab-cd ]"}`},
		{`{{ q|tojson }}`, `"[\"\n]"`},
		{`{{ q }}|{{ [q] }}`, "[\"\n]|['[\"\\n]']"},
		{`{{ '%s-%5s|%r' % (s, e, e) }}`, `[ ab-cd ]-    [é]|'[é]'`},
		{`{{ '{}-{:>3}|{!r}'.format(s, e, e) }}`, `[ ab-cd ]-  [é]|'[é]'`},
		{`{{ s.join(['<', '>']) }}`, `<[ ab-cd ]>`},
		{`{{ [s, 'x', e]|join('|') }}`, `[ ab-cd ]|x|[é]`},
		{`{{ e * 3 }}{{ e.center(5, '*') }}`, `[ééé]**[é]**`},
		{`{{ ('x\n' ~ l)|indent(2) }}`, "x\n\n  [a]\n  [b]"},
		{`{% for c in e ~ 'x' %}{{ c }},{% endfor %}`, `[é],x,`},
		{`{% set x %}<{{ s }}>{% endset %}{{ x|trim('<') }}`, `[ ab-cd ]>`},
		{`{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(e) }}`, `<[é]>`},
		{`{% filter upper %}a{{ e }}{% endfilter %}`, `A[É]`},
		{`{% for k, v in m.items() %}{{ k }}={{ v }}{% endfor %}`, `[k]=[v]`},
		{`{{ dict(**m) }}`, `{'[k]': '[v]'}`},
		{`{{ s.partition('b') }}`, `('[ a]', '[b]', '[-cd ]')`},
		{`{{ 'x' if s == ' ab-cd ' and 'ab' in s and s.startswith(' ') }}{{ s|length }}`, `x7`},
		{`{{ e|e ~ '<'|e ~ ('<' ~ e)|e }}`, `[é]&lt;&lt;[é]`},
		{`{{ (e ~ ' x')|urlencode }}`, `[%C3%A9]%20x`},
		{`{{ s|truncate(5, true, '...', 0) }}`, `[ a]...`},
		{`{{ (e ~ '\t')|string|first }}{{ (e ~ '\tx').expandtabs(3) }}`, `[éé]  x`},
		{`{{ strftime_now('%Y' ~ e) }}`, `2024[é]`},
	} {
		tpl, err := Parse(c.template)
		if err != nil {
			t.Fatalf("%s: %v", c.template, err)
		}
		m := NewDict()
		m.Set("k", NewStr("v"))
		out, err := tpl.Render(map[string]Value{
			"s": MarkedStr(" ab-cd ", 1), "q": MarkedStr("\"\n", 1), "e": MarkedStr("é", 1), "l": MarkedStr("\na\nb", 1), "m": Clone(m, 2),
		}, Options{Now: goldenNow})
		if err != nil {
			t.Fatalf("%s: %v", c.template, err)
		}
		checkSpans(t, out)
		if got := bracketed(out); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.template, got, c.want)
		}
	}
}

// Templates hold no Cyrillic letters, inputs nothing else: so the letters and nothing but them must be marked.
func TestAllTextOfInputsIsMarkedAndNothingElse(t *testing.T) {
	data, err := os.ReadFile("testdata/python-cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct{ Template string }
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	rendered := 0
	for _, c := range file.Cases {
		tpl, err := Parse(c.Template)
		if err != nil || strings.Contains(c.Template, "urlencode") || strings.Contains(c.Template, "ensure_ascii=true") || strings.Contains(c.Template, "tojson(true") {
			continue // these write letters as ASCII
		}
		d, inner := NewDict(), NewDict()
		inner.Set("ключ", NewStr("дело"))
		d.Set("имя", NewStr("слово"))
		d.Set("а", inner)
		vars := map[string]Value{}
		for i, name := range strings.Fields("s t e q nums fl u n f x") {
			vars[name] = MarkedStr("ЖелезнаяДорога", i)
		}
		vars["m"], vars["l"], vars["ls"] = Clone(d, 20), Clone(NewList(NewStr("раз"), NewStr("Два")), 21), Clone(NewList(NewStr("б"), NewStr("А")), 22)
		vars["mix"], vars["ld"] = Clone(NewList(NewStr("раз"), d, nil), 23), Clone(NewList(d, d), 24)
		out, err := tpl.Render(vars, Options{Now: goldenNow})
		if err != nil {
			continue
		}
		checkSpans(t, out)
		rendered++
		marked := make([]bool, len(out.String()))
		for _, m := range out.Spans() {
			for i := m.Start; i < m.End; i++ {
				marked[i] = true
			}
		}
		for i, r := range out.String() {
			if unicode.Is(unicode.Cyrillic, r) != marked[i] {
				t.Errorf("%s\n%s: %q at %d is marked: %v", c.Template, bracketed(out), r, i, marked[i])
				break
			}
		}
	}
	if rendered < 500 {
		t.Errorf("only %d templates rendered", rendered)
	}
}

func FuzzTemplates(f *testing.F) {
	data, err := os.ReadFile("testdata/python-cases.json")
	if err != nil {
		f.Fatal(err)
	}
	var file struct {
		Vars  json.RawMessage
		Cases []struct{ Template string }
	}
	if err := json.Unmarshal(data, &file); err != nil {
		f.Fatal(err)
	}
	for _, c := range file.Cases {
		f.Add(c.Template)
	}
	for _, src := range hostile {
		if len(src) < 1000 {
			f.Add(src)
		}
	}
	vars := func(source int) map[string]Value {
		v, err := FromJSON(file.Vars)
		if err != nil {
			f.Fatal(err)
		}
		m := map[string]Value{}
		v.(*Dict).Each(func(k, v Value) bool {
			m[k.(Str).String()] = Clone(v, source)
			return true
		})
		return m
	}
	opts := Options{Now: goldenNow, Limits: Limits{Steps: 100_000, Text: 1 << 20, Bytes: 4 << 20}}
	f.Fuzz(func(t *testing.T, src string) {
		tpl, err := Parse(src)
		if err == nil {
			var plain, marked Str
			var err2 error
			plain, err = tpl.Render(vars(-1), opts)
			marked, err2 = tpl.Render(vars(3), opts)
			checkSpans(t, plain)
			checkSpans(t, marked)
			if len(plain.Spans()) > 0 {
				t.Fatalf("%q marks text of its own", src)
			}
			if (err == nil) != (err2 == nil) && !isLimit(err) && !isLimit(err2) || err == nil && err2 == nil && plain.String() != marked.String() {
				t.Fatalf("%q\nwithout marks %q %v\nwith marks    %q %v", src, plain, err, marked, err2)
			}
		}
		if err != nil && strings.Contains(err.Error(), "internal error") {
			t.Fatalf("%q\n%v", src, err)
		}
	})
}

func isLimit(err error) bool { return errors.Is(err, ErrLimit) }
