package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newObserve(p *plugin) *cobra.Command {
	var o runtimeclient.ObserveOptions
	var once, values bool
	var output string
	parts := []string{runtimev1.ObserveMessages, runtimev1.ObserveState, runtimev1.ObserveValues}
	cmd := &cobra.Command{
		Use:   "observe THREAD",
		Short: "Print the value of a thread, then what changes in it",
		Long: `Print the value of a thread and then what changes in it, one JSON object per line.

The first line has the value: the record, the newest messages and the state. Each further line has a JSON Patch (RFC
6902) that changes the value before it, or the whole value with --values. There is at most one line per 100 ms.

With -o yaml the command prints documents instead of lines, and with -o name the name of the thread instead of each line. -o wide equals
-o json, because these lines have no columns.`,
		Example: `  # The value, then patches
  kubectl skein observe orders

  # The record and the key-values, whole after each change
  kubectl skein observe orders --include values --values

  # The status of the newest run, whenever it changes
  kubectl skein observe orders --values --include= | jq --unbuffered -r .value.thread.lastRun.status | uniq`,
		Args: exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, part := range o.Include {
				if !slices.Contains(parts, part) {
					return fmt.Errorf("--include=%s: it must be one or more of %s, with commas between them", part, strings.Join(parts, ", "))
				}
			}
			if err := checkListOutput(output); err != nil {
				return err
			}
			o.NoFollow = once
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			ctx, cancel, err := p.bounded(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			each := p.each(output)
			for seen, err := range t.Observe(ctx, o) {
				if err != nil {
					return endedStream(err)
				}
				line := seen.Observation
				if values {
					line.Value, line.Patch = seen.Now, nil
				}
				if err := each(line, "thread.skein.dev/"+args[0]); err != nil {
					return err
				}
			}
			return context.Cause(ctx)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Include, "include", parts[:2], "What the value has besides the record: "+strings.Join(parts, ", ")+".")
	f.BoolVar(&values, "values", false, "Print the whole value after each change, not a patch.")
	f.BoolVar(&once, "once", false, "End after the present value.")
	outputFlag(cmd, &output)
	return cmd
}
