package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newUsage(p *plugin) *cobra.Command {
	var output, agent string
	var subtree, records bool
	limit := 50
	cmd := &cobra.Command{
		Use:   "usage [THREAD]",
		Short: "Show what ended runs used: tokens, cost and time",
		Long: `Show what ended runs used: tokens, cost and time.

Show the usage of THREAD. Without THREAD, show the usage of the namespace, including that of deleted threads. Cost is in US
dollars, by the Models' prices.`,
		Example: `  # Of the namespace, and of one agent of it
  kubectl skein usage
  kubectl skein usage --agent analyst

  # Of a thread and its subagents, and of each run of a thread
  kubectl skein usage orders --subtree
  kubectl skein usage orders --records`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			switch {
			case len(args) == 0 && (subtree || records):
				return errors.New("--subtree and --records need a thread: name one")
			case len(args) == 1 && agent != "":
				return errors.New("--agent sums over the namespace: leave out either the thread or the flag")
			case subtree && records:
				return errors.New("set either --subtree or --records")
			case limit < 1 || limit > runtimev1.MaxPageSize:
				return fmt.Errorf("--limit=%d: give a number from 1 to %d", limit, runtimev1.MaxPageSize)
			}
			cfg, ns, err := p.config()
			if err != nil {
				return err
			}
			c, err := runtimeclient.New(cfg)
			if err != nil {
				return err
			}
			if records {
				list, err := c.Thread(ns, args[0]).UsageRecords(cmd.Context(), runtimeclient.Page{Limit: limit})
				if err != nil {
					return err
				}
				if done, err := p.structured(output, list, namesOf(list.Records, func(r *runtimev1.UsageRecord) string { return "run/" + r.RunID })); done {
					return err
				}
				return p.printUsageRecords(list)
			}
			var u *runtimev1.Usage
			place := "namespace/" + ns
			if len(args) == 1 {
				place = "thread/" + args[0]
				u, err = c.Thread(ns, args[0]).Usage(cmd.Context(), subtree)
			} else {
				u, err = c.Usage(cmd.Context(), ns, agent)
			}
			if err != nil {
				return err
			}
			if done, err := p.structured(output, u, []string{place}); done {
				return err
			}
			return p.printUsage(u)
		},
	}
	f := cmd.Flags()
	outputFlag(cmd, &output)
	f.StringVar(&agent, "agent", "", "Show the usage of this agent of the namespace.")
	f.BoolVar(&subtree, "subtree", false, "Include the thread's descendants.")
	f.BoolVar(&records, "records", false, "Show the usage of each run, newest first.")
	f.IntVar(&limit, "limit", limit, "How many records to show.")
	return cmd
}

func (p *plugin) printUsage(u *runtimev1.Usage) error {
	w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "THREADS\tRUNS\tTURNS\tINPUT\tCACHED\tOUTPUT\tCOST\tTIME")
	fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", u.Threads, u.Runs, u.Turns, u.InputTokens, u.CacheReadTokens, u.OutputTokens, cost(u.Cost), took(u.DurationMs))
	return w.Flush()
}

func (p *plugin) printUsageRecords(list *runtimev1.UsageRecordList) error {
	if len(list.Records) == 0 {
		fmt.Fprintln(p.ErrOut, "No run has ended.")
		return nil
	}
	w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "RUN\tWHAT\tMODELS\tTURNS\tINPUT\tCACHED\tOUTPUT\tCOST\tTIME\tENDED")
	for _, r := range list.Records {
		what, models := r.Task, strings.Join(r.Models, ",")
		if what == "" {
			what = "run " + r.Status
		}
		if models == "" {
			models = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s ago\n", r.RunID, what, models, r.Turns, r.InputTokens, r.CacheReadTokens, r.OutputTokens,
			cost(r.Cost), took(r.DurationMs), duration.HumanDuration(time.Since(time.UnixMicro(r.EndedAt))))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if list.HasMore {
		fmt.Fprintln(p.ErrOut, "(there are older ones: --limit shows them)")
	}
	return nil
}

// cost formats an amount without the rounding errors of sums.
func cost(amount float64) string {
	if amount == 0 {
		return "-"
	}
	return strconv.FormatFloat(amount, 'f', 6, 64)
}

func took(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
