// Package jinja renders the chat templates that model files carry: the Jinja2 language with the conventions of Hugging
// Face's apply_chat_template, so that a template gives the text that it gives in Python.
//
//	t, err := jinja.Parse("{% for m in messages %}[{{ m.role }}] {{ m.content|trim }}\n{% endfor %}")
//	...
//	messages, err := jinja.FromJSON([]byte(`[{"role": "user", "content": " hi "}]`))
//	...
//	prompt, err := t.Render(map[string]jinja.Value{"messages": messages}, jinja.Options{})
//
// Conventions: trim_blocks and lstrip_blocks are on, one newline at the end of the template is dropped, undefined values
// print as nothing, nothing is escaped for HTML. Besides the globals of Jinja2 (range, dict, namespace, cycler, joiner)
// there are raise_exception(message) and strftime_now(format), the tags break, continue and generation, and a tojson that
// is json.dumps with ensure_ascii=False.
//
// Differences from Python, all on purpose:
//
//   - The methods that change lists and mappings work, on the values of this rendering alone. Hugging Face forbids most.
//   - The tags include, import, from, extends, block and autoescape, the filters random, pprint, striptags,
//     urlize, wordwrap and xmlattr and the global lipsum are errors: a template stands for itself and gives the same text each time.
//   - Where a variable is assigned after a nested block has read it, that block sees the variable from outside. In Jinja2,
//     which compiles such a name to a local one, it may find it undefined.
//   - A generator prints without the address that Python adds.
//   - Lone surrogates do not exist; they become U+FFFD.
//
// A template is data from a stranger. It sees the values it is given and nothing else, and every rendering is bounded in
// steps, bytes, and depth (Limits); what goes over is an *Error of kind ErrLimit.
package jinja

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The kinds of errors, for errors.Is.
var (
	ErrSyntax  = errors.New("jinja: syntax error")
	ErrRuntime = errors.New("jinja: runtime error")
	ErrRaised  = errors.New("jinja: raised by the template") // by raise_exception
	ErrLimit   = errors.New("jinja: limit exceeded")
)

// Error is what Parse and Render return: the line of the template and what was wrong there.
type Error struct {
	Kind error // ErrSyntax, ErrRuntime, ErrRaised or ErrLimit
	Line int   // from 1; 0 where there is none
	Msg  string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Msg
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Msg)
}

func (e *Error) Unwrap() error { return e.Kind }

// Limits bound a rendering. Zero fields take the default.
type Limits struct {
	// Steps bounds the work: expressions evaluated, items visited, bytes scanned. Default 3 million; a conversation of a
	// thousand messages with fifty tools takes 100,000 with the longest templates known.
	Steps int64
	// Text bounds each single text, the rendering included, in bytes. Default 32 MiB.
	Text int
	// Bytes bounds all texts that a rendering makes on its way, in bytes. Default 128 MiB.
	Bytes int64
	// Depth bounds how deep expressions, calls and values nest while rendering. Default 2000.
	Depth int
	// Time bounds how long a rendering takes that is longer than any known: of more than 300,000 steps. Default 500 ms.
	Time time.Duration
}

// sureSteps is how many steps a rendering has whatever time they take, so that a busy machine refuses no conversation.
const sureSteps = 300_000

func (l Limits) withDefaults() Limits {
	if l.Steps <= 0 {
		l.Steps = 3_000_000
	}
	if l.Text <= 0 {
		l.Text = 32 << 20
	}
	if l.Bytes <= 0 {
		l.Bytes = 128 << 20
	}
	if l.Depth <= 0 {
		l.Depth = 2000
	}
	if l.Time <= 0 {
		l.Time = 500 * time.Millisecond
	}
	return l
}

// maxSource bounds the source of a template; the longest known ones have 20 KB.
const maxSource = 1 << 20

// Options are the settings of one rendering.
type Options struct {
	// Now is the clock of strftime_now; time.Now by default.
	Now    func() time.Time
	Limits Limits
	// Context stops the rendering, with its error, within milliseconds; nil never does.
	Context context.Context
}

