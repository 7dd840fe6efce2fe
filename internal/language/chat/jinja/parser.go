package jinja

import (
	"fmt"
	"strings"
)

// maxNesting bounds how deep tags and brackets may nest in a template.
const maxNesting = 200

type parser struct {
	toks   []token
	pos    int
	depth  int
	loops  int          // loops around the current statement inside its macro
	macros []*macroNode // macros around it
	ends   [][]string   // the end tags that the open blocks wait for
	tags   []token      // the open blocks
}

// parse builds the statements of a template, or panics with an *Error.
func parse(source string) []stmt {
	p := &parser{toks: lex(source)}
	return p.statements(nil)
}

func (p *parser) cur() token { return p.toks[p.pos] }

func (p *parser) look() token {
	if p.pos+1 < len(p.toks) {
		return p.toks[p.pos+1]
	}
	return p.toks[p.pos]
}

func (p *parser) next() token {
	t := p.toks[p.pos]
	if p.pos < len(p.toks)-1 {
		p.pos++
	}
	return t
}

func (p *parser) fail(line int, format string, a ...any) {
	panic(&Error{Kind: ErrSyntax, Line: line, Msg: fmt.Sprintf(format, a...)})
}

func (p *parser) enter() {
	if p.depth++; p.depth > maxNesting {
		p.fail(p.cur().line, "tags or brackets nested more than %d deep", maxNesting)
	}
}

func (p *parser) leave() { p.depth-- }

