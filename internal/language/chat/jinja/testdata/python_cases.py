#!/usr/bin/env python3
"""Writes python-cases.json: templates with what Python's jinja2 makes of them under Hugging Face's conventions.

    pip install jinja2==3.1.2 && python3 python_cases.py > python-cases.json

A list written by hand, and random expressions and statements from a fixed seed. A case has the output, or error: true.
The environment is SandboxedEnvironment, not the immutable one, so that the methods that change values can be compared.
"""
import datetime, json, random, signal, sys, warnings

import jinja2, jinja2.ext, jinja2.sandbox
from jinja2 import nodes

warnings.simplefilter("ignore")


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


env = jinja2.sandbox.SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda f: datetime.datetime(2024, 7, 26, 12, 34, 56).strftime(f)

VARS = {
    "s": "Hello, World! ", "t": "äöü ß Σίσυφος ΟΔΟΣ ﬁ", "e": "", "q": "it's \"q\"\n\ttab\\", "nums": "42", "fl": " 3.75 ", "u": "日本🙂",
    "n": 7, "z": 0, "neg": -13, "f": 2.5, "g": -0.1, "h": 1e20, "big": 123456789012345678901234567890, "b": True, "nb": False, "x": None,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "m": {"a": 1, "b": [1, 2], "key": "v", "items": 5},
    "ld": [{"n": "x", "v": 2}, {"n": "Y", "v": 1}, {"n": "z", "v": None}], "ll": [[1, 2], [3, 4]], "mix": [1, "a", None, True, 2.0, [], {}],
    "tree": [{"n": 1, "c": [{"n": 2, "c": []}, {"n": 3, "c": [{"n": 4, "c": []}]}]}],
    "msgs": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo\nlo", "t": 1}],
}

