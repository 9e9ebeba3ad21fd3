package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/skein-dev/skein/cmd/kubectl-skein/internal/build"
)

// buildOptions say what to build and how.
type buildOptions struct {
	dir, output, check string
	watch              bool
}

func newBuild(p *plugin) *cobra.Command {
	o := buildOptions{check: build.CheckAuto}
	cmd := &cobra.Command{
		Use:   "build DIR",
		Short: "Make manifests of a folder of TypeScript, with the files and npm packages that it imports",
		Long: `Make manifests of a folder of TypeScript, to be committed and applied. Each definition becomes an object whose code is one
module: the file, with the files and the npm packages that it imports.

  tools/NAME.ts        a Tool; tools/NAME/index.ts too
  effects/NAME.ts      an Effect
  endpoints/PATH.ts    a ThreadEndpoint; endpoints/orders/[region].ts has the path /orders/[region]
  agents/NAME.ts       an Agent whose side a is the handler in the file
  objects/*.yaml       any other objects; code: {file: ../hooks/mask.ts} in one is the code of that file

The optional file skein.yaml names other folders, and minify: true. The same files give the same manifests. The command
contacts no cluster.`,
		Example: `  # One file for each object
  kubectl skein build shop -o shop/manifests
  kubectl apply --server-side -f shop/manifests

  # Again whenever a file changes
  kubectl skein build shop -o shop/manifests --watch`,
		Args: exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.dir = args[0]
			if err := checkMode(o.check); err != nil {
				return err
			}
			if o.watch {
				return p.buildAndWatch(cmd.Context(), o)
			}
			return p.build(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "", "The folder to write to, one file for each object. Without it the command prints the manifests.")
	f.StringVar(&o.check, "check", o.check, "Check the types: auto, where there is a TypeScript compiler; always; or never.")
	f.BoolVarP(&o.watch, "watch", "w", false, "Build again whenever a file changes.")
	return cmd
}

func checkMode(mode string) error {
	switch mode {
	case build.CheckAuto, build.CheckAlways, build.CheckNever:
		return nil
	}
	return fmt.Errorf("--check=%s: it must be auto, always or never", mode)
}

// build builds once.
func (p *plugin) build(ctx context.Context, o buildOptions) error {
	res, err := p.built(ctx, o)
	if err != nil {
		return err
	}
	if o.output == "" {
		return res.Print(p.Out)
	}
	changes, err := res.Write(o.output)
	for _, name := range changes.Written {
		fmt.Fprintf(p.Out, "%s written\n", filepath.Join(o.output, name))
	}
	for _, name := range changes.Removed {
		fmt.Fprintf(p.Out, "%s removed\n", filepath.Join(o.output, name))
	}
	if err == nil && len(changes.Written)+len(changes.Removed) == 0 {
		fmt.Fprintf(p.Out, "%s is up to date\n", o.output)
	}
	return err
}

// built bundles a folder and checks its types.
func (p *plugin) built(ctx context.Context, o buildOptions) (*build.Result, error) {
	res, err := build.Build(o.dir)
	if err != nil {
		return nil, err
	}
	skipped, err := build.CheckTypes(ctx, o.dir, o.check, res.Files)
	if err != nil {
		return nil, err
	}
	if skipped != "" {
		fmt.Fprintf(p.ErrOut, "note: %s\n", skipped)
	}
	for _, note := range res.Notes {
		fmt.Fprintf(p.ErrOut, "note: %s\n", note)
	}
	return res, nil
}

// buildAndWatch builds now and after each change. A mistake does not end it.
func (p *plugin) buildAndWatch(ctx context.Context, o buildOptions) error {
	if o.output == "" {
		return fmt.Errorf("--watch needs -o FOLDER, where the manifests are kept up to date")
	}
	again := func() {
		if err := p.build(ctx, o); err != nil && ctx.Err() == nil {
			printError(p.ErrOut, err)
		}
		if ctx.Err() == nil {
			fmt.Fprintf(p.ErrOut, "%s waiting for changes\n", time.Now().Format(time.TimeOnly))
		}
	}
	return build.Watch(ctx, o.dir, o.output, again)
}
