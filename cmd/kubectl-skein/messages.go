package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newMessages(p *plugin) *cobra.Command {
	var output string
	var all, full, index bool
	limit := runtimev1.DefaultPageSize
	cmd := &cobra.Command{
		Use:   "messages THREAD",
		Short: "Show what was said in a thread",
		Example: `  # The newest messages, and those that wait in the queue
  kubectl skein messages hello

  # Everything, silent messages too, as JSON
  kubectl skein messages hello --all -o json`,
		Args: exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			if limit < 1 || limit > runtimev1.MaxPageSize {
				return fmt.Errorf("--limit=%d: give a number from 1 to %d, or --all", limit, runtimev1.MaxPageSize)
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			list, err := read(cmd.Context(), t, limit, all || index)
			if err != nil {
				return err
			}
			if done, err := p.structured(output, list, namesOf(list.Messages, func(m *runtimev1.Message) string { return "message/" + m.ID })); done {
				return err
			}
			left := list.Total - int64(len(list.Messages))
			if !all && !index {
				if err := addSummaries(cmd.Context(), t, list); err != nil {
					return err
				}
			}
			if list.HasMore {
				fmt.Fprintf(p.ErrOut, "(%d older messages: --all shows them)\n", left)
			}
			if len(list.Messages) == 0 {
				fmt.Fprintln(p.ErrOut, "No messages yet.")
			}
			tr := &transcript{out: p.Out, style: p.style, full: full || output == outputWide}
			for i := range list.Messages {
				if index && list.Messages[i].Status != runtimev1.MessagePending { // one that waits has no index yet
					fmt.Fprintf(p.Out, "%d ", i)
				}
				tr.message(&list.Messages[i])
			}
			return nil
		},
	}
	outputFlag(cmd, &output)
	cmd.Flags().BoolVar(&all, "all", false, "Show every message, including silent ones and those of deeper levels.")
	cmd.Flags().BoolVar(&index, "index", false, "Show every message with its index in front, by which fork takes it.")
	cmd.Flags().BoolVar(&full, "full", false, "Show the results of tools in full.")
	cmd.Flags().IntVar(&limit, "limit", limit, "How many of the newest messages to show.")
	return cmd
}

// read returns the newest messages, or all of them.
func read(ctx context.Context, t *runtimeclient.Thread, limit int, all bool) (*runtimev1.MessageList, error) {
	if !all {
		return t.Messages(ctx, runtimeclient.MessageOptions{Page: runtimeclient.Page{Limit: limit}})
	}
	whole := &runtimev1.MessageList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindMessageList), Messages: []runtimev1.Message{}}
	for {
		page, err := t.Messages(ctx, runtimeclient.MessageOptions{
			Page:  runtimeclient.Page{Limit: runtimev1.MaxPageSize, Offset: len(whole.Messages)},
			Order: "asc", IncludeSilent: true, AllDepths: true,
		})
		if err != nil {
			return nil, err
		}
		whole.Messages = append(whole.Messages, page.Messages...)
		whole.Total = page.Total
		if !page.HasMore || len(page.Messages) == 0 {
			return whole, nil
		}
	}
}

// addSummaries adds to a list of the newest messages the summaries that were written among them. They are silent, and show
// where the model stopped to read what is above them.
func addSummaries(ctx context.Context, t *runtimeclient.Thread, list *runtimev1.MessageList) error {
	if len(list.Messages) == 0 {
		return nil
	}
	newest, err := t.Messages(ctx, runtimeclient.MessageOptions{Page: runtimeclient.Page{Limit: runtimev1.MaxPageSize}, IncludeSilent: true})
	if err != nil {
		return err
	}
	before := func(a, b runtimev1.Message) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) }
	for _, m := range newest.Messages {
		if m.Summary != nil && before(m, list.Messages[0]) > 0 {
			list.Messages = append(list.Messages, m)
		}
	}
	slices.SortStableFunc(list.Messages, before)
	return nil
}
