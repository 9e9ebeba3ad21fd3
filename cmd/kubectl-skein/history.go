package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newHistory(p *plugin) *cobra.Command {
	var o runtimeclient.HistoryOptions
	var allNamespaces bool
	var output string
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List threads, newest activity first",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			cfg, ns, err := p.config()
			if err != nil {
				return err
			}
			c, err := runtimeclient.New(cfg)
			if err != nil {
				return err
			}
			if allNamespaces {
				ns = ""
			}
			list, err := c.History(cmd.Context(), ns, o)
			if err != nil {
				return err
			}
			if done, err := p.structured(output, list, namesOf(list.Items, func(t *runtimev1.ThreadHistory) string { return "thread.skein.dev/" + t.Name })); done {
				return err
			}
			if len(list.Items) == 0 {
				fmt.Fprintln(p.ErrOut, "No threads found.")
				return nil
			}
			p.printHistory(list, allNamespaces, output)
			if list.HasMore {
				fmt.Fprintf(p.ErrOut, "There are more: --continue=%s\n", list.Continue)
			}
			return nil
		},
	}
	outputFlag(cmd, &output)
	f := cmd.Flags()
	f.BoolVarP(&allNamespaces, "all-namespaces", "A", false, "List the threads of all namespaces.")
	f.IntVar(&o.Limit, "limit", 50, "List at most this number of threads.")
	f.StringVar(&o.Continue, "continue", "", "Continue after an earlier list, with the value that it printed.")
	f.StringVar(&o.Archived, "archived", "false", `"false" for threads that are not archived, "true" for archived threads, or "all".`)
	f.StringVar(&o.Agent, "agent", "", "List only threads of this agent.")
	f.StringVar(&o.User, "user-id", "", "List only threads with this user.")
	f.StringVar(&o.Task, "task", "", "List only threads of this task.")
	return cmd
}

func (p *plugin) printHistory(list *runtimev1.ThreadHistoryList, withNamespace bool, output string) {
	w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	head := wideRow(output, "NAME\tTITLE\tAGENT\tMESSAGES\tFILES\tACTIVE\tID", "USER", "TASK", "CREATED", "RELATIONSHIPS")
	if withNamespace {
		head = "NAMESPACE\t" + head
	}
	fmt.Fprintln(w, head)
	names := map[string]string{}
	for _, i := range list.Items {
		names[i.ThreadID] = i.Name
	}
	for _, i := range list.Items {
		if withNamespace {
			fmt.Fprintf(w, "%s\t", i.Namespace)
		}
		title := "-"
		if i.Title != nil {
			title = oneLine(*i.Title)
		}
		if i.Archived {
			title += " (archived)"
		}
		d := i.SummaryStats.DiffStats
		user := ""
		if i.UserID != nil {
			user = *i.UserID
		}
		fmt.Fprintln(w, wideRow(output, fmt.Sprintf("%s\t%s\t%s\t%d\t+%d ~%d -%d\t%s\t%s", i.Name, title, i.AgentID, i.SummaryStats.MessageCount,
			d.Added, d.Changed, d.Removed, duration.HumanDuration(time.Since(time.UnixMicro(i.LastActivityAt))), i.ThreadID), user, i.TaskID, dueText(i.Created), related(&i, names)))
	}
	_ = w.Flush() // ignored, as other write errors of the output
}

// related returns the relationships that made a thread, and the outermost thread of its family. Threads have the names that are known,
// and otherwise their ids.
func related(i *runtimev1.ThreadHistory, names map[string]string) string {
	name := func(id string) string { return cmp.Or(names[id], id) }
	var all []string
	if i.MainThreadID != "" {
		all = append(all, "below "+name(i.MainThreadID))
	}
	for _, r := range i.ParentRelationships {
		how := r.Type + " of"
		if r.Type == edgeMention {
			how = "mentioned by"
		}
		text := how + " " + name(r.ThreadID)
		if r.MessageIndex != nil {
			text += fmt.Sprintf(" at %d", *r.MessageIndex)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}