HAND = [
    # numbers
    *["{{ %s }}" % e for e in """1e16|1e15|123456789.0|1e-4|1e-5|0.1+0.2|1/3|2/1|7//2|-7//2|7%3|-7%3|7%-3|7.5//2|-7.5//2|7.5%2|-7.5%2|2**10|2**-1|2**0.5|-2**2|(-2)**2
2**3**2|big+1|big*big|big//7|big%1000|-big|big/3|9223372036854775807+1|-9223372036854775808-1|9223372036854775807*2|9007199254740993/2|5.0|1e300*1e10|-1e300*1e10
True+1|True*3|1==1.0|1==True|big==big+0.0|2<2.5|3>2>1|1<2<2|9007199254740993==9007199254740992.0|0.1==0.1|-0.0|0.0==-0.0|1_000_000|0x1F|0b101|0o17|1.5e3|00|1__0""".replace("\n", "|").split("|")],
    *["{{ %s|%s }}" % (v, f) for v in ("2.5", "3.5", "-2.5", "2.675", "1234.5678", "0.5", "15", "-15", "25", "1e22") for f in ("round", "round(2)", "round(-1)", "round(1,'ceil')", "round(1,'floor')", "int", "float", "abs")],
    *["{{ %s|int }}" % v for v in ("'12'", "' 12 '", "'1_000'", "'12.9'", "'-3'", "'+3'", "'0x1f'", "'abc'", "''", "'1e3'", "none", "[]", "true", "'٣'", "'1__0'", "'_1'", "'inf'", "'nan'")],
    *["{{ %s }}" % e for e in ("'0x1f'|int(base=16)", "'ff'|int(0, 16)", "'zz'|int(7, 36)", "'0b11'|int(base=2)", "'11'|int(base=0)", "'011'|int(5, 0)", "'1.5'|float", "'x'|float", "'x'|float(2)", "none|float", "'1e400'|float", "' -1.5 '|float")],
    # printf and format
    *["{{ '%s' %% %s }}" % p for p in [("%d", "42"), ("%5d|", "42"), ("%-5d|", "42"), ("%05d", "-42"), ("%+d", "42"), ("% d", "42"), ("%x", "255"), ("%#x", "255"), ("%X", "255"), ("%o", "8"), ("%#o", "8"), ("%e", "12345.678"),
        ("%f", "1.5"), ("%.2f", "2.675"), ("%10.3f|", "3.14159"), ("%-10.3f|", "3.14159"), ("%g", "1e-5"), ("%g", "100000"), ("%g", "1000000"), ("%G", "1e-10"), ("%.3g", "1234.5"), ("%s", "none"), ("%r", "'a'"), ("%5s|", "'ab'"), ("%-5s|", "'ab'"),
        ("%.1s", "'ab'"), ("%c", "65"), ("%c", "'z'"), ("%%", "()"), ("%d%%", "5"), ("%s-%s", "(1, 2)"), ("%s", "(1,)"), ("%(a)s", "{'a': 1}"), ("%(a)d-%(b)s", "{'a': 1, 'b': 'x'}"), ("%*d", "(5, 42)"), ("%.*f", "(2, 1.5)"), ("%s", "[1]"),
        ("%d", "'x'"), ("%d", "3.7"), ("%s", "()"), ("x", "1"), ("x", "[1]"), ("x", "{}"), ("%s %s", "1"), ("%y", "1"), ("%", "1"), ("%.3d", "5"), ("%i", "true"), ("%5c|", "'a'"), ("%a", "1"), ("%06.2f", "-1.5"), ("%s", "undefined_name")]],
    *["{{ '%s'.format(%s) }}" % p for p in [("{}", "1"), ("{} {}", "1, 2"), ("{1} {0}", "1, 2"), ("{a}", "a=1"), ("{0.a}", "{'a': 5}"), ("{0[a]}", "{'a': 5}"), ("{0[1]}", "[1, 2]"), ("{:5}|", "1"), ("{:<5}|", "1"), ("{:>5}|", "'a'"), ("{:^5}|", "'a'"),
        ("{:*^6}|", "'a'"), ("{:05}", "-42"), ("{:+}", "1"), ("{: }", "1"), ("{:,}", "1234567"), ("{:_}", "1234567"), ("{:,.2f}", "1234567.891"), ("{:x}", "255"), ("{:#x}", "255"), ("{:b}", "5"), ("{:#o}", "8"), ("{:e}", "1234.5"), ("{:.3}", "1234.5"),
        ("{:g}", "0.00001"), ("{:%}", "0.25"), ("{:.1%}", "0.256"), ("{:.2}", "'abc'"), ("{!r}", "'a'"), ("{!s:5}|", "'a'"), ("{{}}", ""), ("{", ""), ("}", ""), ("{}", ""), ("{5}", "1"), ("{:{}}|", "'a', 5"), ("{:d}", "1.5"), ("{:s}", "1"), ("{:5}|", "true"),
        ("{:5}|", "none"), ("{:.2f}", "1"), ("{:c}", "65"), ("{:n}", "5"), ("{:08.3f}", "3.14159"), ("{:=+8}", "42"), ("{:.10}", "0.1"), ("{:.0f}", "2.5"), ("{:10.4}|", "1e10"), ("{0}{}", "1"), ("{a.b.c}", "a={'b': {'c': 3}}")]],
    # dates
    *["{{ strftime_now('%s') }}" % d for d in ("%Y-%m-%d", "%d %b %Y", "%B %d, %Y", "%A, %a", "%H:%M:%S", "%I:%M %p", "%j", "%U %W %w %u", "%y", "%-d %-m", "%e", "%c", "%x %X", "%D %T %R %F", "%G-W%V", "%%", "%n|%t|", "%Z|%z|", "%f", "%C", "%h", "%^b", "%_d", "x", "%", "é%Yé", "")],
    # strings
    *["{{ %s }}" % e for e in ("u|length", "u[1]", "u[-1]", "u[::-1]", "u|upper", "u.center(9, '·')", "u|tojson", "u|tojson(ensure_ascii=true)", "[u]", "[q]", "['\\x00\\x7f\\u00a0\\u200b']", "'\\x41\\u00e9\\101\\n\\q'|tojson", "'a' 'b'", "t|lower", "t|upper", "t|title",
        "t|capitalize", "t.title()", "t.swapcase()", "t.casefold()", "q.splitlines()", "'a\\r\\nb\\rc\\n'.splitlines(true)", "'a\\x0bb\\x0cc\\u2028d'.splitlines()", "' a  b '.split()", "' a  b '.split(none, 1)", "' a  b '.rsplit(none, 1)", "'a--b'.split('--')",
        "'abc'.split('')", "'aXbXc'.partition('X')", "'aXbXc'.rpartition('X')", "'xxaxx'.strip('x')", "'\\u2003a\\x1f'.strip()|tojson", "'ab'.join(['x','y'])", "'ab'.join([1])", "'abcabc'.find('c', 3)", "'abcabc'.find('c', -1)", "'abc'.index('z')", "'aaa'.count('aa')",
        "'aaa'.replace('a', 'b', 2)", "'abc'.startswith(('x', 'a'))", "'abc'.endswith('c', 0, 2)", "'-5'.zfill(5)", "'a\\tb'.expandtabs(4)", "'%s' % u", "'a' * -1", "3 * 'ab'", "'b' > 'a'", "'Z' < 'a'", "'' in 'a'", "1 in 'a'", "'<a href=\"x\">' | e", "('<b>'|safe) + '<i>'",
        "'<b>'|safe|e", "'a b/c?d=é'|urlencode", "{'a b': 'c&d', 'e': 1}|urlencode", "'foo bar baz qux'|truncate(9)", "'foo bar baz qux'|truncate(9, true)", "'foo bar baz qux'|truncate(11)", "1000|filesizeformat", "1|filesizeformat", "123456789|filesizeformat", "123456789|filesizeformat(true)",
        "'a b,c'|wordcount", "'hello-world (foo) [bar'|title", "'a\\n\\nb'|indent", "'a\\n\\nb'|indent(2, true, true)", "'a\\n'|indent")],
    # values
    *["{{ %s }}" % e for e in ("[1, 'a', none, true, 1.0, (), (1,), {}, {'a': [1]}]", "{1: 2, 'a': 'b', none: 1, (1, 2): 3}", "{1: 'a', 1.0: 'b', true: 'c'}", "{'a': 1}.items()", "{'a': 1}.keys()", "{'a': 1}.values()", "range(3)", "range(1, 9, 3)", "range(3)|list", "range(5)[1:3]", "range(3)[7]",
        "namespace(a=1)", "dict(a=1, b=2)", "dict([('a', 1)], b=2)", "dict({'a': 1})", "joiner('-')", "{'a': 1, 'b': 2}|dictsort", "{'b': 1, 'A': 2, 'a': 3}|dictsort", "{'b': 1, 'A': 2, 'a': 3}|dictsort(true)", "{'a': 1} == {'a': 1.0}", "[1, 2] < [1, 3]", "(1, 2) == [1, 2]", "[1] + [2]", "(1,) + (2,)", "[1] + (2,)",
        "{'a': {'b': 1}}.a.b", "{'a': 1}['b'] is defined", "m.items", "m['items']", "m.get('nope', 3)", "m.nope.x", "nope", "nope.x", "nope['x']", "nope()", "nope + 1", "nope == none", "nope|default('d')", "none|default('d')", "none|default('d', true)", "nope|length", "nope|list", "nope|join", "nope is none", "[] is sequence", "{} is sequence",
        "'' is sequence", "1 is sequence", "nope is iterable", "1 is number", "true is number", "true is integer", "1.0 is integer", "m is mapping", "range is callable", "1 is odd", "'a' is in 'abc'", "2 is in [1,2]", "4 is divisibleby 2", "4 is divisibleby(3)", "none is sameas none", "x is none and not b", "1 if nope", "(1 if false) is defined",
        "ld|groupby('v')|list", "ls|groupby(0)|map('list')|list", "ld|map(attribute='n')|join(',')", "ld|selectattr('v')|map(attribute='n')|list", "ld|rejectattr('v', 'none')|list|length", "[1,2,3,4]|select('odd')|list", "[1,2,3]|batch(2, 0)|list", "[1,2,3,4,5]|slice(2)|list", "[1,2,3,4,5]|slice(3, 0)|list", "['a','A','b']|unique|list", "[3,1,2]|sort(reverse=true)",
        "ls|sort", "ls|sort(case_sensitive=true)", "mix|sort", "[1,2,3]|sum", "ld|sum(attribute='v')", "['a','b']|sum", "[1,2]|sum(start=10)", "[[1],[2]]|sum(start=[])", "ls|min", "ls|max", "[]|min", "[]|first", "[]|last", "[1,2]|first", "(x for x in l)", "l|reverse|list", "'abc'|reverse", "l|reverse|first", "m|list", "m|items|list", "l.append(9) ~ l", "l.pop() ~ l",
        "l.pop(0) ~ l", "l.insert(1, 9) ~ l", "l.extend([8, 9]) ~ l", "l.remove(1) ~ l", "l.index(1)", "l.count(1)", "l.sort() ~ l", "l.reverse() ~ l", "l.copy()", "m.update({'z': 1}) ~ m", "m.pop('a') ~ m", "m.pop('nope')", "m.pop('nope', 5)", "m.setdefault('y', 6) ~ m", "m.popitem() ~ m", "m.copy()", "m.clear() ~ m")],
    # JSON
    *["{{ %s|tojson%s }}" % (v, a) for v in ("m", "mix", "q", "[1, [2, {}], {'a': []}]", "{1: 2, none: 3, true: 4, 1.5: 5}", "1e16", "big", "{'b': 1, 'a': {'d': 1, 'c': 2}}", "(1, 'a')") for a in ("", "(indent=2)", "(indent=0)", "(sort_keys=true)", "(separators=(',', ':'))", "(true, 1)", "(indent='--')")],
    "{{ nope|tojson }}", "{{ range(3)|tojson }}", "{{ {(1,): 2}|tojson }}", "{{ '\x7f\u2028</script>'|tojson }}",
    # statements
    "{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, b in [(1,)] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}", "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }} {% endfor %}",
    "{% for x in 'aabbc' %}{{ x if loop.changed(x) }}{% endfor %}", "{% for t in tree recursive %}{{ t.n }}@{{ loop.depth }}{{ loop.depth0 }}[{{ loop(t.c) }}]{% endfor %}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}no{% endfor %}", "{% for x in l %}{% break %}{% else %}no{% endfor %}",
    "{% for x in l %}{% set y = x %}{% endfor %}{{ y }}", "{% set y = 0 %}{% for x in l %}{% set y = y + x %}{{ y }}{% endfor %}{{ y }}", "{% set ns = namespace(y=0) %}{% for x in l %}{% set ns.y = ns.y + x %}{% endfor %}{{ ns.y }}", "{% set m.a = 5 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}",
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, c=3) }}|{{ f() }}|{{ f(b=5, a=4) }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, a=3) }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=1) }}", "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}x{% endcall %}",
    "{% macro f() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b) f() %}{{ a }}{{ b }}{% endcall %}", "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}", "{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}", "{% macro f(a) %}{% endmacro %}{{ f.name }}{{ f.arguments }}{{ f.catch_kwargs }}", "{% set x %}a{{ n }}{% endset %}{{ x|upper }}", "{% set x | upper %}a{% endset %}{{ x }}",
    "{% filter upper|replace('A', 'b') %}aaa{% endfilter %}", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "{% generation %}x{% set n = 5 %}{% endgeneration %}{{ n }}", "{% raw %}{{ x }}{% endraw %}", "{%- raw -%} {{ x }} {%- endraw -%} x", "{% print 1, 'a' %}", "{{ raise_exception('no') }}", "{% if n > 5 and not z %}a{% elif x %}b{% else %}c{% endif %}",
    "a\r\nb\rc\n", "a\n\n", "  {{ 1 }}\n  {% if 1 %}\n  x\n  {% endif %}\n", "  {%+ if 1 %}\n  x\n  {%- endif %}\n y", "{# a #}\nb", "  {# a #}\nb", "{#- a -#}  b", "x {{- 1 -}} y", "{% if 1 +%}\nx{% endif %}", "{{ '{{' }}{{ '}}' }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ 1", "{% if %}", "{% if 1 %}", "{% endif %}", "{% nope %}", "{{ 1 2 }}", "{{ (1 }}", "{{ 'a }}", "{# x", "{% raw %}x", "{{ }}", "{% for %}{% endfor %}",
    "{% for x in l %}{% endif %}", "{{ 1|nope }}", "{{ 1 is nope }}", "{% set 1 = 2 %}", "{% set none = 2 %}", "{% for loop in l %}{% endfor %}", "{% break %}", "{{ f(a=1, 2) }}", "{{ f(**{'a': 1}, *[1]) }}", "{{ dict(**{'a': 1}) }}", "{{ range(*[1, 4])|list }}", "{{ a.1 }}", "{{ ll.0.1 }}", "{{ 1.e }}", "{{ l[0:2] }}", "{{ l[::0] }}", "{{ l['a'] }}", "{{ x[1:] }}", "{{ nope[1:] }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}", "{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}", "{{ not 1 == 2 }}", "{{ not b and nb }}", "{{ 1 ~ 2 + 3 }}", "{{ -n|abs }}", "{{ -1 ** 2 }}", "{{ n is not none }}", "{{ n in [7] and 'x' not in s }}", "{{ 1 if 0 else 2 if 0 else 3 }}", "{{ (1, 2,) }}", "{{ [1, 2,] }}", "{{ {'a': 1,} }}", "{{ () }}",
]


