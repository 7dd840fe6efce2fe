//go:build cgo && linux

package tensor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// interpreter builds a driver for tests (csrc/testdata/libcuda.c) and returns the folder that it is in.
func interpreter(t *testing.T) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip(err)
	}
	if _, err := os.Stat("../csrc/testdata/libcuda.c"); err != nil {
		t.Skipf("the sources are not here: %v", err)
	}
	dir := t.TempDir()
	build := exec.Command(cc, "-O2", "-shared", "-fPIC", "-pthread", "-o", filepath.Join(dir, "libcuda.so.1"), "../csrc/testdata/libcuda.c", "-lm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return dir
}

// TestKernelsAreCompiledAtTheSameTime has a driver that ends no compilation before another has begun, and one that refuses a kernel:
// its error is that of the next call that waits for it, and the stream computes on.
func TestKernelsAreCompiledAtTheSameTime(t *testing.T) {
	if kind := os.Getenv("VIBRANT_TEST_KERNELS"); kind != "" {
		launchBeforeCompiled(t, kind == "refused")
		return
	}
	if runtime.NumCPU() < 2 {
		t.Skip("one processor compiles one kernel after the other")
	}
	dir := interpreter(t)
	for _, e := range []string{"VIBRANT_TEST_KERNELS=together VIBRANT_TEST_TOGETHER=2", "VIBRANT_TEST_KERNELS=refused VIBRANT_TEST_REFUSES=ex2"} {
		c := exec.Command(os.Args[0], "-test.run=^TestKernelsAreCompiledAtTheSameTime$", "-test.v")
		c.Env = append(append(os.Environ(), "LD_LIBRARY_PATH="+dir, "VIBRANT_CACHE="+t.TempDir()), strings.Fields(e)...)
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%s: %v\n%s", e, err, out)
		}
	}
}

