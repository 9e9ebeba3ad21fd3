package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/skein-dev/skein/internal/sandbox/types"
)

func newTypes(p *plugin) *cobra.Command {
	var globals, handlers bool
	cmd := &cobra.Command{
		Use:   "types",
		Short: "Print the TypeScript types for tools, effects, hooks and endpoints",
		Long: `Print the TypeScript types of the module "@standardagents/builder": ThreadState and the define functions, as the
sandboxes of this version have them. They need the types of the package zod. The command contacts no cluster.`,
		Example: `  # In a project with the packages typescript and zod
  kubectl skein types > skein.d.ts
  # Where agents are written in code with @agentuity/runtime
  kubectl skein types --handlers > handlers.d.ts
  # For a project without TypeScript's "dom" library, so that a use of what sandboxes lack is an error
  kubectl skein types --globals > globals.d.ts`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text := types.Builder
			switch {
			case globals:
				text = types.Globals
			case handlers:
				text = types.Handlers
			}
			_, err := io.WriteString(p.Out, text)
			return err
		},
	}
	cmd.Flags().BoolVar(&globals, "globals", false, "Print the types of the globals in sandboxes instead.")
	cmd.Flags().BoolVar(&handlers, "handlers", false, "Print the types of @agentuity/runtime, ai and @ai-sdk/* instead, for handlers of agents.")
	cmd.MarkFlagsMutuallyExclusive("globals", "handlers")
	return cmd
}
