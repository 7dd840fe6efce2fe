package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

func inspectCommand() *cobra.Command {
	var m modelFlags
	var fit, tensors, asJSON bool
	c := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show a GGUF file's metadata and tensors, and with --fit the memory that it would take",
		Example: "  vibrant inspect model.gguf --tensors\n" +
			"  vibrant inspect model.gguf --fit --device cuda --ctx 32768",
		Args: cobra.MaximumNArgs(1),

		ValidArgsFunction: completeModels,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.modelArgument(args); err != nil {
				return err
			}
			options, err := m.options()
			if err != nil {
				return err
			}
			file, err := vibrant.Inspect(m.model)
			if err != nil {
				return err
			}
			var prediction *vibrant.Fit
			if fit {
				if prediction, err = vibrant.PredictFit(m.model, options...); err != nil {
					return err
				}
			}
			m.printNotes(cmd)
			if asJSON {
				out := map[string]any{"file": file}
				if fit {
					out["fit"] = prediction
				}
				return writeJSON(cmd.OutOrStdout(), out)
			}
			if fit {
				printStreamNote(cmd, prediction.StreamNote)
				warnOfContext(cmd, prediction.Context, prediction.TrainedContext)
				return printFit(cmd.OutOrStdout(), prediction)
			}
			return printFile(cmd.OutOrStdout(), file, tensors)
		},
	}
	m.add(c)
	c.Flags().BoolVar(&fit, "fit", false, "predict the memory for weights, cache and workspace on --device with --ctx")
	c.Flags().BoolVar(&tensors, "tensors", false, "list every tensor")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	m.addForeign(c.Flags())
	return c
}

func printFit(w io.Writer, f *vibrant.Fit) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "device\t%s\n", f.Device)
	fmt.Fprintf(t, "context\t%d tokens, cache in %s\n", f.Context, f.KVType)
	fmt.Fprintf(t, "weights\t%s\n", byteSize(f.Memory.Weights))
	if f.Memory.Adapters > 0 {
		fmt.Fprintf(t, "adapters\t%s\n", byteSize(f.Memory.Adapters))
	}
	fmt.Fprintf(t, "cache\t%s\n", byteSize(f.Memory.Cache))
	fmt.Fprintf(t, "workspace\t%s\n", byteSize(f.Memory.Workspace))
	fmt.Fprintf(t, "total\t%s of %s\n", byteSize(f.Memory.Total()), byteSize(f.Limit))
	if f.Fits {
		fmt.Fprintf(t, "fits\tyes, up to --ctx %d\n", f.LargestContext)
	} else if f.LargestContext > 0 {
		fmt.Fprintf(t, "fits\tno; --ctx %d would\n", f.LargestContext)
	} else {
		fmt.Fprintf(t, "fits\tno, at no context\n")
	}
	if err := t.Flush(); err != nil || len(f.Devices) == 0 {
		return err
	}
	return printDevices(w, f.Devices)
}

// printDevices prints what each device has of a model.
func printDevices(w io.Writer, devices []vibrant.DeviceFit) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\ndevice\thas\tweights\tcache\tworkspace\ttotal\tmay use\tfree\tfits\n")
	for _, d := range devices {
		has := "a part of every layer"
		if d.Layers > 0 || d.Experts > 0 {
			has = fmt.Sprintf("%d layers", d.Layers)
			if d.Layers == 1 {
				has = "1 layer"
			}
		}
		if d.Experts > 0 {
			has += fmt.Sprintf(", experts of %d", d.Experts)
		}
		fits := "yes"
		if !d.Fits {
			fits = "no"
		}
		m := d.Memory
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Device, has, byteSize(m.Weights+m.Adapters), byteSize(m.Cache), byteSize(m.Workspace),
			byteSize(m.Total()), byteSize(d.Limit), byteSize(d.Free), fits)
	}
	return t.Flush()
}

func printFile(w io.Writer, f *vibrant.File, tensors bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "file\tGGUF v%d, %s, %d tensors, %s parameters\n", f.Version, byteSize(f.Bytes), len(f.Tensors), quantity(float64(f.Parameters)))
	for _, n := range f.Types {
		fmt.Fprintf(t, "type\t%s: %d tensors, %s\n", n.Type, n.Tensors, byteSize(n.Bytes))
	}
	if f.Unsupported != "" {
		fmt.Fprintf(t, "computed\tno: %s\n", f.Unsupported)
	} else {
		fmt.Fprintf(t, "computed\tyes\n")
	}
	for _, kv := range f.Metadata {
		fmt.Fprintf(t, "%s\t%s\n", shorten(oneLine(kv.Key), 200), oneLine(kv.Short()))
	}
	if tensors {
		for _, x := range f.Tensors {
			fmt.Fprintf(t, "%s\t%s %v\n", oneLine(x.Name), x.Type, x.Shape)
		}
	}
	return t.Flush()
}
