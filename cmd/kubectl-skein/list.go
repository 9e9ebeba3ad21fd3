package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// listPage is how many objects are read at once.
const listPage = 500

// The states of threads. All but the first two are phases of the Thread.
const (
	stateDeleting = "Deleting"
	stateNotReady = "NotReady"
)

// threadStates are the values of list --state.
var threadStates = []string{"Pending", stateNotReady, "Idle", "Running", "Waiting", "Parked", "Terminated", stateDeleting}

// stateOf returns what a thread does at present, in one word.
func stateOf(t *skeinv1.Thread) string {
	switch {
	case t.DeletionTimestamp != nil:
		return stateDeleting
	case t.Status.Phase != "Terminated" && notReady(t.Status.Conditions) != "":
		return stateNotReady
	}
	return orElse(t.Status.Phase, "Pending")
}

// listOptions say which threads to list.
type listOptions struct {
	all                      bool // of all namespaces
	archived, selector       string
	agent, user, task, state string
}

func newList(p *plugin) *cobra.Command {
	var o listOptions
	var output string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List threads with what they do and what they wait for",
		Long: `List threads with what they do and what they wait for, those with the newest activity first. Archived threads are
left out. The list has all Thread objects, also those that are not ready. "kubectl skein history" lists conversations instead.

STATE is Pending, NotReady, Idle, Running, Waiting, Parked, Terminated or Deleting.`,
		Example: `  # All threads of the namespace
  kubectl skein list

  # Those that wait for a person
  kubectl skein list --state=Waiting,NotReady -o wide`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			return p.list(cmd.Context(), &o, output)
		},
	}
	outputFlag(cmd, &output)
	f := cmd.Flags()
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "List the threads of all namespaces.")
	f.StringVar(&o.archived, "archived", "false", `"false" for threads that are not archived, "true" for archived threads, or "all".`)
	f.StringVarP(&o.selector, "selector", "l", "", "List only threads with these labels.")
	f.StringVar(&o.agent, "agent", "", "List only threads of this agent.")
	f.StringVar(&o.user, "user-id", "", "List only threads with this user.")
	f.StringVar(&o.task, "task", "", "List only threads of this task.")
	f.StringVar(&o.state, "state", "", "List only threads in these states, separated by commas: "+strings.Join(threadStates, ", ")+".")
	return cmd
}

