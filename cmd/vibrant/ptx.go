package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/ptx"
)

func ptxCommand() *cobra.Command {
	var k ptx.Kernel
	var e ptx.Emitter
	var out string
	names := ptx.Names()
	c := &cobra.Command{
		Use:   "ptx KERNEL",
		Short: "Write a GPU kernel as PTX, without nvcc or a GPU",
		Long: "Writes a GPU kernel as PTX, the assembly that NVIDIA's driver compiles, for programs that load kernels themselves.\n\n" +
			"Kernels: " + strings.Join(names, ", ") + ".\nThe first line of the text after its header names the entry and its parameters; how it is launched is said on stderr.",
		Example:   "  vibrant ptx gemm-tiled --m 512 --n 512 --k 512 --tile 32\n  vibrant ptx quantized-gemm --m 1 --n 11008 --k 2048 --target sm_80 -o q4k.ptx",
		Args:      cobra.ExactArgs(1),
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := ptx.Lookup(args[0])
			if err != nil {
				return usageError{err}
			}
			k.Kind, k.RMS, k.Causal = found.Kind, k.RMS || found.RMS, k.Causal || found.Causal
			module, err := e.Emit(k)
			if errors.Is(err, gpu.ErrInvalid) {
				return usageError{err}
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d x %d blocks of %d threads\n", module.Entry, module.GridX, module.GridY, module.Threads)
			file, err := createOutput(out, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			_, err = io.WriteString(file, module.Text)
			return file.finish(err)
		},
	}
	f := c.Flags()
	f.IntVar(&k.M, "m", 1, "products: rows of a and c")
	f.IntVar(&k.N, "n", 1, "products: columns of b and c")
	f.IntVar(&k.K, "k", 256, "products: columns of a; of Q4_K a multiple of 256")
	f.IntVar(&k.Tile, "tile", 0, "gemm-tiled: 8, 16 or 32 (default 16)")
	f.IntVar(&k.Rows, "rows", 1, "softmax, norms: rows")
	f.IntVar(&k.Dim, "dim", 128, "softmax, norms: elements of a row; attention: elements of a head")
	f.IntVar(&k.Seq, "seq", 1, "attention: tokens")
	f.IntVar(&k.Heads, "heads", 1, "attention: heads")
	f.Float32Var(&k.Epsilon, "epsilon", 1e-6, "norms: added to the variance")
	f.BoolVar(&k.RMS, "rms", false, "layer-norm: RMSNorm")
	f.BoolVar(&k.Plain, "plain", false, "norms: without gamma and beta")
	f.BoolVar(&k.Causal, "causal", false, "attention: a query sees the keys up to its own position")
	f.StringVar(&e.Target, "target", "", "compute capability, such as sm_80 (default sm_70)")
	f.StringVarP(&out, "output", "o", "-", "file to write, - for standard output")
	return c
}
