package tensor_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/cuda"
	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/optable"
	"github.com/vibrant-ml/vibrant/tensor"
)

// launched is what processes of the emulator noted of kernels: by family, which is a kernel's name without types of 16 bits and formats
// of weights, whether one has code for 9.0, was launched, and was launched on 9.0.
type launched struct{ all, full, taken, onHopper map[string]bool }

// notCalled are families that no call of the test reaches, and why. Each pattern has one at least.
var notCalled = map[string]string{
	`^(all_reduce|all_gather|n1_sum)`: "sums over several GPUs, whose tests launch each",
	`^probe_kernel$`:                  "tells what the library was compiled for",

	`^matmul_simt_kernel<float, .* on 9.0$`: "products of more tiles than matmul_f32 counts: no GPU holds them",
	// What 500,000 draws did not reach. Kernels of 9.0's own take most calls of those that end in it.
	`^fused_update_tiles<(half, half, [24], [124]|half, half, 1, 4|float, float, 2, 2)> on 9.0$|^fused_update_cluster_kernel<float, float, 32, 64>$`: "rows of few ranks",

	`^fused_update_cluster_kernel<half, half, 16, 64>$`:                                                       "few rows of many ranks on 10.0: Hopper has a kernel of its own",
	`^attention_decode_kernel<float, half, 128, [12], 3, true, true>( on 9.0)?$|^add_attention_parts_kernel<`: "variants of attention",
	`^f32_tiles_kernel on 9.0$`: "attention of F32 beyond its heads",
}

// beyondTheTable holds calls that reach kernels which the cases of the table do not: a line each, of an operation, a type, dimensions,
// flags, and the number from which offsets and gaps of operands are drawn.
const beyondTheTable = "testdata/launches.txt"

