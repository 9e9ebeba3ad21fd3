package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newCompact(p *plugin) *cobra.Command {
	var side, output string
	cmd := &cobra.Command{
		Use:   "compact THREAD",
		Short: "Have a model sum up all but the newest messages",
		Long: `Have a model sum up all but the newest messages of a thread. The model of the thread reads the summary in their place from then
on. The messages stay in the conversation. A run that is under way goes on after it.`,
		Example: `  # Sum up, and print the summary
  kubectl skein compact orders`,
		Args: exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
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
			rec, err := t.Get(ctx) // before the request, so that its outcome is not missed
			if err != nil {
				return err
			}
			asked, err := t.Compact(ctx, runtimev1.Compact{Side: side, IdempotencyKey: uuid.NewString()})
			if err != nil {
				return err
			}
			m, err := compacted(ctx, t, rec.LastEvent, asked.Request)
			if err != nil {
				return err
			}
			if output != "" {
				return encode(p.Out, output, m)
			}
			(&transcript{out: p.Out, style: p.style}).message(m)
			return nil
		},
	}
	cmd.Flags().StringVar(&side, "side", "", "Side of a dual_ai agent whose model reads the summary: a or b.")
	cmd.Flags().StringVarP(&output, "output", "o", "", "Output format: json or yaml.")
	return cmd
}

// compacted waits for the outcome of a request, and returns the summary.
func compacted(ctx context.Context, t *runtimeclient.Thread, after int64, request string) (*runtimev1.Message, error) {
	for e, err := range t.Events(ctx, runtimeclient.EventOptions{After: after}) {
		if err != nil {
			return nil, endedStream(err)
		}
		switch e.Type {
		case runtimev1.EventContextCompacted:
			var done runtimev1.Compacted
			if json.Unmarshal(e.Data, &done) == nil && slices.Contains(done.Requests, request) {
				return t.Message(ctx, e.MessageID)
			}
		case runtimev1.EventCompactionFailed:
			var failed runtimev1.CompactionFailure
			if json.Unmarshal(e.Data, &failed) == nil && slices.Contains(failed.Requests, request) {
				return nil, fmt.Errorf("nothing was summed up (%s): %s", failed.Reason, failed.Message)
			}
		}
	}
	return nil, context.Cause(ctx)
}
