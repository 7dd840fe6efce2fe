package tensor_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/cuda"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/optable"
	"github.com/vibrant-ml/vibrant/tensor"
)

// launched is what processes of the emulator noted of kernels: by family, which is a kernel's name without types of 16 bits and formats
// of weights, whether one has code for 9.0, was launched, and was launched on 9.0.
type launched struct{ all, full, taken, onHopper map[string]bool }

// notDrawn are families that draws of the table of operations do not reach, and why.
var notDrawn = map[string]string{
	`^(all_reduce|all_gather|n1_sum)`: "sums over several GPUs, whose tests launch each",
	`^probe_kernel`:                   "tells what the library was compiled for",
}

// TestHopperHasTheKernelsThatCallsTake launches kernels on emulated GPUs that note their names and run none, for calls that are drawn
// from the table of operations and from their own variations. What code for Hopper leaves out must not be taken there. Families
// that no drawn call takes are logged: they cost compile time for nothing, or are rare. The emulator reads its variables once, hence
// a process a GPU.
func TestHopperHasTheKernelsThatCallsTake(t *testing.T) {
	d, err := gpu.OpenBackend(cuda.Backend(), 0)
	if err != nil || d.Info().Name != "emulated" {
		t.Skip("only an emulated GPU notes the kernels that it launches")
	}
	defer d.Close()
	if os.Getenv("EMULATOR_LAUNCHES") != "" {
		launchDraws(t, d)
		return
	}
	found := launched{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, g := range []struct{ capability, multiprocessors, draws int }{{90, 132, 120000}, {90, 16, 40000}, {80, 108, 40000}, {86, 84, 40000}, {75, 68, 40000}} {
		notes := filepath.Join(t.TempDir(), "launches")
		c := exec.Command(os.Args[0], "-test.run=^TestHopperHasTheKernelsThatCallsTake$")
		c.Env = append(os.Environ(), "EMULATOR_LAUNCHES="+notes, fmt.Sprint("EMULATOR_CAPABILITY=", g.capability), "EMULATOR_MEMORY_MIB=8000000",
			fmt.Sprint("EMULATOR_MULTIPROCESSORS=", g.multiprocessors), fmt.Sprint("VIBRANT_DRAWS=", g.draws))
		if said, err := c.CombinedOutput(); err != nil {
			t.Fatalf("on %d: %v\n%s", g.capability, err, said)
		}
		text, err := os.ReadFile(notes)
		if err != nil {
			t.Fatal(err)
		}
		found.add(t, string(text), g.capability == 90)
	}
	for _, family := range found.left() {
		t.Logf("no drawn call takes %s", family)
	}
	t.Logf("%d families of kernels, %d taken; code for 9.0 has %d", len(found.all), len(found.taken), len(found.full))
}

// left returns the families that no call has taken, nor on 9.0 those that its code has.
func (l launched) left() (all []string) {
	for family := range l.all {
		if l.taken[family] && (l.onHopper[family] || !l.full[family]) {
			continue
		}
		excused := false
		for pattern := range notDrawn {
			excused = excused || regexp.MustCompile(pattern).MatchString(family)
		}
		if !excused {
			all = append(all, family)
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

// launchDraws launches kernels of cases of the table, and of variations. A case that launched a kernel for the first time is varied in turn.
func launchDraws(t *testing.T, d *gpu.Device) {
	strictly(t)
	launchConstants(t, d)
	notes, err := os.Open(os.Getenv("EMULATOR_LAUNCHES"))
	if err != nil {
		t.Fatal(err)
	}
	defer notes.Close()
	type source struct {
		op *optable.Op
		c  optable.Case
	}
	var sources []source
	for _, op := range optable.Table() {
		for _, c := range op.Cases {
			sources = append(sources, source{op, c})
		}
	}
	size := int64(0)
	for n := range numberOf(t, "VIBRANT_DRAWS", 0) {
		rng := rand.New(rand.NewPCG(uint64(n), 2027))
		s := sources[rng.IntN(len(sources))]
		if n < len(sources) {
			s = sources[n]
		} else {
			s.c = s.op.Vary(s.c, rng)
		}
		s.op.Launch(d, s.c, rng)
		info, err := notes.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > size {
			size = info.Size()
			sources = append(sources, slices.Repeat([]source{s}, 10)...)
		}
	}
	if err := d.Err(); err != nil {
		t.Error(err)
	}
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
