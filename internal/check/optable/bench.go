package optable

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Result is one measured case.
type Result struct {
	Suite    string   `json:"suite"`            // "ops"
	Case     string   `json:"case"`             // "RMSNorm/square_4096x4096_F32"
	Kernel   string   `json:"kernel,omitempty"` // "rms_norm_registers", where the device says
	Ours     float64  `json:"ours"`             // median time of one call
	Peer     *float64 `json:"peer,omitempty"`   // the same by another library, where the caller has measured it beside
	Unit     string   `json:"unit"`             // "us"
	Ratio    *float64 `json:"ratio,omitempty"`  // peer / ours
	Roofline float64  `json:"roofline"`         // percent of what the device's bandwidth and matrix rate allow
	Bytes    float64  `json:"-"`                // that the operands and results hold
	Error    *float64 `json:"error,omitempty"`  // greatest relative error, where the reference can be computed
	Reason   string   `json:"reason,omitempty"` // why the case was not measured
	Device   string   `json:"device"`
	Command  string   `json:"command"`
}

// Ceilings are what a device reaches at best: the roofline that results are compared with.
type Ceilings struct {
	Copy   float64                  // bytes read and written a second, by a copy of memory far larger than the caches
	Matrix map[tensor.DType]float64 // floating-point operations a second of the best large product of the type
}

// Choice says what Bench measures.
type Choice struct {
	Match string  // a regular expression of names (Op/case)
	Dims  []int   // of one case after the other, for each type and flags, in place of the cases' own; nil for their own
	Check bool    // against the reference also where that takes long; an error is Bench's too
	RTol  float64 // the relative RMS error that Check allows, in place of the operation's own tolerance; 0 for that
}

// cases returns the cases of an operation that are chosen. Operands of given dimensions fit into so many bytes.
func (o *Choice) cases(op *Op, re *regexp.Regexp, memory int64) (all []Case, err error) {
	seen := map[string]bool{}
	for _, c := range op.Cases {
		if !c.Bench || !re.MatchString(op.Name+"/"+c.Name()) {
			continue
		}
		c.Large = c.Large && !o.Check
		if o.Dims == nil {
			all = append(all, c)
			continue
		}
		if len(o.Dims) == 0 || len(o.Dims)%len(c.Dims) != 0 {
			return nil, fmt.Errorf("ops: %s has %d dimensions, as in %s, not the %d of %v", op.Name, len(c.Dims), c.Name(), len(o.Dims), o.Dims)
		}
		for dims := range slices.Chunk(o.Dims, len(c.Dims)) {
			c.Label, c.Dims = "given", dims
			if seen[c.Name()] {
				continue
			}
			seen[c.Name()] = true
			if why := op.unmade(c, memory); why != nil {
				return nil, fmt.Errorf("ops: %s cannot have the dimensions %v in %.1f GB of memory: %v", op.Name, dims, float64(memory)/1e9, why)
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// command returns what measures a case alone; with given dimensions also the same of other cases that are chosen.
func (o *Choice) command(name string, d *gpu.Device) string {
	if o.Dims == nil {
		return fmt.Sprintf("vibrant bench --ops '^%s$' --device %s", name, d)
	}
	dims := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(o.Dims)), ","), "[]")
	return fmt.Sprintf("vibrant bench --ops '%s' --dims %s --device %s", o.Match, dims, d)
}

// unmade returns why operands of a case cannot be made, none of them larger than so many bytes; nil where they can.
func (op *Op) unmade(c Case, memory int64) (why any) {
	defer func() { why = recover() }()
	g := NewGenerator(1)
	g.fast = true
	g.most = int(memory / 4)
	op.Inputs(g, c)
	return nil
}

// checked returns the operation with the tolerance that is asked for.
func (o *Choice) checked(op *Op) *Op {
	if o.RTol == 0 {
		return op
	}
	strict := *op
	strict.Tolerance = func(Case) Tolerance { return Tolerance{RMS: o.RTol, Why: "asked for"} }
	return &strict
}

// Bench measures the benchmark cases that are chosen, on a device, and reports each as it is done. Operations that the
// device lacks are reported with the reason.
//
// Each measurement is the median over launches of a graph that runs the operation on one set of operands after the
// other, which together are several times as large as the caches.
func Bench(ctx context.Context, d *gpu.Device, choice Choice, report func(Result)) error {
	re, err := regexp.Compile(choice.Match)
	if err != nil {
		return fmt.Errorf("ops: pattern %q: %w", choice.Match, err)
	}
	memory, _, err := gpu.CPU().Memory()
	if err != nil {
		return err
	}
	var failed error
	defer tensor.SetStrict(tensor.Strict())
	tensor.SetStrict(true)
	var ceilings *Ceilings
	found := false
	for _, op := range Table() {
		cases, err := choice.cases(op, re, memory)
		if err != nil {
			return err
		}
		for i, c := range cases {
			name := op.Name + "/" + c.Name()
			found = true
			if err := ctx.Err(); err != nil {
				return err
			}
			if ceilings == nil {
				if ceilings, err = measureCeilings(ctx, d); err != nil {
					return err
				}
			}
			r := Result{Suite: "ops", Case: name, Unit: "us", Device: d.Info().Name, Command: choice.command(name, d)}
			seconds, err := op.measure(ctx, d, c)
			r.Kernel = d.Stream().LastKernel()
			if err == nil && !c.Large {
				var e float64
				if e, err = choice.checked(op).Check(d, c, uint64(i)); err == nil {
					r.Error = &e
				} else if choice.Check && failed == nil {
					failed = fmt.Errorf("ops: %s: %w", name, err)
				}
			}
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case d.Err() != nil:
				return d.Err()
			case err != nil:
				r.Reason = err.Error()
			default:
				r.Ours = seconds * 1e6
				r.Bytes = float64(op.bytes(c))
				r.Roofline = 100 * op.floor(c, r.Bytes, ceilings) / seconds
			}
			report(r)
		}
	}
	if !found {
		return fmt.Errorf("ops: no benchmark case matches %q", choice.Match)
	}
	return failed
}

