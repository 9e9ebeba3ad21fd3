package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newEffectHistory(p *plugin) *cobra.Command {
	var limit int
	var output string
	cmd := &cobra.Command{
		Use:   "history EFFECT",
		Short: "List what fired, how it ended, and what did not fire",
		Args:  exactly("EFFECT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			c, ns, err := p.client()
			if err != nil {
				return err
			}
			list, err := c.Firings(cmd.Context(), ns, args[0], client.FiringPage{Limit: limit})
			if err != nil {
				return err
			}
			if done, err := p.structured(output, list, namesOf(list.Firings, func(f *runtimev1.Firing) string { return firingPrefix + dueText(f.Due) })); done {
				return err
			}
			w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, wideRow(output, "DUE\tSTATUS\tORIGIN\tATTEMPTS\tTOOK\tTHREAD\tMESSAGE", "FIRED", "COST"))
			for i := range list.Firings {
				f := &list.Firings[i]
				fmt.Fprintln(w, wideRow(output, fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s\t%s", dueText(f.Due), f.Status, orDash(f.Origin), f.Attempts, firingTook(f), orDash(cmp.Or(f.ThreadID, f.Thread)), oneLine(f.Error, f.Waiting)), dueText(f.FiredAt), cost(f.Cost)))
			}
			for _, k := range list.Skipped {
				text := k.Reason
				if k.Count > 1 {
					text = fmt.Sprintf("%s: %d due times until %s", k.Reason, k.Count, dueText(k.Until))
				}
				if k.Detail != "" {
					text += ": " + k.Detail
				}
				fmt.Fprintf(w, "%s\tskipped\t-\t0\t-\t%s\t%s\n", dueText(k.Due), orDash(k.ThreadID), oneLine(text))
			}
			return w.Flush()
		},
	}
	outputFlag(cmd, &output)
	cmd.Flags().IntVar(&limit, "limit", 20, "How many firings to list, the newest ones.")
	return cmd
}

func newEffectLogs(p *plugin) *cobra.Command {
	var due string
	cmd := &cobra.Command{
		Use:   "logs EFFECT",
		Short: "Print what the code of a firing without a thread wrote",
		Long: `Print what the code of a firing without a thread wrote. Without --due it is the newest firing.

The log of a thread has what the code of its firings wrote: kubectl skein logs THREAD --firing EFFECT/TIME.`,
		Args: exactly("EFFECT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			before := int64(0)
			if due != "" {
				at, err := time.Parse(time.RFC3339Nano, due)
				if err != nil {
					return fmt.Errorf("--due %q: write a time such as 2027-01-31T09:00:00Z", due)
				}
				before = at.UnixMicro() + 1
			}
			c, ns, err := p.client()
			if err != nil {
				return err
			}
			list, err := c.Firings(cmd.Context(), ns, args[0], client.FiringPage{Before: before, Limit: 1})
			if err != nil {
				return err
			}
			if len(list.Firings) == 0 || (due != "" && list.Firings[0].Due != before-1) {
				return errors.New("there is no such firing: see kubectl skein effect history " + args[0])
			}
			f := &list.Firings[0]
			if thread := cmp.Or(f.ThreadID, f.Thread); f.Log == "" && thread != "" {
				only := ""
				if f.ThreadID != "" {
					only = fmt.Sprintf(" --firing %s/%s", args[0], dueText(f.Due))
				}
				fmt.Fprintf(p.ErrOut, "The firing has a thread, which has its log: kubectl skein logs %s%s\n", thread, only)
			}
			fmt.Fprint(p.Out, safe(list.Firings[0].Log))
			return nil
		},
	}
	cmd.Flags().StringVar(&due, "due", "", "Due time of the firing, as effect history prints it. The default is the newest.")
	return cmd
}

func dueText(micros int64) string { return time.UnixMicro(micros).UTC().Format(time.RFC3339Nano) }

func firingTook(f *runtimev1.Firing) string {
	if f.EndedAt == 0 || f.StartedAt == 0 {
		return "-"
	}
	return (time.Duration(f.EndedAt-f.StartedAt) * time.Microsecond).Round(time.Millisecond).String()
}

// oneLine joins texts for a column of a table.
func oneLine(texts ...string) string {
	text := strings.Join(strings.Fields(strings.Join(texts, " ")), " ")
	return orDash(safe(text))
}
