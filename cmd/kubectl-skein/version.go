package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func newVersion(p *plugin) *cobra.Command {
	var clientOnly bool
	var output string
	system := "skein-system"
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the plugin and of the manager",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			v := map[string]string{"client": buildVersion()}
			if !clientOnly {
				c, err := p.newChecker(system)
				if err != nil {
					return err
				}
				var d appsv1.Deployment
				if err := c.client.Get(cmd.Context(), client.ObjectKey{Namespace: system, Name: managerName}, &d); err != nil {
					fmt.Fprintf(p.ErrOut, "Client: %s\n", v["client"])
					return err
				}
				v["manager"] = managerImage(&d)
			}
			if output != "" {
				return encode(p.Out, output, v)
			}
			fmt.Fprintf(p.Out, "Client: %s\n", v["client"])
			if !clientOnly {
				fmt.Fprintf(p.Out, "Manager: %s\n", v["manager"])
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "Print only the plugin's version. This needs no cluster.")
	cmd.Flags().StringVar(&system, "system-namespace", system, "The namespace of the manager.")
	cmd.Flags().StringVarP(&output, "output", "o", "", "Output format: json or yaml.")
	return cmd
}

// buildVersion returns the module's version, and the commit that the plugin was built from.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text := info.Main.Version
	if text == "" {
		text = "(devel)"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			text += " " + s.Value
		}
	}
	return text
}