// Template is a parsed template. It may be rendered from several goroutines at once.
type Template struct{ body []stmt }

// Parse reads the source of a template.
func Parse(source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, &Error{Kind: ErrLimit, Msg: fmt.Sprintf("a template of %d bytes is over the limit of %d", len(source), maxSource)}
	}
	in := newInterp(Options{})
	t := &Template{}
	if err := in.protect(func() { t.body = parse(validUTF8(source)) }); err != nil {
		return nil, err
	}
	return t, nil
}

// Render runs the template with the given variables. The template may change lists and mappings among them: pass a Clone
// of what must stay. Which parts of the text came from marked strings, its spans tell.
func (t *Template) Render(vars map[string]Value, opts Options) (Str, error) {
	in := newInterp(opts)
	var out Str
	err := in.protect(func() {
		in.checkContext()
		out = in.render(t.body, vars)
	})
	return out, err
}

// interp is the state of one rendering.
type interp struct {
	limits Limits
	steps  int64 // left
	unseen int64 // steps since the context and the clock were looked at
	start  time.Time
	bytes  int64 // left
	depth  int
	line   int // of what is being evaluated, for errors
	out    *textBuilder
	block  Str // the text that the filters of a filter or set block start from
	now    func() time.Time
	ctx    context.Context // or nil
}

func newInterp(opts Options) *interp {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	l := opts.Limits.withDefaults()
	return &interp{limits: l, steps: l.Steps, bytes: l.Bytes, now: opts.Now, ctx: opts.Context, start: time.Now()}
}

// protect runs f and returns the error it fails with. The interpreter reports errors by panicking with an *Error, as
// they may arise in the middle of any expression. All other panics would be bugs; since templates come from strangers
// they too end as errors rather than end the program.
func (in *interp) protect(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *Error:
			err = r
		default:
			err = &Error{Kind: ErrRuntime, Line: in.line, Msg: fmt.Sprintf("internal error: %v", r)}
		}
	}()
	f()
	return nil
}

func (in *interp) fail(format string, args ...any) {
	panic(&Error{Kind: ErrRuntime, Line: in.line, Msg: shorten(fmt.Sprintf(format, args...))})
}

// shorten bounds a message that quotes values.
func shorten(msg string) string {
	const most = 1000
	if len(msg) <= most {
		return msg
	}
	return strings.ToValidUTF8(msg[:most], "") + "..."
}

func (in *interp) exceeded(format string, args ...any) {
	panic(&Error{Kind: ErrLimit, Line: in.line, Msg: "the template exceeds a limit: " + fmt.Sprintf(format, args...)})
}

// step accounts for n units of work.
func (in *interp) step(n int64) {
	if in.steps -= n; in.steps < 0 {
		in.exceeded("%d steps", in.limits.Steps)
	}
	if in.unseen += n; in.unseen >= 1<<12 {
		in.unseen = 0
		in.checkContext()
		if in.limits.Steps-in.steps > sureSteps && time.Since(in.start) > in.limits.Time {
			in.exceeded("%v", in.limits.Time)
		}
	}
}

func (in *interp) checkContext() {
	if in.ctx == nil {
		return
	}
	if err := in.ctx.Err(); err != nil {
		panic(&Error{Kind: err, Line: in.line, Msg: "stopped: " + err.Error()})
	}
}

// charge accounts for n bytes of text made.
func (in *interp) charge(n int) {
	if in.bytes -= int64(n); in.bytes < 0 {
		in.exceeded("%d bytes of text in all", in.limits.Bytes)
	}
}

// enter and leave bracket one level of nesting.
func (in *interp) enter() {
	if in.depth++; in.depth > in.limits.Depth {
		in.exceeded("nested more than %d deep", in.limits.Depth)
	}
}

func (in *interp) leave() { in.depth-- }

// capture returns what f writes.
func (in *interp) capture(f func()) Str {
	outer := in.out
	in.out = &textBuilder{in: in}
	f()
	s := in.out.str()
	in.out = outer
	return s
}