func launchBeforeCompiled(t *testing.T, refused bool) {
	d, err := gpu.OpenBackend(csrc.PTX(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	fresh := func() *tensor.Tensor {
		x, err := tensor.New(d.Stream(), tensor.F32, 3)
		if err == nil {
			err = x.WriteFloat32s([]float32{1, -2, 3})
		}
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x, sum, squares, silu := fresh(), fresh(), fresh(), fresh()
	read := func(x *tensor.Tensor, want ...float32) {
		t.Helper()
		got := make([]float32, 3)
		if err := x.ReadFloat32s(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	if refused {
		err := tensor.Try(func() { tensor.SiLUInto(silu, x); tensor.AddInto(sum, x, x) })
		if err == nil {
			err = silu.ReadFloat32s(make([]float32, 3))
		}
		if err == nil {
			t.Error("a kernel that the driver refuses is no error")
		}
		t.Log(err)
	}
	if err := tensor.Try(func() { tensor.AddInto(sum, x, x); tensor.MulInto(squares, x, x) }); err != nil {
		t.Fatal(err)
	}
	read(sum, 2, -4, 6)
	read(squares, 1, 4, 9)
}

// TestOpsInterpreted runs TestOps on kernels in PTX without a GPU: a driver for tests interprets them (csrc/testdata/libcuda.c), in a
// process of its own that finds it in place of NVIDIA's.
func TestOpsInterpreted(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("half a minute of one core")
	}
	dir := interpreter(t)
	texts := filepath.Join(dir, "texts")
	if err := os.Mkdir(texts, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(backend, ops, capability, texts string) {
		c := exec.Command(os.Args[0], "-test.run=^TestOps$/^"+backend+"$/"+ops, "-test.v")
		c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "VIBRANT_CACHE="+filepath.Join(dir, "cache"), "VIBRANT_TEST_PTX="+texts,
			"VIBRANT_TEST_CAPABILITY="+capability, "VIBRANT_TRACE=ptx")
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestOps/"+backend+"/") {
			var failed []string
			for _, line := range strings.Split(string(out), "\n") {
				if !strings.Contains(line, "--- PASS") && !strings.Contains(line, "=== ") && !strings.Contains(line, " ms") {
					failed = append(failed, line)
				}
			}
			t.Fatalf("compute capability %s: %v\n%.4000s", capability, err, strings.Join(failed, "\n"))
		}
	}
	run("ptx", "", "80", texts)
	compiled, err := filepath.Glob(filepath.Join(texts, "*.ptx"))
	if err != nil || len(compiled) < 100 {
		t.Fatalf("%d texts, %v", len(compiled), err)
	}

	// A second process reads machine code from the cache; what is not whole is compiled again.
	cached, _ := filepath.Glob(filepath.Join(dir, "cache", "*.cubin"))
	if len(cached) < 100 {
		t.Fatalf("%d files in the cache", len(cached))
	}
	whole := map[string]int64{}
	for i, path := range cached {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		whole[path] = int64(len(b))
		switch i % 3 {
		case 0:
			b = b[:len(b)/2]
		case 1:
			b[len(b)-3] ^= 1
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run("ptx", "^(Add|RMSNorm|Linear)$", "80", t.TempDir())
	rewritten := 0
	for i, path := range cached {
		if info, err := os.Stat(path); err == nil && i%3 == 0 && info.Size() == whole[path] {
			rewritten++
		}
	}
	if rewritten == 0 {
		t.Error("no file that was cut short was written again")
	}

	// What other GPUs get: before 8.0 there are no products on these tensor cores, from 9.0 on kernels overlap.
	byCapability := map[string]string{"80": texts}
	for _, capability := range []string{"70", "75", "90"} {
		byCapability[capability] = t.TempDir()
		run("ptx", "^(Add|Softmax|RMSNorm|LayerNorm|Linear|LinearAdd|NormQKV|NormSwiGLU|Attention|Argmax)$", capability, byCapability[capability])
	}
	// They serve the backend cuda where no library does.
	if library := csrc.CUDALibrary(); os.Getenv("VIBRANT_LIBRARY") == "" && strings.Contains(library, "no libvibrant_cuda.so") {
		run("cuda", "^(Add|Linear)$", "80", t.TempDir())
	}
	assemble(t, byCapability)
}

// newer are targets whose texts are those of a capability that was played, but for the header: the emitter knows no other steps.
var newer = map[string][]string{"70": {"72"}, "80": {"86", "87", "89"}, "90": {"100", "120"}}

// assemble has ptxas take the texts in folders by compute capability, for these and the targets after them, without a warning: every
// 32nd of them by a toolkit's, all of them by each that PTXAS lists. A toolkit knows some of the targets.
func assemble(t *testing.T, folders map[string]string) {
	named := filepath.SplitList(os.Getenv("PTXAS"))
	paths := append(named, os.Getenv("CUDA_HOME")+"/bin/ptxas", "../build/cuda-toolkit/site-packages/nvidia/cu13/bin/ptxas")
	if path, err := exec.LookPath("ptxas"); err == nil {
		paths = append(paths, path)
	}
	type assembler struct {
		path, help string
		every      int
	}
	var assemblers []assembler
	for i, path := range paths {
		help, err := exec.Command(path, "--help").Output()
		if err != nil || slices.ContainsFunc(assemblers, func(a assembler) bool { return a.help == string(help) }) {
			continue
		}
		every := 32
		if i < len(named) {
			every = 1
		}
		assemblers = append(assemblers, assembler{path, string(help), every})
	}
	header := regexp.MustCompile(`^\.version (.*)\n\.target .*\n`)
	versions := map[string]string{"100": "8.6", "120": "8.7"} // that came with the target
	retargeted := filepath.Join(t.TempDir(), "kernel.ptx")
	for capability, folder := range folders {
		texts, err := filepath.Glob(filepath.Join(folder, "*.ptx"))
		if err != nil || len(texts) < 20 {
			t.Errorf("%d texts for %s, %v", len(texts), capability, err)
		}
		for n, target := range append([]string{capability}, newer[capability]...) {
			assembled := 0
			for _, a := range assemblers {
				if !strings.Contains(a.help, "'sm_"+target+"'") {
					continue
				}
				for i := n % a.every; i < len(texts); i += a.every {
					text, err := os.ReadFile(texts[i])
					if err == nil {
						version := header.ReplaceAll(header.Find(text), []byte("$1")) // of its newest instruction
						head := ".version " + max(versions[target], string(version)) + "\n.target sm_" + target + "\n"
						err = os.WriteFile(retargeted, header.ReplaceAll(text, []byte(head)), 0o600)
					}
					if err != nil {
						t.Fatal(err)
					}
					out, err := exec.Command(a.path, "-arch=sm_"+target, "-o", os.DevNull, retargeted).CombinedOutput()
					if err != nil || len(out) > 0 {
						t.Errorf("%s for sm_%s: %s: %v\n%s", a.path, target, filepath.Base(texts[i]), err, out)
					}
					assembled++
				}
			}
			t.Logf("sm_%s: %d texts assembled", target, assembled)
		}
	}
}