// TestEveryKernelIsTakenByACall launches kernels on emulated GPUs that note their names and run none, for the cases of the table of
// operations and the calls of a file. A kernel that none of them takes costs compile time for nothing. What code for Hopper leaves out
// must not be taken there. VIBRANT_DRAWS=200000 looks for calls that take the kernels left, and adds them to the file. The emulator reads
// its variables once, hence a process a GPU.
func TestEveryKernelIsTakenByACall(t *testing.T) {
	d, err := gpu.OpenBackend(cuda.Backend(), 0)
	if err != nil || d.Info().Name != "emulated" {
		t.Skip("only an emulated GPU notes the kernels that it launches")
	}
	defer d.Close()
	if notes := os.Getenv("EMULATOR_LAUNCHES"); notes != "" {
		launchCalls(t, d, notes)
		return
	}
	found := launched{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	var drawn []string
	for _, g := range []struct{ capability, multiprocessors int }{{90, 132}, {90, 16}, {80, 108}, {86, 84}, {75, 68}} {
		notes := filepath.Join(t.TempDir(), "launches")
		c := exec.Command(os.Args[0], "-test.run=^TestEveryKernelIsTakenByACall$")
		c.Env = append(os.Environ(), "EMULATOR_LAUNCHES="+notes, fmt.Sprint("EMULATOR_CAPABILITY=", g.capability), "EMULATOR_MEMORY_MIB=8000000",
			fmt.Sprint("EMULATOR_MULTIPROCESSORS=", g.multiprocessors))
		said, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("on %d: %v\n%s", g.capability, err, said)
		}
		text, err := os.ReadFile(notes)
		if err != nil {
			t.Fatal(err)
		}
		drawn = append(drawn, found.wanted(string(said), g.capability == 90)...)
		found.add(t, string(text), g.capability == 90)
	}
	if len(drawn) > 0 {
		old, err := os.ReadFile(beyondTheTable)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		all := slices.Concat(strings.Split(strings.TrimSuffix(string(old), "\n"), "\n"), drawn)
		slices.Sort(all)
		if err := os.WriteFile(beyondTheTable, []byte(strings.TrimPrefix(strings.Join(slices.Compact(all), "\n"), "\n")+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	excuses := map[string]bool{}
	for _, family := range found.left() {
		excused := false
		for pattern := range notCalled {
			if regexp.MustCompile(pattern).MatchString(family) {
				excused, excuses[pattern] = true, true
			}
		}
		if !excused {
			t.Errorf("no call takes %s: add one by VIBRANT_DRAWS=200000, or leave the kernel out", family)
		}
	}
	for pattern, reason := range notCalled {
		if !excuses[pattern] {
			t.Errorf("calls take all of %s (%s): no excuse is needed", pattern, reason)
		}
	}
	t.Logf("%d families of kernels; code for 9.0 has %d; %d calls were drawn", len(found.all), len(found.full), len(drawn))
}

// wanted returns the calls that a process drew, of those that reach a family which none before did.
func (l launched) wanted(said string, hopper bool) (calls []string) {
	for line := range strings.Lines(said) {
		families, call, ok := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "drawn "), ": ")
		if !ok || !strings.HasPrefix(line, "drawn ") {
			continue
		}
		wanted := false
		for _, family := range strings.Split(families, "; ") {
			wanted = wanted || !l.taken[family] || hopper && !l.onHopper[family]
			l.taken[family] = true
			l.onHopper[family] = l.onHopper[family] || hopper
		}
		if wanted {
			calls = append(calls, call)
		}
	}
	return calls
}

// left returns what no call has taken: families, and those with " on 9.0" after the name that code for 9.0 has and no call takes there.
func (l launched) left() (all []string) {
	for family := range l.all {
		switch {
		case !l.taken[family]:
			all = append(all, family)
		case l.full[family] && !l.onHopper[family]:
			all = append(all, family+" on 9.0")
		}
	}
	slices.Sort(all)
	return all
}

// add reads lines such as "launched, mangled name, name" with tabs between.
func (l launched) add(t *testing.T, notes string, hopper bool) {
	empty := map[string]bool{}
	for line := range strings.Lines(notes) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		family := familyOf(fields[len(fields)-1])
		switch what, kernel := fields[0], fields[1]; {
		case what == "launched":
			l.taken[family] = true
			l.onHopper[family] = l.onHopper[family] || hopper
			if hopper && empty[kernel] {
				t.Errorf("a call on 9.0 takes %s, which its code leaves out", fields[2])
			}
		default:
			l.all[family] = true
			empty[kernel] = what == "empty"
			if hopper && what == "full" {
				l.full[family] = true
			}
		}
	}
}

var (
	plainNames = strings.NewReplacer("void ", "", "vb::", "", "(anonymous namespace)::", "", "__half", "half", "bf16", "half")
	formats    = regexp.MustCompile(`vb_block_\w+`)
)

func familyOf(kernel string) string {
	name := formats.ReplaceAllString(plainNames.Replace(kernel), "W")
	for depth, i := 0, 0; i < len(name); i++ { // without parameters
		switch name[i] {
		case '<':
			depth++
		case '>':
			depth--
		case '(':
			if depth == 0 {
				return name[:i]
			}
		}
	}
	return name
}

