package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newWatch(p *plugin) *cobra.Command {
	tail := 10
	var all bool
	var output string
	cmd := &cobra.Command{
		Use:   "watch THREAD",
		Short: "Follow a thread: messages as they are written, tool calls, runs",
		Example: `  # The last ten messages, then what happens
  kubectl skein watch hello

  # The events from now on, each as JSON on a line
  kubectl skein watch hello -o json`,
		Args: exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			if structured := output != "" && output != outputWide; structured && cmd.Flags().Changed("tail") {
				return fmt.Errorf("--tail shows messages, and --output=%s prints events: leave one of them out", output)
			} else if structured {
				tail = 0
			}
			if tail < 0 || tail > runtimev1.MaxPageSize {
				return fmt.Errorf("--tail=%d: give a number from 0 to %d", tail, runtimev1.MaxPageSize)
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			ctx, cancel, err := p.bounded(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			rec, err := t.Get(ctx) // before the messages, so that nothing is lost in between
			if err != nil {
				return err
			}
			view := newLive(transcript{out: p.Out, style: p.style}, isTerminal(p.Out), all)
			if tail > 0 {
				list, err := t.Messages(ctx, runtimeclient.MessageOptions{Page: runtimeclient.Page{Limit: tail}, IncludeSilent: all, AllDepths: all})
				if err != nil {
					return err
				}
				for i := range list.Messages {
					m := &list.Messages[i]
					view.message(m)
					view.shown[m.ID] = true
				}
			}
			each := p.each(output)
			for e, err := range t.Events(ctx, runtimeclient.EventOptions{After: rec.LastEvent}) {
				if err != nil {
					return endedStream(err)
				}
				if output == "" || output == outputWide {
					view.event(&e)
				} else if err := each(e, fmt.Sprintf("event/%d", e.Seq)); err != nil {
					return err
				}
			}
			return context.Cause(ctx)
		},
	}
	cmd.Flags().IntVar(&tail, "tail", tail, "How many earlier messages to show.")
	cmd.Flags().BoolVar(&all, "all", false, "Show silent messages too.")
	outputFlag(cmd, &output)
	return cmd
}