// floor is the time that the device needs at least, in seconds.
func (op *Op) floor(c Case, bytes float64, ceilings *Ceilings) float64 {
	floor := bytes / ceilings.Copy
	if op.FLOPs != nil {
		// Operands that are quantized or rounded may be multiplied at the rate of the fastest type.
		rate := ceilings.Matrix[c.Type]
		for t, r := range ceilings.Matrix {
			if c.Type != tensor.F32 || t == tensor.F32 {
				rate = math.Max(rate, r)
			}
		}
		if rate > 0 {
			floor = math.Max(floor, float64(op.FLOPs(c))/rate)
		}
	}
	return floor
}

// bytes is what the operation must read and write.
func (op *Op) bytes(c Case) int64 {
	if op.Bytes != nil {
		return op.Bytes(c)
	}
	var n int64
	for i, s := range op.Outputs(c) {
		if n += s.Type.Bytes(s.Elements()); i < op.InOut {
			n += s.Type.Bytes(s.Elements())
		}
	}
	g := NewGenerator(0)
	g.fast = true
	for i, a := range op.Inputs(g, c) {
		if a != nil && i >= op.InOut {
			n += int64(len(a.Raw))
		}
	}
	return n
}

// Operand sets rotate over this many times the last-level cache, so that each launch finds its data in memory.
const cachesBeyond = 4

// unknownCache stands in for a cache size that a device does not tell.
const unknownCache = 32 << 20