// launchCalls launches the kernels of the table's cases, of the calls of the file, and of VIBRANT_DRAWS variations of these, which are
// printed where they reach a family that nothing before did. A call that launched a kernel for the first time is varied in turn.
func launchCalls(t *testing.T, d *gpu.Device, path string) {
	strictly(t)
	launchConstants(t, d)
	notes, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer notes.Close()
	seen := map[string]bool{}
	news := func() (kernels int, families []string) {
		text, err := io.ReadAll(notes)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Split(strings.TrimSpace(line), "\t")
			if fields[0] != "launched" {
				continue
			}
			kernels++
			if family := familyOf(fields[2]); !seen[family] {
				seen[family] = true
				families = append(families, family)
			}
		}
		return kernels, families
	}
	type source struct {
		op *optable.Op
		c  optable.Case
	}
	var sources []source
	byName := map[string]*optable.Op{}
	for _, op := range optable.Table() {
		byName[op.Name] = op
		for i, c := range op.Cases {
			op.Launch(d, c, rand.New(rand.NewPCG(uint64(i), 0)))
			sources = append(sources, source{op, c})
		}
	}
	calls, err := os.ReadFile(beyondTheTable)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(calls)) {
		op, c, seed := readCall(t, byName, strings.TrimSuffix(line, "\n"))
		op.Launch(d, c, rand.New(rand.NewPCG(seed, 0)))
		sources = append(sources, source{op, c})
	}
	news()
	for n := range uint64(numberOf(t, "VIBRANT_DRAWS", 0)) {
		rng := rand.New(rand.NewPCG(n, 2027))
		s := sources[rng.IntN(len(sources))]
		if s.c = s.op.Vary(s.c, rng); area(s.c) > 1<<24 { // positions and the like have values
			continue
		}
		s.op.Launch(d, s.c, rand.New(rand.NewPCG(n, 0)))
		kernels, families := news()
		if kernels > 0 {
			sources = append(sources, slices.Repeat([]source{s}, 10)...)
		}
		if len(families) > 0 {
			fmt.Printf("drawn %s: %s\n", strings.Join(families, "; "), writeCall(s.op, s.c, n))
		}
	}
	if err := d.Err(); err != nil {
		t.Error(err)
	}
}

// area returns the product of a case's two longest dimensions.
func area(c optable.Case) int {
	long, longer := 1, 1
	for _, n := range c.Dims {
		long, longer = max(long, min(longer, n)), max(longer, n)
	}
	return long * longer
}

// writeCall returns the line of a call, as readCall reads it.
func writeCall(op *optable.Op, c optable.Case, seed uint64) string {
	dims := strings.ReplaceAll(strings.Trim(fmt.Sprint(c.Dims), "[]"), " ", "x")
	return fmt.Sprintf("%s\t%v\t%s\t%s\t%d", op.Name, c.Type, dims, c.Flags, seed)
}

func readCall(t *testing.T, ops map[string]*optable.Op, line string) (op *optable.Op, c optable.Case, seed uint64) {
	t.Helper()
	fields := strings.Split(line, "\t")
	if len(fields) != 5 || ops[fields[0]] == nil {
		t.Fatalf("%s: %q names no operation of the table, or is not five fields", beyondTheTable, line)
	}
	at := slices.IndexFunc(dtype.All(), func(d dtype.Type) bool { return d.String() == fields[1] })
	seed, err := strconv.ParseUint(fields[4], 10, 64)
	if at < 0 || err != nil {
		t.Fatalf("%s: %q: no type %q, or %v", beyondTheTable, line, fields[1], err)
	}
	c = optable.Case{Type: dtype.All()[at], Flags: fields[3]}
	for text := range strings.SplitSeq(fields[2], "x") {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %q: %v", beyondTheTable, line, err)
		}
		c.Dims = append(c.Dims, n)
	}
	return ops[fields[0]], c, seed
}

// launchConstants calls what the table of operations has no row for: expressions of an array and a constant, random numbers, and copies of
// transposed matrices.
func launchConstants(t *testing.T, d *gpu.Device) {
	type e = tensor.Expr
	for _, dtype := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.U8} {
		x, err := tensor.New(d.Stream(), dtype, 128, 128)
		if err != nil {
			t.Fatal(err)
		}
		tensor.Copy(x.T())
		if dtype == tensor.U8 {
			continue
		}
		tensor.Rand(d.Stream(), 1, dtype, 64)
		for _, f := range []func(a, b e) e{e.Add, e.Sub, e.Mul, e.Div, e.Minimum, e.Maximum, e.Pow, e.Eq, e.Ne, e.Lt, e.Le} {
			tensor.Fuse(func(a e) e { return f(a, a.Const(2)) }).Call(x)
			tensor.Fuse(func(a e) e { return f(a.Const(2), a) }).Call(x)
		}
	}
}
