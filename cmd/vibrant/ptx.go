package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/ptx"
)

func ptxCommand() *cobra.Command {
	var k ptx.Kernel
	var e ptx.Emitter
	var out, weight, activation string
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
			for flag, said := range map[string]bool{"rms": found.RMS && !k.RMS, "causal": found.Causal && !k.Causal, "neox": found.NeoX && !k.NeoX} {
				if said && cmd.Flags().Changed(flag) {
					return usageError{fmt.Errorf("ptx: --%s=false: the kernel's name %s says otherwise", flag, args[0])}
				}
			}
			k.Kind, k.RMS, k.Causal, k.NeoX = found.Kind, k.RMS || found.RMS, k.Causal || found.Causal, k.NeoX || found.NeoX
			if k.Weight, err = weightOf(weight, found); err != nil {
				return usageError{err}
			}
			if k.Activation, err = activationOf(activation); err != nil {
				return usageError{err}
			}
			if k.Entry == "" {
				k.Entry = found.Entry
				if k.Kind == ptx.Attention && k.Entry != "" && k.Causal && !found.Causal {
					k.Entry += "_causal" // as older systems name it
				}
			}
			module, err := e.Emit(k)
			if errors.Is(err, gpu.ErrInvalid) {
				return usageError{err}
			}
			if err != nil {
				return err
			}
			file, err := createOutput(out, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d x %d blocks of %d threads\n", module.Entry, module.GridX, module.GridY, module.Threads)
			_, err = io.WriteString(file, module.Text)
			return file.finish(err)
		},
	}
	f := c.Flags()
	f.IntVar(&k.M, "m", 1, "products: rows of a and c")
	f.IntVar(&k.N, "n", 1, "products: columns of b and c; dequantize: rows; element-wise kernels, quantize, argmax: elements (of argmax-final, blocks)")
	f.IntVar(&k.K, "k", 256, "products: columns of a; dequantize: columns; of quantized weights a multiple of their blocks")
	f.IntVar(&k.Tile, "tile", 0, "gemm-tiled: 8, 16 or 32 (default 16)")
	f.IntVar(&k.Rows, "rows", 1, "softmax, norms: rows")
	f.IntVar(&k.Dim, "dim", 128, "softmax, norms: elements of a row; attention, rope, cache-write: of a head; bias-activation: of the bias")
	f.IntVar(&k.Seq, "seq", 1, "attention: tokens")
	f.IntVar(&k.Heads, "heads", 1, "attention, rope, cache-write: heads")
	f.IntVar(&k.KVHeads, "kv-heads", 0, "decode-attention: heads of keys and values (default as many as --heads)")
	f.IntVar(&k.Capacity, "capacity", 4096, "decode-attention: keys that a head's cache has room for")
	f.Float32Var(&k.Theta, "theta", 10000, "rope: its base")
	f.BoolVar(&k.NeoX, "neox", false, "rope: pair element i with i + dim/2")
	f.StringVar(&weight, "weight", "", "quantized-gemm, gemv, dequantize: "+joinWeights()+" (default Q4_K; gemv: F32)")
	f.StringVar(&activation, "activation", "none", "bias-activation: none, relu or gelu (x sigmoid(1.702 x))")
	f.Float32Var(&k.Epsilon, "epsilon", 1e-6, "norms: added to the variance")
	f.BoolVar(&k.RMS, "rms", false, "layer-norm: RMSNorm")
	f.BoolVar(&k.Plain, "plain", false, "norms: without gamma and beta")
	f.BoolVar(&k.Causal, "causal", false, "attention: a query sees the keys up to its own position")
	f.StringVar(&k.Entry, "entry", "", "the entry's name (default the one that KERNEL has)")
	f.StringVar(&e.Target, "target", "", "compute capability, such as sm_80 (default sm_70)")
	f.StringVarP(&out, "output", "o", "-", "file to write, - for standard output")
	return c
}

func joinWeights() string {
	var names []string
	for _, w := range ptx.Weights() {
		names = append(names, w.String())
	}
	return strings.Join(names, ", ")
}

// weightOf returns the format that --weight names, that of the kernel's name where it is not given.
func weightOf(name string, kernel ptx.Kernel) (dtype.Type, error) {
	found := kernel.Weight
	if name == "" || kernel.Kind == ptx.Gemv && found == dtype.F32 && strings.EqualFold(name, found.String()) {
		return found, nil
	}
	for _, w := range ptx.Weights() {
		if !strings.EqualFold(name, w.String()) {
			continue
		}
		if found != dtype.F32 && found != w {
			return 0, fmt.Errorf("ptx: --weight %s: the kernel's name says %s", name, found)
		}
		return w, nil
	}
	return 0, fmt.Errorf("ptx: --weight %s: want one of %s", name, joinWeights())
}

func activationOf(name string) (ptx.Activation, error) {
	names := map[string]ptx.Activation{"none": ptx.NoActivation, "relu": ptx.ReLU, "gelu": ptx.QuickGELU}
	if a, ok := names[name]; ok {
		return a, nil
	}
	return 0, fmt.Errorf("ptx: --activation %s: want none, relu or gelu", name)
}