// measure returns the median time of one call in seconds.
func (op *Op) measure(ctx context.Context, d *gpu.Device, c Case) (seconds float64, err error) {
	g := NewGenerator(1)
	g.fast = true
	var made []*tensor.Tensor
	defer func() {
		for _, t := range made {
			t.Free()
		}
		d.Pool().Trim()
	}()
	type set struct{ in, out []*tensor.Tensor }
	var sets []set
	var size int64
	inputs := op.Inputs(g, c) // of all sets: elements take long to draw, and copies of them do not
	add := func() error {
		var s set
		for i, a := range inputs {
			if a == nil {
				s.in = append(s.in, nil)
				continue
			}
			t, err := tensor.New(d.Stream(), a.Type, a.Shape...)
			if err != nil {
				return err
			}
			made = append(made, t)
			if len(sets) == 0 {
				err = t.WriteBytes(a.Raw)
			} else if first := sets[0].in[i]; first.Packed() {
				err = t.WriteBytes(a.Raw)
			} else {
				err = tensor.Try(func() { tensor.CopyInto(t, first) })
			}
			if err == nil && slices.Contains(op.Packs, i) {
				err = t.Pack()
			}
			if err != nil {
				return err
			}
			s.in = append(s.in, t)
			size += t.Bytes()
		}
		for i, o := range op.Outputs(c) {
			if i < op.InOut {
				s.out = append(s.out, s.in[i])
				continue
			}
			t, err := tensor.New(d.Stream(), o.Type, o.Shape...)
			if err != nil {
				return err
			}
			made = append(made, t)
			s.out = append(s.out, t)
			size += t.Bytes()
		}
		sets = append(sets, s)
		return nil
	}
	cache := d.Info().L2Bytes
	if cache == 0 {
		cache = unknownCache
	}
	run := func(n int) func() error {
		return func() error {
			return tensor.Try(func() {
				for i := range n {
					op.Run(sets[i%len(sets)].out, sets[i%len(sets)].in, c)
				}
			})
		}
	}
	if err := add(); err != nil {
		return 0, err
	}
	if err := run(1)(); err != nil { // warms up
		return 0, err
	}
	once, err := timed(d, run(1))
	if err != nil {
		return 0, err
	}
	calls := min(max(1, int(1e-3/once)), 1024) // a graph holds about a millisecond of them
	for size < cachesBeyond*cache && len(sets) < calls {
		if err := add(); err != nil {
			return 0, err
		}
	}
	calls = (calls + len(sets) - 1) / len(sets) * len(sets) // whole rounds over the sets
	graph, err := d.Stream().Capture(run(calls))
	if err != nil {
		return 0, err
	}
	defer graph.Close()
	var times []float64
	const most, budget = 50, 0.3 // launches, seconds
	for total := 0.0; len(times) < 3 || len(times) < most && total < budget; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		t, err := timed(d, graph.Launch)
		if err != nil {
			return 0, err
		}
		if total == 0 { // the first launch uploads the graph
			if t, err = timed(d, graph.Launch); err != nil {
				return 0, err
			}
		}
		total += t
		times = append(times, t/float64(calls))
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// timed returns how long the device takes for what f enqueues.
func timed(d *gpu.Device, f func() error) (seconds float64, err error) {
	start, end := d.NewEvent(), d.NewEvent()
	defer start.Close()
	defer end.Close()
	s := d.Stream()
	if err := s.Record(start); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	if err := s.Record(end); err != nil {
		return 0, err
	}
	if err := end.Synchronize(); err != nil {
		return 0, err
	}
	t, err := end.Since(start)
	return max(t, time.Nanosecond).Seconds(), err
}

// measureCeilings measures the roofline with the device's own copy and products.
func measureCeilings(ctx context.Context, d *gpu.Device) (*Ceilings, error) {
	n, edge := 256<<20/4, 8192
	if d.Info().HostMemory {
		n, edge = 64<<20/4, 256
	}
	ceilings := &Ceilings{Matrix: map[tensor.DType]float64{}}
	for _, op := range Table() {
		switch op.Name {
		case "Copy":
			t, err := op.measure(ctx, d, Case{Type: tensor.F32, Dims: []int{n}})
			if err != nil {
				return nil, fmt.Errorf("ops: copy bandwidth: %w", err)
			}
			ceilings.Copy = float64(8*n) / t
		case "MatMul":
			for _, dtype := range floats {
				c := Case{Type: dtype, Dims: []int{edge, edge, edge}}
				if dtype == tensor.F32 && !d.Info().HostMemory {
					c.Dims = []int{edge / 2, edge / 2, edge / 2}
				}
				if t, err := op.measure(ctx, d, c); err == nil {
					ceilings.Matrix[dtype] = float64(op.FLOPs(c)) / t
				} else if ctx.Err() != nil || d.Err() != nil {
					return nil, err
				}
			}
		}
	}
	return ceilings, nil
}
