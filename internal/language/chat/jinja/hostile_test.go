package jinja

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
)

// hostile templates must end soon, with an error that is no accident of the interpreter.
var hostile = map[string]string{
	"endless nested loops":       `{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}`,
	"loop over growing list":     `{% set l = [1] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}`,
	"doubling string":            `{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}`,
	"doubling list":              `{% set ns = namespace(s=[1,2]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}`,
	"doubling list in place":     `{% set l = [1] %}{% for i in range(99) %}{% set _ = l.extend(l) %}{% endfor %}`,
	"string times huge":          `{{ 'ab' * 999999999999 }}`,
	"huge times string":          `{{ 99999999999999999999999 * 'ab' }}`,
	"list times huge":            `{{ [1] * 999999999 }}`,
	"huge range":                 `{% for i in range(1000000000) %}{% endfor %}`,
	"power tower":                `{{ 9**9**9**9**9 }}`,
	"squaring":                   `{% set ns = namespace(n=3) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}`,
	"endless macro":              `{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}`,
	"macros two ways":            `{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}`,
	"endless recursive loop":     `{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}`,
	"endless call":               `{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}`,
	"list in itself printed":     `{% set l = [1] %}{% set _ = l.append(l) %}{{ l }}`,
	"list in itself to JSON":     `{% set l = [1] %}{% set _ = l.append(l) %}{{ l|tojson }}`,
	"lists compared":             `{% set l = [1] %}{% set _ = l.append(l) %}{% set k = [1] %}{% set _ = k.append(k) %}{{ l == k }}`,
	"lists ordered":              `{% set l = [] %}{% set _ = l.append(l) %}{% set k = [] %}{% set _ = k.append(k) %}{{ l < k }}`,
	"dict in itself":             `{% set d = {} %}{% set _ = d.update({'d': d}) %}{{ d }}`,
	"shared lists printed":       `{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}`,
	"shared lists to JSON":       `{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}`,
	"shared lists compared":      `{% set a = namespace(l=[1]) %}{% set b = namespace(l=[1]) %}{% for i in range(60) %}{% set a.l = [a.l, a.l] %}{% set b.l = [b.l, b.l] %}{% endfor %}{{ a.l == b.l }}`,
	"shared tuples hashed":       `{% set ns = namespace(l=(1,)) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: 1} }}`,
	"deep list printed":          `{% set ns = namespace(l=[]) %}{% for i in range(20000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}`,
	"deep list compared":         `{% set a = namespace(l=[]) %}{% set b = namespace(l=[]) %}{% for i in range(20000) %}{% set a.l = [a.l] %}{% set b.l = [b.l] %}{% endfor %}{{ a.l == b.l }}`,
	"chain of generators":        `{% set ns = namespace(l=[1]) %}{% for i in range(20000) %}{% set ns.l = ns.l|map('upper') %}{% endfor %}{{ ns.l|list }}`,
	"replace blows up":           `{% set s = 'a' * 100000 %}{{ s|replace('a', s) }}`,
	"replace of nothing":         `{% set s = 'a' * 100000 %}{{ s|replace('', s) }}`,
	"join blows up":              `{% set s = 'a' * 100000 %}{{ s|join(s) }}`,
	"center":                     `{{ 'a'|center(99999999999) }}`,
	"ljust":                      `{{ 'a'.ljust(99999999999) }}`,
	"zfill":                      `{{ 'a'.zfill(99999999999) }}`,
	"expandtabs":                 `{{ 'a\t'.expandtabs(99999999999) }}`,
	"indent wide":                `{{ 'a\nb'|indent(99999999999) }}`,
	"indent many lines":          `{{ ('a\n' * 1000000)|indent(1000000) }}`,
	"tojson indent":              `{{ [1]|tojson(indent=99999999999) }}`,
	"printf width":               `{{ '%99999999999d' % 1 }}`,
	"printf star":                `{{ '%*d' % (99999999999, 1) }}`,
	"printf precision":           `{{ '%.99999999f' % 1.5 }}`,
	"format width":               `{{ '{:>99999999999}'.format(1) }}`,
	"format precision":           `{{ '{:.99999999f}'.format(1.5) }}`,
	"batch fill":                 `{{ [1]|batch(99999999999, 0)|list }}`,
	"slice many":                 `{{ [1]|slice(99999999999)|list }}`,
	"splitting again and again":  `{% set s = 'a,' * 1000000 %}{% for i in range(99999) %}{% set l = s.split(',') %}{% endfor %}`,
	"searching again and again":  `{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{% for j in range(999) %}{{ 'b' in s }}{% endfor %}{% endfor %}`,
	"counting again and again":   `{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{% for j in range(999) %}{{ s|length }}{% endfor %}{% endfor %}`,
	"indexing again and again":   `{% set s = 'ä' * 2000000 %}{% for i in range(99999) %}{% for j in range(999) %}{{ s[-1] }}{% endfor %}{% endfor %}`,
	"comparing again and again":  `{% set s = 'a' * 4000000 %}{% set t = 'a' * 4000000 %}{% for i in range(99999) %}{% for j in range(999) %}{{ s == t }}{% endfor %}{% endfor %}`,
	"ordering again and again":   `{% set s = 'a' * 4000000 %}{% set t = 'a' * 4000000 %}{% for i in range(99999) %}{% for j in range(999) %}{{ s < t }}{% endfor %}{% endfor %}`,
	"stripping again and again":  `{% set s = ' ' * 4000000 %}{% for i in range(99999) %}{% for j in range(999) %}{{ s|trim }}{% endfor %}{% endfor %}`,
	"startswith again and again": `{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{% for j in range(999) %}{{ s.startswith(s) }}{% endfor %}{% endfor %}`,
	"hashing again and again":    `{% set s = 'a' * 4000000 %}{% set d = {} %}{% for i in range(99999) %}{% for j in range(999) %}{{ d[s] }}{% endfor %}{% endfor %}`,
	"keyword arguments":          `{% set d = dict() %}{% for i in range(9999) %}{% set _ = d.update({i|string: 1}) %}{% endfor %}{{ dict(**d)|length }}{% for i in range(9999) %}{{ dict(**d)|length }}{% endfor %}`,
	"removing keys":              `{% set d = {} %}{% for i in range(99999) %}{% set _ = d.update({i: 1}) %}{% endfor %}{% for i in range(99999) %}{% set _ = d.pop(i) %}{% endfor %}`,
	"sorting again and again":    `{% set l = range(99999)|list %}{% for i in range(99999) %}{% set k = l|sort %}{% endfor %}`,
	"much output":                `{% for i in range(99999) %}{{ 'a' * 100000 }}{% endfor %}`,
	"many parts alive":           `{% set l = [] %}{% for i in range(99999) %}{% set _ = l.append('a' * 100000) %}{% endfor %}`,
	"sigmas":                     `{% set s = 'Σ.' * 100000 %}{% for i in range(999) %}{{ s|lower }}{% endfor %}`,
	"class of a string":          `{{ ''.__class__.__mro__ }}`,
	"class by subscript":         `{{ ''['__class__']['__mro__'] }}`,
	"globals of a macro":         `{% macro f() %}{% endmacro %}{{ f.__globals__.x }}`,
	"class by attr":              `{{ (''|attr('__class__')).x }}`,
	"class by format":            `{{ '{0.__class__.__mro__}'.format('') }}`,
	"include":                    `{% include '/etc/passwd' %}`,
	"import":                     `{% import 'os' as os %}`,
	"from":                       `{% from 'os' import path %}`,
	"extends":                    `{% extends 'base' %}`,
	"deep brackets":              `{{ ` + strings.Repeat("(", 100000) + strings.Repeat(")", 100000) + ` }}`,
	"deep lists":                 `{{ ` + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + ` }}`,
	"deep dicts":                 `{{ ` + strings.Repeat("{1:", 100000) + "1" + strings.Repeat("}", 100000) + ` }}`,
	"deep calls":                 `{{ ` + strings.Repeat("f(", 100000) + strings.Repeat(")", 100000) + ` }}`,
	"deep subscripts":            `{{ ` + strings.Repeat("a[", 100000) + "1" + strings.Repeat("]", 100000) + ` }}`,
	"long chain of attributes":   `{{ a` + strings.Repeat(".a", 100000) + ` }}`,
	"long chain of filters":      `{{ a` + strings.Repeat("|upper", 100000) + ` }}`,
	"long sum":                   `{{ 1` + strings.Repeat("+1", 100000) + ` }}`,
	"long or":                    `{{ 0` + strings.Repeat(" or 0", 100000) + ` }}`,
	"many nots":                  `{{ ` + strings.Repeat("not ", 100000) + `1 }}`,
	"many minuses":               `{{ ` + strings.Repeat("- ", 100000) + `1 }}`,
	"long inline if":             `{{ 1` + strings.Repeat(" if 0 else 1", 80000) + ` }}`,
	"chained inline if":          `{{ 1` + strings.Repeat(" if 1", 100000) + ` }}`,
	"deep tags":                  strings.Repeat("{% if 1 %}", 100000),
	"deep loops":                 strings.Repeat("{% for i in [1] %}", 1000) + strings.Repeat("{% endfor %}", 1000),
	"many elifs":                 "{% if 0 %}" + strings.Repeat("{% elif 0 %}", 80000) + "{% endif %}",
	"deep targets":               `{% set ` + strings.Repeat("(", 100000) + `a` + strings.Repeat(")", 100000) + ` = 1 %}`,
	"unclosed comment":           strings.Repeat("{# ", 300000),
	"unclosed raw":               strings.Repeat("{% raw %} {% ", 80000),
	"almost raw":                 strings.Repeat("{%"+strings.Repeat(" ", 1000), 1000),
	"unclosed string":            `{{ "` + strings.Repeat("\\", 100001),
	"long integer":               `{{ ` + strings.Repeat("9", 900000) + ` }}`,
	"integer from long text":     `{{ ('9' * 5000)|int + none }}`,
	"not UTF-8":                  "{{ 'a\xff\xfe' }}{% \xff %}",
	"dictionary changes":         `{% set d = {'a': 1} %}{% for k in d %}{% set _ = d.update({k ~ 'x': 1}) %}{% endfor %}`,
	"cycler of nothing":          `{{ cycler() }}`,
	"too large a source":         strings.Repeat("x", maxSource+1),
}