class Maker:
    """Random templates from a seed."""

    LITERALS = ["1", "0", "-1", "2", "3", "10", "100", "1.5", "0.0", "-2.75", "1e3", "'a'", "'ab c'", "''", "' x '", "true", "false", "none", "[]", "{}", "()", "(1,)", "(1,2)", "[1,2,3]", "['x','y']", "{'a':1}", "{'k':[1]}", "'é'", "'<b>&'", "'a,b,,c'", "range(5)", "'Straße'"]
    METHODS = """upper()|lower()|strip()|lstrip()|title()|capitalize()|swapcase()|split()|split(',')|split('a',1)|rsplit('l',1)|splitlines()|startswith('H')|endswith('! ')|find('o')|rfind('o')|count('l')|replace('l','L',1)|replace('','-',2)|isalpha()|isdigit()|isspace()|isupper()|center(21,'*')|ljust(20)|rjust(20,'.')|zfill(20)|partition('o')|join(ls)|removeprefix('Hel')|keys()|values()|items()|get('a')|get('zz',9)|pop()|append(4)|index(1)|insert(0,9)|extend([8])|copy()|update({'z':1})|setdefault('a',5)|nope()""".split("|")
    FILTERS = """upper;lower;trim;title;capitalize;length;list;first;last;reverse|list;sort;sort(reverse=true);join;join(', ','n');sum;min;max;abs;int;float;round;round(1);string;tojson;tojson(indent=2);tojson(sort_keys=true);default('D');d('D',true);dictsort;unique|list;map('upper')|list;map(attribute='n')|list;map(attribute='v',default='Q')|list;select|list;select('odd')|list;reject('none')|list;selectattr('v')|list;selectattr('n','equalto','x')|list;groupby('v')|list;batch(2)|list;slice(2)|list;indent(2,true);truncate(5);wordcount;center(15);replace('l','LL');escape;urlencode;sort(attribute='n,v');int(base=16);trim('H ')""".split(";")
    TESTS = "defined|undefined|none|true|boolean|integer|float|number|string|mapping|sequence|iterable|callable|odd|even|divisibleby 3|eq 1|lt 2|ge 2|in [1,2,'a']|in m|sameas none|lower|upper|not none".split("|")
    NAMES = [v for v in VARS if v not in ("tree", "msgs")] + ["undef"]

    def __init__(self, seed):
        self.r = random.Random(seed)

    def expr(self, depth):
        r, again = self.r, lambda: self.expr(depth - 1)
        k = r.randrange(14) if depth > 0 else r.randrange(2)
        if k == 0: return r.choice(self.LITERALS)
        if k == 1: return r.choice(self.NAMES)
        if k in (2, 3): return f"({again()} {r.choice(['+', '-', '*', '/', '//', '%', '~'])} {again()})"
        if k == 4: return f"({again()} {r.choice(['==', '!=', '<', '>=', 'in', 'not in', 'and', 'or'])} {again()})"
        if k == 5: return f"(not {again()})"
        if k == 6: return f"({r.choice('-+')}{again()})"
        if k == 7: return f"({again()} if {again()} else {again()})"
        if k in (8, 9): return f"({again()}|{r.choice(self.FILTERS)})"
        if k == 10: return f"({again()} is {r.choice(self.TESTS)})"
        if k == 11: return f"{r.choice(self.NAMES)}.{r.choice(self.METHODS)}"
        if k == 12: return f"{r.choice(['s', 't', 'l', 'ls', 'u', 'e'])}[{r.choice(['', '0', '1', '-2'])}:{r.choice(['', '2', '-1', '10'])}{r.choice(['', ':', ':2', ':-1'])}]"
        return r.choice([f"[{again()}, {again()}]", f"({again()}, {again()})", f"{{'k': {again()}}}"])

    def space(self):
        return self.r.choice(["", " ", "\n", "\n\n", "  \n  ", "\n    ", "\t", "x", "x\n", "\n  x", "\r\n"])

    def opening(self):
        return self.r.choice(["{%", "{%", "{%-", "{%+"])

    def closing(self):
        return self.r.choice(["%}", "%}", "-%}", "+%}"])

    def tag(self, text):
        return f"{self.opening()} {text} {self.closing()}"

    def small(self):
        attrs = ["index", "index0", "first", "last", "length", "previtem", "nextitem", "revindex", "cycle('p', 'q')", "changed(i)", "depth"]
        return self.r.choice(["n", "b0", "x0", "i", "v", "1", "'q'", "ns.x", "l", "s|trim", "m.key", "fn(1)", "fn()", "fn(2)", "(caller() if caller is defined)", "'{{'", "'%}'", "{'a':{'b':1}}", "n if n>1", "x0 is defined", "jo()", "cy.next()"] + [f"(loop.{a} if loop is defined)" for a in attrs])

    def statement(self, d):
        r, name = self.r, lambda: self.r.choice(["b0", "x0", "i", "v"])
        k = r.randrange(17 if d > 0 else 6)
        if k == 0: return self.space()
        if k in (1, 2): return f"{r.choice(['{{', '{{', '{{-'])} {self.small()} {r.choice(['}}', '}}', '-}}'])}"
        if k == 3: return r.choice(["{# c #}", "{#- c -#}", "{# c\nd -#}", "{#+ {{ #}", "{#-#}"])
        if k == 4: return self.tag(f"set {name()} = {self.small()}")
        if k == 5: return r.choice([self.tag(f"set ns.x = {self.small()}"), self.tag(f"set {name()}, {name()} = (1, {self.small()})"), f"{self.opening()} raw {r.choice(['%}', '-%}'])}{self.space()}{{{{ a }}}}{self.space()}{self.tag('endraw')}"])
        if k in (6, 7): return self.tag(f"if {self.small()}") + self.body(d - 1) + (self.tag("else") + self.body(d - 1) if r.random() < .4 else "") + self.tag("endif")
        if k in (8, 9, 10):
            over = r.choice(["l", "ls", "msgs", "m", "[]", "range(2)", "[(1,2)]", "undef", "l|select", "ll|map(attribute=1)"])
            cond = r.choice(["", "", " if i", " if ns.x", " if i != 2"])
            stop = self.tag(f"if {self.small()}") + r.choice(["{% break %}", "{% continue %}"]) + self.tag("endif") if r.random() < .4 else ""
            return self.tag(f"for i in {over}{cond}") + self.body(d - 1) + stop + self.body(d - 1) + (self.tag("else") + self.body(d - 1) if r.random() < .3 else "") + self.tag("endfor")
        if k == 11: return self.tag(f"macro fn({r.choice(['', 'y', 'y=1', 'y, z=2', 'y=n'])})") + self.body(d - 1) + self.tag("endmacro")
        if k == 12: return self.tag(f"call{r.choice(['', '', '(y)', '(y=1)'])} fn({r.choice(['', '1', 'y=2'])})") + self.body(d - 1) + self.tag("endcall")
        if k == 13: return self.tag(f"filter {r.choice(['upper', 'trim', 'indent(2)|upper'])}") + self.body(d - 1) + self.tag("endfilter")
        if k == 14: return self.tag(f"set {name()}{r.choice(['', ' | upper', ' | trim | length'])}") + self.body(d - 1) + self.tag("endset")
        if k == 15: return r.choice([self.tag(f"with {name()} = {self.small()}") + self.body(d - 1) + self.tag("endwith"), self.tag("generation") + self.body(d - 1) + self.tag("endgeneration")])
        return self.tag("for t in tree recursive") + "{{ t.n }}" + self.body(d - 1) + "{{ loop(t.c) }}" + self.tag("endfor")

    def body(self, d):
        return "".join(self.statement(d) for _ in range(self.r.randrange(1, 3)))