func (p *parser) skipOp(op string) bool {
	if p.cur().is(op) {
		p.next()
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.cur().isName(name) {
		p.next()
		return true
	}
	return false
}

func (p *parser) expected(what string) {
	if p.cur().kind == tokEOF {
		p.fail(p.cur().line, "unexpected end of template, expected '%s'", what)
	}
	p.fail(p.cur().line, "expected token '%s', got '%s'", what, p.cur().describe())
}

func (p *parser) expectOp(op string) token {
	if !p.cur().is(op) {
		p.expected(op)
	}
	return p.next()
}

func (p *parser) expectKind(kind tokenKind) token {
	if p.cur().kind != kind {
		p.expected(token{kind: kind, text: "name"}.describe())
	}
	return p.next()
}

// statements parses up to one of the end tags, whose name stays the current token, or up to the end of the template.
func (p *parser) statements(ends []string) []stmt {
	p.enter()
	defer p.leave()
	if ends != nil {
		p.skipOp(":")
		p.expectKind(tokBlkEnd)
		p.ends = append(p.ends, ends)
		defer func() { p.ends = p.ends[:len(p.ends)-1] }()
	}
	var body []stmt
	for {
		t := p.next()
		switch t.kind {
		case tokEOF:
			if ends != nil {
				p.unclosed(t)
			}
			return body
		case tokData:
			body = append(body, textStmt{NewStr(t.text)})
		case tokVarBegin:
			body = append(body, outputStmt{p.tuple(true, nil, false), t.line})
			p.expectKind(tokVarEnd)
		case tokBlkBegin:
			for _, end := range ends {
				if p.cur().isName(end) {
					return body
				}
			}
			body = append(body, p.statement()...)
			p.expectKind(tokBlkEnd)
		default:
			p.fail(t.line, "unexpected '%s'", t.describe())
		}
	}
}

func (p *parser) unclosed(t token) {
	tag := p.tags[len(p.tags)-1]
	p.fail(t.line, "Unexpected end of template. Jinja was looking for the following tags: '%s'. The innermost block that needs to be closed is '%s' of line %d.",
		strings.Join(p.ends[len(p.ends)-1], "' or '"), tag.text, tag.line)
}

// body parses the inside of a block up to its end tag, which it drops.
func (p *parser) body(end string) []stmt {
	body := p.statements([]string{end})
	p.next()
	return body
}

func (p *parser) statement() []stmt {
	t := p.cur()
	if t.kind != tokName {
		p.fail(t.line, "tag name expected")
	}
	p.tags = append(p.tags, t)
	defer func() { p.tags = p.tags[:len(p.tags)-1] }()
	switch t.text {
	case "for":
		return []stmt{p.forTag()}
	case "if":
		return []stmt{p.ifTag()}
	case "set":
		return []stmt{p.setTag()}
	case "macro":
		return []stmt{p.macroTag()}
	case "call":
		return []stmt{p.callTag()}
	case "filter":
		p.next()
		f := p.filters(nil, true)
		return []stmt{filterStmt{f.(*filterExpr), p.body("endfilter"), t.line}}
	case "with":
		return []stmt{p.withTag()}
	case "print":
		p.next()
		var out []stmt
		for p.cur().kind != tokBlkEnd {
			if len(out) > 0 {
				p.expectOp(",")
			}
			out = append(out, outputStmt{p.expression(), t.line})
		}
		return out
	case "generation": // Hugging Face marks the assistant's tokens with it
		p.next()
		loops := p.loops
		p.loops = 0
		body := p.body("endgeneration")
		p.loops = loops
		return []stmt{generationStmt{body}}
	case "break", "continue":
		p.next()
		if p.loops == 0 {
			p.fail(t.line, "'%s' outside of a loop", t.text)
		}
		if t.text == "break" {
			return []stmt{breakStmt{}}
		}
		return []stmt{continueStmt{}}
	case "include", "import", "from", "extends", "block", "autoescape":
		p.fail(t.line, "tag '%s' is not allowed: a chat template stands for itself", t.text)
	}
	msg := "Encountered unknown tag '" + t.text + "'."
	if len(p.ends) > 0 {
		msg += " Jinja was looking for the following tags: '" + strings.Join(p.ends[len(p.ends)-1], "' or '") + "'."
	}
	p.fail(t.line, "%s", msg)
	return nil
}

func (p *parser) forTag() stmt {
	t := p.next()
	f := forStmt{line: t.line}
	f.target = p.target(false, "in")
	checkLoopTarget(p, f.target)
	if !p.skipName("in") {
		p.expected("in")
	}
	f.iter = p.tuple(false, []string{"recursive"}, false)
	if p.skipName("if") {
		f.test = p.expression()
	}
	f.recursive = p.skipName("recursive")
	p.loops++
	f.body = p.statements([]string{"endfor", "else"})
	p.loops--
	if p.next().text == "else" {
		f.not = p.body("endfor")
	}
	return &f
}

func checkLoopTarget(p *parser, t target) {
	if t.name == "loop" {
		p.fail(t.line, "Can't assign to special loop variable in for-loop target")
	}
	for _, item := range t.items {
		checkLoopTarget(p, item)
	}
}

func (p *parser) ifTag() stmt {
	p.next()
	s := &ifStmt{test: p.tuple(false, nil, false)}
	first := s
	for {
		s.body = p.statements([]string{"elif", "else", "endif"})
		switch p.next().text {
		case "elif":
			nested := &ifStmt{test: p.tuple(false, nil, false)}
			s.not = []stmt{nested}
			s = nested
			continue
		case "else":
			s.not = p.body("endif")
		}
		return first
	}
}

func (p *parser) setTag() stmt {
	line := p.next().line
	to := p.target(true, "")
	if p.skipOp("=") {
		return setStmt{to, p.tuple(true, nil, false), line}
	}
	var f *filterExpr
	if p.cur().is("|") {
		f = p.filters(nil, false).(*filterExpr)
	}
	return setBlockStmt{to, f, p.body("endset"), line}
}

// target parses what an assignment writes to; withNamespace allows name.attr.
func (p *parser) target(withNamespace bool, end string) target {
	if withNamespace && p.look().is(".") {
		name := p.expectKind(tokName)
		p.next()
		attr := p.expectKind(tokName)
		return target{name: name.text, attr: attr.text, line: name.line}
	}
	var to target
	to.line = p.cur().line
	for {
		if len(to.items) > 0 {
			p.expectOp(",")
		}
		t := p.cur()
		if t.kind == tokVarEnd || t.kind == tokBlkEnd || t.is(")") || end != "" && t.isName(end) {
			break
		}
		to.items = append(to.items, p.targetItem())
		if p.cur().is(",") {
			to.tuple = true
		} else {
			break
		}
	}
	if len(to.items) == 0 {
		p.fail(p.cur().line, "Expected an expression, got '%s'", p.cur().describe())
	}
	if !to.tuple {
		return to.items[0]
	}
	return to
}

func (p *parser) targetItem() target {
	p.enter()
	defer p.leave()
	t := p.cur()
	switch {
	case t.is("("):
		p.next()
		to := p.target(false, "")
		p.expectOp(")")
		return to
	case t.kind == tokName:
		p.checkAssignable(t)
		p.next()
		return target{name: t.text, line: t.line}
	case t.kind == tokString, t.kind == tokNumber:
		p.fail(t.line, "can't assign to 'const'")
	}
	p.fail(t.line, "unexpected '%s'", t.describe())
	return target{}
}

func (p *parser) checkAssignable(t token) {
	switch t.text {
	case "true", "false", "none", "True", "False", "None":
		p.fail(t.line, "can't assign to 'const'")
	}
}

// signature parses the parameters of a macro or call block.
func (p *parser) signature(m *macroNode) {
	p.expectOp("(")
	for !p.cur().is(")") {
		if len(m.params) > 0 {
			p.expectOp(",")
		}
		name := p.expectKind(tokName)
		p.checkAssignable(name)
		for _, other := range m.params {
			if other == name.text {
				p.fail(name.line, "duplicate parameter '%s'", name.text)
			}
		}
		m.params = append(m.params, name.text)
		if p.skipOp("=") {
			m.defaults = append(m.defaults, p.expression())
		} else if len(m.defaults) > 0 {
			p.fail(name.line, "non-default argument follows default argument")
		}
	}
	p.next()
}

func (p *parser) macroBody(m *macroNode, end string) {
	loops := p.loops
	p.loops = 0
	p.macros = append(p.macros, m)
	m.body = p.body(end)
	p.macros = p.macros[:len(p.macros)-1]
	p.loops = loops
	for _, name := range m.params { // a parameter of that name is no special one
		switch name {
		case "caller":
			m.caller = false
		case "kwargs":
			m.kwargs = false
		case "varargs":
			m.varargs = false
		}
	}
}

// noteName records that the macros around use one of the special names.
func (p *parser) noteName(name string) {
	for _, m := range p.macros {
		switch name {
		case "caller":
			m.caller = true
		case "kwargs":
			m.kwargs = true
		case "varargs":
			m.varargs = true
		}
	}
}

func (p *parser) macroTag() stmt {
	m := &macroNode{line: p.next().line}
	name := p.expectKind(tokName)
	p.checkAssignable(name)
	m.name = name.text
	p.signature(m)
	p.macroBody(m, "endmacro")
	return macroStmt{m, m.line}
}

func (p *parser) callTag() stmt {
	m := &macroNode{line: p.next().line}
	if p.cur().is("(") {
		p.signature(m)
	}
	call, ok := p.expression().(*callExpr)
	if !ok {
		p.fail(m.line, "expected call")
	}
	p.macroBody(m, "endcall")
	return callStmt{m, call, m.line}
}

func (p *parser) withTag() stmt {
	w := withStmt{line: p.next().line}
	for p.cur().kind != tokBlkEnd {
		if len(w.targets) > 0 {
			p.expectOp(",")
		}
		t := p.targetItem()
		w.targets = append(w.targets, t)
		p.expectOp("=")
		w.values = append(w.values, p.expression())
	}
	w.body = p.body("endwith")
	return w
}