func TestHostileTemplatesEndInAnErrorSoon(t *testing.T) {
	for name, src := range hostile {
		t.Run(name, func(t *testing.T) {
			start := busy.Processor()
			tpl, err := Parse(src)
			if err == nil {
				_, err = tpl.Render(map[string]Value{"a": NewStr("x")}, Options{Limits: Limits{Steps: 500_000, Text: 4 << 20, Bytes: 32 << 20}})
			}
			took := busy.Processor() - start
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("no error, but %v", err)
			}
			if strings.Contains(e.Msg, "internal error") {
				t.Fatal(err)
			}
			if e.Line < 1 && !errors.Is(err, ErrLimit) {
				t.Errorf("error without a line: %v", err)
			}
			if len(e.Error()) > 2000 {
				t.Errorf("an error of %d bytes", len(e.Error()))
			}
			// A small part of the default budget; the bound leaves room for the race detector.
			if took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			t.Logf("%v: %.150v", took.Round(time.Millisecond), err)
		})
	}
}

// Within the limits that hold where none are given. Run it with -v for the figures.
func TestHostileTemplatesStayWithinTheDefaultLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	slowest, most := time.Duration(0), uint64(0)
	for name, src := range hostile {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := busy.Processor()
		if tpl, err := Parse(src); err == nil {
			tpl.Render(map[string]Value{"a": NewStr("x")}, Options{})
		}
		took := busy.Processor() - start
		runtime.ReadMemStats(&after)
		grown := after.HeapSys - min(after.HeapSys, before.HeapSys)
		slowest, most = max(slowest, took), max(most, grown)
		t.Logf("%s: %v", name, took.Round(time.Millisecond))
		// Limits.Time ends the longest; the rest is for what is between two looks at the clock, and for Go's collector beside it.
		if took > 3*time.Second || grown > 256<<20 {
			t.Errorf("%s: %v and %d MiB", name, took, grown>>20)
		}
	}
	t.Logf("%d templates: at most %v each, and the heap grew by %d MiB at most", len(hostile), slowest.Round(time.Millisecond), most>>20)
}

