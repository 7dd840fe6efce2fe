package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
)

func listCommand() *cobra.Command {
	var m modelFlags
	var asJSON bool
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the models on this machine: of vibrant pull, Hugging Face, Ollama and LM Studio",
		Example: "  vibrant list --device cuda",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			models, err := vibrant.LocalModels(vibrant.WithDevice(m.device))
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), append([]vibrant.LocalModel{}, models...))
			}
			if len(models) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "vibrant: no models are here yet: vibrant pull hf:OWNER/REPO[:QUANT] brings one, and -m FILE takes any GGUF file")
				return nil
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "NAME\tARCHITECTURE\tQUANTIZATION\tSIZE\tFITS\tFROM")
			for _, x := range models {
				fits := "no"
				switch {
				case x.Problem != "":
					fits = "no: " + oneLine(x.Problem)
				case x.Fits:
					fits = "yes"
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", oneLine(x.Name), oneLine(x.Architecture), x.Quantization, byteSize(x.Bytes), fits, x.Source)
			}
			return t.Flush()
		},
	}
	c.Flags().StringVar(&m.device, "device", "auto", "where they are to fit: auto, cpu, cuda or cuda:N")
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return c
}
