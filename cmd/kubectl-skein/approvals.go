package main

import (
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// waitingCalls returns at most limit calls of a thread that wait for approval. A page of them may end early.
func waitingCalls(ctx context.Context, t *runtimeclient.Thread, limit int) (*runtimev1.ApprovalList, error) {
	whole := &runtimev1.ApprovalList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindApprovalList), Approvals: []runtimev1.Approval{}}
	for {
		page, err := t.Approvals(ctx, runtimeclient.Page{Limit: limit - len(whole.Approvals), Offset: len(whole.Approvals)})
		if err != nil {
			return nil, err
		}
		whole.Approvals = append(whole.Approvals, page.Approvals...)
		if whole.HasMore = page.HasMore; !page.HasMore || len(page.Approvals) == 0 || len(whole.Approvals) >= limit {
			return whole, nil
		}
	}
}

func newApprovals(p *plugin) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "approvals THREAD",
		Short: "List the tool calls that wait for approval",
		Args:  exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			l, err := waitingCalls(cmd.Context(), t, runtimev1.MaxPageSize)
			if err != nil {
				return err
			}
			if done, err := p.structured(output, l, namesOf(l.Approvals, func(a *runtimev1.Approval) string { return "call/" + a.ToolCallID })); done {
				return err
			}
			if len(l.Approvals) == 0 {
				fmt.Fprintf(p.ErrOut, "No calls of %s wait for approval.\n", args[0])
				return nil
			}
			w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, wideRow(output, "CALL\tTOOL\tARGUMENTS\tDECISION\tEXPIRES\tWAITS", "RUN"))
			for _, a := range l.Approvals {
				decision, expires := "-", "never"
				if d := a.Decision; d != nil {
					decision = decided(d)
				}
				if a.ExpiresAt != 0 {
					expires = "in " + duration.HumanDuration(time.Until(time.UnixMicro(a.ExpiresAt)))
				}
				fmt.Fprintln(w, wideRow(output, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", oneLine(a.ToolCallID), oneLine(a.Name), oneLine(a.Arguments), oneLine(decision), expires,
					duration.HumanDuration(time.Since(time.UnixMicro(a.RequestedAt)))), a.RunID))
			}
			return w.Flush()
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

func newApprove(p *plugin) *cobra.Command {
	var reason, arguments string
	cmd := &cobra.Command{
		Use:   "approve THREAD CALL",
		Short: "Approve a tool call that waits for approval",
		Example: `  # What waits
  kubectl skein approvals orders

  # Approve the call, or approve it with other arguments
  kubectl skein approve orders call_1
  kubectl skein approve orders call_1 --arguments '{"amount":10}'`,
		Args: exactly("THREAD", "CALL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var edited json.RawMessage
			if arguments != "" {
				if !json.Valid([]byte(arguments)) {
					return fmt.Errorf("--arguments is not JSON: use an object such as '{\"amount\":10}'")
				}
				edited = json.RawMessage(arguments)
			}
			return p.decide(cmd.Context(), args, func(ctx context.Context, t *runtimeclient.Thread) (*runtimev1.Approval, error) {
				return t.Approve(ctx, args[1], reason, edited)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "The reason, for people to read.")
	cmd.Flags().StringVar(&arguments, "arguments", "", "Arguments for the call, a JSON object, instead of the model's.")
	return cmd
}

func newRefuse(p *plugin) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "refuse THREAD CALL",
		Short: "Refuse a tool call that waits for approval; the model reads the reason and goes on",
		Args:  exactly("THREAD", "CALL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.decide(cmd.Context(), args, func(ctx context.Context, t *runtimeclient.Thread) (*runtimev1.Approval, error) {
				return t.Refuse(ctx, args[1], reason)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "The reason, for the model and for people to read.")
	return cmd
}

func (p *plugin) decide(ctx context.Context, args []string, do func(context.Context, *runtimeclient.Thread) (*runtimev1.Approval, error)) error {
	t, err := p.thread(args[0])
	if err != nil {
		return err
	}
	a, err := do(ctx, t)
	if err != nil {
		return err
	}
	p.changed("call/"+safe(a.ToolCallID), "call/%s of %s %s\n", safe(a.ToolCallID), safe(a.Name), safe(decided(a.Decision)))
	return nil
}

// decided says what was decided and by whom.
func decided(d *runtimev1.Decision) string {
	text := "refused"
	if d.Approved {
		text = "approved"
	}
	if d.By != "" {
		text += " by " + d.By
	}
	return text
}