// list prints the Threads that the options ask for.
func (p *plugin) list(ctx context.Context, o *listOptions, output string) error {
	wanted, err := o.filter()
	if err != nil {
		return err
	}
	cfg, ns, err := p.config()
	if err != nil {
		return err
	}
	if o.all {
		ns = ""
	}
	c, err := threadObjects(cfg)
	if err != nil {
		return err
	}
	threads, err := o.threads(ctx, c, ns)
	if err != nil {
		return err
	}
	archived, err := p.archived(ctx, o, ns)
	if err != nil {
		return err
	}
	threads = slices.DeleteFunc(threads, func(t skeinv1.Thread) bool {
		return !wanted(&t) || o.archived == "false" && archived[t.ThreadID()] || o.archived == "true" && !archived[t.ThreadID()]
	})
	slices.SortStableFunc(threads, func(a, b skeinv1.Thread) int {
		return cmp.Or(activeAt(&b).Compare(activeAt(&a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if done, err := p.structured(output, objectList("ThreadList", threads), namesOf(threads, func(t *skeinv1.Thread) string { return "thread.skein.dev/" + t.Name })); done {
		return err
	}
	if len(threads) == 0 {
		fmt.Fprintln(p.ErrOut, "No threads found.")
		return nil
	}
	return p.printThreads(threads, archived, o.all, output)
}

// filter returns a function that reports whether a Thread is one that the options ask for.
func (o *listOptions) filter() (func(*skeinv1.Thread) bool, error) {
	if !slices.Contains([]string{"false", "true", "all"}, o.archived) {
		return nil, fmt.Errorf("--archived=%s: give false, true or all", o.archived)
	}
	states := map[string]bool{}
	for _, word := range strings.FieldsFunc(o.state, func(r rune) bool { return r == ',' }) {
		i := slices.IndexFunc(threadStates, func(s string) bool { return strings.EqualFold(s, strings.TrimSpace(word)) })
		if i < 0 {
			return nil, fmt.Errorf("--state=%s: give %s", word, strings.Join(threadStates, ", "))
		}
		states[threadStates[i]] = true
	}
	return func(t *skeinv1.Thread) bool {
		return (len(states) == 0 || states[stateOf(t)]) &&
			(o.agent == "" || orElse(t.Status.Agent, t.Spec.AgentRef.Name) == o.agent) &&
			(o.user == "" || t.Spec.UserID == o.user) && (o.task == "" || t.Spec.TaskID == o.task)
	}, nil
}

// threads reads the Thread objects, page by page.
func (o *listOptions) threads(ctx context.Context, c client.Client, ns string) ([]skeinv1.Thread, error) {
	opts := []client.ListOption{client.InNamespace(ns), client.Limit(listPage)}
	if o.selector != "" {
		selector, err := labels.Parse(o.selector)
		if err != nil {
			return nil, fmt.Errorf("--selector=%s: %w", o.selector, err)
		}
		opts = append(opts, client.MatchingLabelsSelector{Selector: selector})
	}
	var all []skeinv1.Thread
	for next := ""; ; {
		var page skeinv1.ThreadList
		if err := c.List(ctx, &page, append(opts, client.Continue(next))...); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if next = page.Continue; next == "" {
			return all, nil
		}
	}
}

// archived returns the ids of the archived threads. Only the runtime API knows them. Who may not read it sees archived threads as
// others, which the command says.
func (p *plugin) archived(ctx context.Context, o *listOptions, ns string) (map[string]bool, error) {
	ids, err := p.archivedIDs(ctx, ns)
	if err == nil || o.archived == "true" || ctx.Err() != nil {
		return ids, err
	}
	if o.archived == "false" {
		fmt.Fprintf(p.ErrOut, "(This list has archived threads too, because the runtime API does not say which are archived: %v)\n", err)
	}
	return nil, nil
}

func (p *plugin) archivedIDs(ctx context.Context, ns string) (map[string]bool, error) {
	c, _, err := p.client()
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for next, more := "", true; more; {
		page, err := c.History(ctx, ns, runtimeclient.HistoryOptions{Archived: "true", Limit: runtimev1.MaxPageSize, Continue: next})
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			ids[page.Items[i].ThreadID] = true
		}
		if next, more = page.Continue, page.HasMore; more && next == "" {
			return nil, errors.New("the list of archived threads has no end")
		}
	}
	return ids, nil
}

func (p *plugin) printThreads(threads []skeinv1.Thread, archived map[string]bool, withNamespace bool, output string) error {
	w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	head := wideRow(output, "NAME\tAGENT\tSTATE\tMESSAGES\tLAST RUN\tACTIVE\tWAITS FOR", "PARENT", "USER", "TASK", "TITLE", "AGE", "ID")
	if withNamespace {
		head = "NAMESPACE\t" + head
	}
	fmt.Fprintln(w, head)
	for i := range threads {
		t := &threads[i]
		if withNamespace {
			fmt.Fprintf(w, "%s\t", t.Namespace)
		}
		state := stateOf(t)
		if archived[t.ThreadID()] {
			state += " (archived)"
		}
		waits := blockerOf(t).reason
		if output == outputWide {
			waits = blockerOf(t).text()
		}
		fmt.Fprintln(w, wideRow(output, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", t.Name, orElse(t.Status.Agent, t.Spec.AgentRef.Name), state, messagesOf(t), orDash(lastRun(t)),
			duration.HumanDuration(time.Since(activeAt(t))), orDash(shorten(safe(waits)))),
			t.Status.Parent, t.Spec.UserID, t.Spec.TaskID, shorten(t.Spec.Title), duration.HumanDuration(time.Since(t.CreationTimestamp.Time)), t.ThreadID()))
	}
	return w.Flush()
}

// messagesOf returns how many messages a thread has, and how many wait.
func messagesOf(t *skeinv1.Thread) string {
	text := fmt.Sprint(t.Status.Messages)
	if n := t.Status.QueuedMessages; n > 0 {
		text += fmt.Sprintf(" (+%d queued)", n)
	}
	return text
}

// lastRun returns how the newest run of a thread ended, or that it is under way.
func lastRun(t *skeinv1.Thread) string {
	r := t.Status.LastRun
	if r == nil {
		return ""
	}
	text := orElse(string(r.Outcome), "under way")
	if r.Reason != "" && r.Outcome != "" {
		text += " (" + r.Reason + ")"
	}
	return text
}

// activeAt returns when something last happened in a thread.
func activeAt(t *skeinv1.Thread) time.Time {
	if at := t.Status.LastActivityTime; at != nil {
		return at.Time
	}
	return t.CreationTimestamp.Time
}