PRELUDE = "{% set ns = namespace(x=1) %}{% macro fn(y=0) %}<{{ y }}{{ caller() if caller is defined }}>{% endmacro %}{% set jo = joiner() %}{% set cy = cycler(1,2) %}"


class Late(BaseException):
    pass


def late(*_):
    raise Late()


def render(template):
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        return {"template": template, "expected": env.from_string(template).render(**json.loads(json.dumps(VARS)))}
    except Late:
        return None
    except Exception:
        return {"template": template, "error": True}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main():
    cases, errors = [], 0
    for template in HAND:
        cases.append(render(template))
    maker = Maker(20240726)
    wanted = len(cases) + 500
    while len(cases) < wanted:
        c = render(maker.r.choice(["{{ %s }}", "{{ [%s]|tojson }}", "{%% for i in %s %%}<{{ i }}>{%% endfor %%}", "{{ [%s] }}"]) % maker.expr(maker.r.randrange(1, 4)))
        if c and len(c.get("expected", "")) < 400 and (not c.get("error") or maker.r.random() < .15):
            cases.append(c)
    wanted = len(cases) + 250
    while len(cases) < wanted:
        c = render(PRELUDE + "".join(maker.statement(maker.r.randrange(0, 4)) + maker.space() for _ in range(maker.r.randrange(1, 4))))
        if c and len(c["template"]) < 900 and len(c.get("expected", "")) < 600 and (not c.get("error") or maker.r.random() < .1):
            cases.append(c)
    cases = [c for c in cases if c and " at 0x" not in c.get("expected", "").lower()]
    out = {"reference": f"jinja2 {jinja2.__version__}, Python {sys.version.split()[0]}, made by python_cases.py", "vars": VARS, "cases": cases}
    json.dump(out, sys.stdout, ensure_ascii=True, indent=0)
    sys.stdout.write("\n")


main()
