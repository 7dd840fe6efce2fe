package jinja

// expression parses a whole expression, with inline if.
func (p *parser) expression() expr {
	p.enter()
	defer p.leave()
	line := p.cur().line
	e := p.or()
	for p.skipName("if") {
		test := p.or()
		var no expr
		if p.skipName("else") {
			no = p.expression()
		}
		e = &condExpr{test: test, yes: e, no: no, line: line}
	}
	return e
}

func (p *parser) or() expr {
	e := p.and()
	for p.skipName("or") {
		e = &logicExpr{false, e, p.and()}
	}
	return e
}

func (p *parser) and() expr {
	e := p.not()
	for p.skipName("and") {
		e = &logicExpr{true, e, p.not()}
	}
	return e
}

func (p *parser) not() expr {
	if t := p.cur(); t.isName("not") {
		p.enter()
		defer p.leave()
		p.next()
		return &unaryExpr{"not", p.not(), t.line}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	line := p.cur().line
	e := p.sum()
	var rest []comparison
	for {
		t := p.cur()
		op := ""
		switch {
		case t.kind == tokOp:
			switch t.text {
			case "==", "!=", "<", "<=", ">", ">=":
				op = t.text
			}
		case t.isName("in"):
			op = "in"
		case t.isName("not") && p.look().isName("in"):
			p.next()
			op = "not in"
		}
		if op == "" {
			break
		}
		p.next()
		rest = append(rest, comparison{op, p.sum()})
	}
	if rest == nil {
		return e
	}
	return &compareExpr{e, rest, line}
}

func (p *parser) sum() expr {
	e := p.concat()
	for t := p.cur(); t.is("+") || t.is("-"); t = p.cur() {
		p.next()
		e = &binaryExpr{t.text, e, p.concat(), t.line}
	}
	return e
}

func (p *parser) concat() expr {
	line := p.cur().line
	e := p.product()
	if !p.cur().is("~") {
		return e
	}
	c := &concatExpr{parts: []expr{e}, line: line}
	for p.skipOp("~") {
		c.parts = append(c.parts, p.product())
	}
	return c
}

func (p *parser) product() expr {
	e := p.pow()
	for t := p.cur(); t.is("*") || t.is("/") || t.is("//") || t.is("%"); t = p.cur() {
		p.next()
		e = &binaryExpr{t.text, e, p.pow(), t.line}
	}
	return e
}

// pow associates to the left when parsed and, as in the Python that Jinja2 compiles to, keeps that: (2 ** 3) ** 2.
func (p *parser) pow() expr {
	e := p.unary(true)
	for t := p.cur(); t.is("**"); t = p.cur() {
		p.next()
		e = &binaryExpr{"**", e, p.unary(true), t.line}
	}
	return e
}

func (p *parser) unary(withFilter bool) expr {
	t := p.cur()
	var e expr
	if t.is("-") || t.is("+") {
		p.enter()
		defer p.leave()
		p.next()
		e = &unaryExpr{t.text, p.unary(false), t.line}
	} else {
		e = p.primary()
	}
	e = p.postfix(e)
	if withFilter {
		e = p.filterExpr(e)
	}
	return e
}

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &constExpr{true}
		case "false", "False":
			return &constExpr{false}
		case "none", "None":
			return &constExpr{nil}
		}
		p.noteName(t.text)
		return &nameExpr{t.text, t.line}
	case tokString:
		s := t.text
		for p.cur().kind == tokString {
			s += p.next().text
		}
		return &constExpr{NewStr(s)}
	case tokNumber:
		return &constExpr{t.value}
	case tokOp:
		p.enter()
		defer p.leave()
		switch t.text {
		case "(":
			e := p.tuple(true, nil, true)
			p.expectOp(")")
			return e
		case "[":
			return &listExpr{p.items("]")}
		case "{":
			return p.dict(t)
		}
	}
	p.fail(t.line, "unexpected '%s'", t.describe())
	return nil
}

func (p *parser) items(end string) []expr {
	var items []expr
	for !p.cur().is(end) {
		if len(items) > 0 {
			p.expectOp(",")
		}
		if p.cur().is(end) {
			break
		}
		items = append(items, p.expression())
	}
	p.expectOp(end)
	return items
}

func (p *parser) dict(t token) expr {
	d := &dictExpr{line: t.line}
	for !p.cur().is("}") {
		if len(d.keys) > 0 {
			p.expectOp(",")
		}
		if p.cur().is("}") {
			break
		}
		d.keys = append(d.keys, p.expression())
		p.expectOp(":")
		d.values = append(d.values, p.expression())
	}
	p.expectOp("}")
	return d
}

// tuple parses one expression, or several with commas between them as a tuple. The names in ends close it, as brackets
// and the end of the tag do; inParens says whether nothing at all is a tuple too.
func (p *parser) tuple(withCond bool, ends []string, inParens bool) expr {
	var items []expr
	isTuple := false
	for {
		if len(items) > 0 {
			p.expectOp(",")
		}
		if p.tupleEnd(ends) {
			break
		}
		if withCond {
			items = append(items, p.expression())
		} else {
			p.enter()
			items = append(items, p.or())
			p.leave()
		}
		if !p.cur().is(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) > 0 {
			return items[0]
		}
		if !inParens {
			p.fail(p.cur().line, "Expected an expression, got '%s'", p.cur().describe())
		}
	}
	return &tupleExpr{items}
}

