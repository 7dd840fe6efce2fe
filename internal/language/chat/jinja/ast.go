package jinja

// Expressions. Each holds the line that its errors name.
type (
	expr interface{}

	constExpr struct{ value Value }
	nameExpr  struct {
		name string
		line int
	}
	tupleExpr struct{ items []expr }
	listExpr  struct{ items []expr }
	dictExpr  struct {
		keys, values []expr
		line         int
	}
	attrExpr struct {
		obj  expr
		name string
		line int
	}
	itemExpr struct {
		obj, key expr
		line     int
	}
	sliceExpr struct {
		obj               expr
		start, stop, step expr // nil where absent
		line              int
	}
	callExpr struct {
		fn   expr
		args args
		line int
	}
	filterExpr struct {
		node expr // nil in filter and set blocks: the text of the block
		name string
		args args
		line int
	}
	testExpr struct {
		node expr
		name string
		args args
		line int
	}
	unaryExpr struct {
		op   string // not, -, +
		node expr
		line int
	}
	binaryExpr struct {
		op   string
		a, b expr
		line int
	}
	logicExpr struct {
		and  bool
		a, b expr
	}
	concatExpr struct {
		parts []expr
		line  int
	}
	compareExpr struct {
		first expr
		rest  []comparison
		line  int
	}
	condExpr struct {
		test, yes, no expr // no may be nil
		line          int
	}
)

type comparison struct {
	op string // == != < <= > >= in, not in
	b  expr
}

// args are the arguments of a call, filter or test.
type args struct {
	pos  []expr
	kw   []kwArg
	star expr // *args
	dict expr // **kwargs
}

type kwArg struct {
	name  string
	value expr
}

// Statements.
type (
	stmt interface{}

	textStmt   struct{ value Str }
	outputStmt struct {
		node expr
		line int
	}
	ifStmt struct {
		test      expr
		body, not []stmt
	}
	forStmt struct {
		target    target
		iter      expr
		test      expr // nil where absent
		body, not []stmt
		recursive bool
		line      int
	}
	setStmt struct {
		target target
		value  expr
		line   int
	}
	setBlockStmt struct {
		target target
		filter *filterExpr // outermost; nil where absent
		body   []stmt
		line   int
	}
	macroStmt struct {
		macro *macroNode
		line  int
	}
	callStmt struct {
		block *macroNode // becomes caller
		call  *callExpr
		line  int
	}
	filterStmt struct {
		filter *filterExpr
		body   []stmt
		line   int
	}
	withStmt struct {
		targets []target
		values  []expr
		body    []stmt
		line    int
	}
	generationStmt struct{ body []stmt }
	breakStmt      struct{}
	continueStmt   struct{}
)

// target is what an assignment writes to: a name, an attribute of a namespace, or several targets.
type target struct {
	name  string
	attr  string // namespace attribute, with name
	items []target
	tuple bool
	line  int
}

// macroNode is the definition of a macro or of the block of a call.
type macroNode struct {
	name     string // "" for a call block
	params   []string
	defaults []expr // of the last parameters
	body     []stmt
	// which of the special names the body reads
	caller, kwargs, varargs bool
	line                    int
}