func TestLongRenderingsEndInTime(t *testing.T) {
	for _, name := range []string{"endless nested loops", "macros two ways", "sorting again and again", "searching again and again"} {
		tpl, err := Parse(hostile[name])
		if err != nil {
			t.Fatal(err)
		}
		_, err = tpl.Render(nil, Options{Limits: Limits{Steps: 1 << 50, Bytes: 1 << 40, Time: 20 * time.Millisecond}})
		if !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "20ms") {
			t.Errorf("%s: %v", name, err)
		}
	}
	tpl, err := Parse(`{% for i in range(50000) %}{{ i }}{% endfor %}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tpl.Render(nil, Options{Limits: Limits{Time: 1}}); err != nil {
		t.Errorf("a short rendering: %v", err)
	}
}

func TestRenderingStopsWithItsContext(t *testing.T) {
	for _, name := range []string{"endless nested loops", "macros two ways", "sorting again and again", "searching again and again"} {
		tpl, err := Parse(hostile[name])
		if err != nil {
			t.Fatal(err)
		}
		var start time.Duration
		ctx := busy.AtLook(10, func() { start = busy.Processor() })
		_, err = tpl.Render(nil, Options{Context: ctx, Limits: Limits{Steps: 1 << 50, Bytes: 1 << 40}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if d := busy.Processor() - start; d > 2*time.Second { // the longest stretch without a look is a sort of 100,000 numbers
			t.Errorf("%s: stopped after %v of a processor", name, d)
		}
	}
}

func ExampleTemplate_Render() {
	tpl, err := Parse("{% for m in messages %}\n[{{ m.role }}] {{ m.content|trim }}\n{% endfor %}")
	if err != nil {
		fmt.Println(err)
		return
	}
	messages, err := FromJSON([]byte(`[{"role": "user", "content": " hi "}, {"role": "assistant", "content": "hello"}]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := tpl.Render(map[string]Value{"messages": messages}, Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(out)
	// Output:
	// [user] hi
	// [assistant] hello
}

func ExampleParse_error() {
	_, err := Parse("{% for m in messages %}\n{{ m.content }}\n{% endif %}")
	fmt.Println(err)
	// Output: line 3: Encountered unknown tag 'endif'. Jinja was looking for the following tags: 'endfor' or 'else'.
}