func (p *parser) tupleEnd(ends []string) bool {
	t := p.cur()
	if t.kind == tokVarEnd || t.kind == tokBlkEnd || t.is(")") {
		return true
	}
	for _, end := range ends {
		if t.isName(end) {
			return true
		}
	}
	return false
}

func (p *parser) postfix(e expr) expr {
	for {
		switch t := p.cur(); {
		case t.is("."):
			p.next()
			name := p.next()
			switch {
			case name.kind == tokName:
				e = &attrExpr{e, name.text, t.line}
			case name.kind == tokNumber && isInteger(name.value):
				e = &itemExpr{e, &constExpr{name.value}, t.line}
			default:
				p.fail(name.line, "expected name or number, got '%s'", name.describe())
			}
		case t.is("["):
			e = p.subscript(e)
		case t.is("("):
			e = &callExpr{e, p.callArgs(), t.line}
		default:
			return e
		}
	}
}

func isInteger(v Value) bool {
	_, isFloat := v.(float64)
	return !isFloat
}

func (p *parser) subscript(obj expr) expr {
	p.enter()
	defer p.leave()
	line := p.next().line
	var keys []expr
	var cut *sliceExpr
	for !p.cur().is("]") {
		if len(keys) > 0 {
			p.expectOp(",")
		}
		var start expr
		if !p.cur().is(":") {
			start = p.expression()
		}
		if !p.skipOp(":") {
			keys = append(keys, start)
			continue
		}
		cut = &sliceExpr{obj: obj, start: start, line: line}
		if t := p.cur(); !t.is(":") && !t.is("]") && !t.is(",") {
			cut.stop = p.expression()
		}
		if p.skipOp(":") {
			if t := p.cur(); !t.is("]") && !t.is(",") {
				cut.step = p.expression()
			}
		}
		keys = append(keys, cut)
	}
	p.expectOp("]")
	if cut != nil {
		if len(keys) > 1 {
			p.fail(line, "a slice cannot be combined with other subscripts")
		}
		return cut
	}
	if len(keys) == 1 {
		return &itemExpr{obj, keys[0], line}
	}
	return &itemExpr{obj, &tupleExpr{keys}, line}
}

func (p *parser) callArgs() args {
	p.enter()
	defer p.leave()
	line := p.expectOp("(").line
	var a args
	ensure := func(ok bool) {
		if !ok {
			p.fail(line, "invalid syntax for function call expression")
		}
	}
	for first := true; !p.cur().is(")"); first = false {
		if !first {
			p.expectOp(",")
			if p.cur().is(")") {
				break
			}
		}
		switch t := p.cur(); {
		case t.is("*"):
			ensure(a.star == nil && a.dict == nil)
			p.next()
			a.star = p.expression()
		case t.is("**"):
			ensure(a.dict == nil)
			p.next()
			a.dict = p.expression()
		case t.kind == tokName && p.look().is("="):
			ensure(a.dict == nil)
			p.next()
			p.next()
			for _, k := range a.kw {
				if k.name == t.text {
					p.fail(t.line, "keyword argument repeated: %s", t.text)
				}
			}
			a.kw = append(a.kw, kwArg{t.text, p.expression()})
		default:
			ensure(a.star == nil && a.dict == nil && len(a.kw) == 0)
			a.pos = append(a.pos, p.expression())
		}
	}
	p.expectOp(")")
	return a
}

// filterExpr parses the filters, tests and calls that follow an expression.
func (p *parser) filterExpr(e expr) expr {
	for {
		switch t := p.cur(); {
		case t.is("|"):
			e = p.filters(e, false)
		case t.isName("is"):
			e = p.test(e)
		case t.is("("):
			e = &callExpr{e, p.callArgs(), t.line}
		default:
			return e
		}
	}
}

// filters parses |name(args)|... ; startInline says that the first name has no bar before it.
func (p *parser) filters(e expr, startInline bool) expr {
	for startInline || p.cur().is("|") {
		if !startInline {
			p.next()
		}
		startInline = false
		t := p.expectKind(tokName)
		f := &filterExpr{node: e, name: p.dotted(t.text), line: t.line}
		if p.cur().is("(") {
			f.args = p.callArgs()
		}
		e = f
	}
	return e
}

func (p *parser) dotted(name string) string {
	for p.skipOp(".") {
		name += "." + p.expectKind(tokName).text
	}
	return name
}

func (p *parser) test(e expr) expr {
	line := p.next().line
	negated := p.skipName("not")
	test := &testExpr{node: e, name: p.dotted(p.expectKind(tokName).text), line: line}
	switch t := p.cur(); {
	case t.is("("):
		test.args = p.callArgs()
	case t.kind == tokName && t.text != "else" && t.text != "or" && t.text != "and",
		t.kind == tokString, t.kind == tokNumber, t.is("["), t.is("{"):
		if t.isName("is") {
			p.fail(t.line, "You cannot chain multiple tests with is")
		}
		test.args = args{pos: []expr{p.postfix(p.primary())}}
	}
	if negated {
		return &unaryExpr{"not", test, line}
	}
	return test
}
