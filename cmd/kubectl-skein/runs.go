package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newRuns(p *plugin) *cobra.Command {
	var output string
	var page runtimeclient.Page
	cmd := &cobra.Command{
		Use:   "runs THREAD",
		Short: "List the runs of a thread, newest first",
		Args:  exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			l, err := t.Runs(cmd.Context(), page)
			if err != nil {
				return err
			}
			if done, err := p.structured(output, l, namesOf(l.Runs, func(r *runtimev1.Run) string { return "run/" + r.ID })); done {
				return err
			}
			if len(l.Runs) == 0 {
				fmt.Fprintf(p.ErrOut, "No runs of %s.\n", args[0])
				return nil
			}
			w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, wideRow(output, "RUN\tSTATUS\tREASON\tSTEPS\tTOOK\tAGE\tMESSAGE", "AGENT", "STARTED"))
			for i := range l.Runs {
				r := &l.Runs[i]
				fmt.Fprintln(w, wideRow(output, fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s\t%s", r.ID, r.Status, orDash(r.Reason), r.Steps, tookSoFar(r),
					duration.HumanDuration(time.Since(time.UnixMicro(r.StartedAt))), oneLine(r.Message)), r.Agent, dueText(r.StartedAt)))
			}
			if l.HasMore {
				fmt.Fprintf(p.ErrOut, "There are more: --offset %d\n", page.Offset+len(l.Runs))
			}
			return w.Flush()
		},
	}
	cmd.Flags().IntVar(&page.Limit, "limit", 0, "How many runs to list. The default is 100.")
	cmd.Flags().IntVar(&page.Offset, "offset", 0, "How many runs to skip.")
	outputFlag(cmd, &output)
	return cmd
}

// tookSoFar returns how long a run has taken, including its waits.
func tookSoFar(r *runtimev1.Run) string {
	end := time.Now()
	if r.EndedAt != 0 {
		end = time.UnixMicro(r.EndedAt)
	}
	return end.Sub(time.UnixMicro(r.StartedAt)).Round(10 * time.Millisecond).String()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func newCancel(p *plugin) *cobra.Command {
	var message string
	cmd := &cobra.Command{
		Use:   "cancel THREAD RUN",
		Short: "End one run and nothing else; messages in the queue go on",
		Args:  exactly("THREAD", "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			r, err := t.CancelRun(cmd.Context(), args[1], message)
			if err != nil {
				return err
			}
			p.changed("run/"+r.ID, "run/%s %s\n", r.ID, r.Status)
			return nil
		},
	}
	cmd.Flags().StringVar(&message, "message", "", "The reason, for people to read.")
	return cmd
}
