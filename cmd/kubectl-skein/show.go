package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// maxShownChildren bounds the children that show lists, unless all are asked for.
const maxShownChildren = 10

func newShow(p *plugin) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "show THREAD",
		Short: "Show what a thread is, what it does and waits for, its last run, its children and its cost",
		Long: `Show what a thread is, what it does and waits for, its last run, its children and what its runs have cost. For a thread
that waits, the command also prints the command that helps, if there is one. -o wide lists all children that the Thread's
status has, and -o json prints the Thread.`,
		Example: `  kubectl skein show orders`,
		Args:    exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			t, err := p.threadObject(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			t.TypeMeta.APIVersion, t.TypeMeta.Kind = skeinv1.GroupVersion.String(), "Thread"
			if done, err := p.structured(output, t, []string{"thread.skein.dev/" + t.Name}); done {
				return err
			}
			return p.show(cmd.Context(), t, output == outputWide)
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

// threadObject returns a Thread by its name, or by any form of its id.
func (p *plugin) threadObject(ctx context.Context, name string) (*skeinv1.Thread, error) {
	c, ns, err := p.objects()
	if err != nil {
		return nil, err
	}
	var obj skeinv1.Thread
	notFound := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &obj)
	if !apierrors.IsNotFound(notFound) && !apierrors.IsInvalid(notFound) {
		return &obj, notFound
	}
	t, err := p.thread(name)
	if err != nil {
		return nil, notFound
	}
	record, err := t.Get(ctx)
	if err != nil || record.Name == "" {
		return nil, notFound
	}
	return &obj, c.Get(ctx, client.ObjectKey{Namespace: ns, Name: record.Name}, &obj)
}

// rows prints names and values in two columns. Rows without a value are left out.
type rows struct{ w *tabwriter.Writer }

func (r rows) add(name, value string) {
	if value != "" {
		fmt.Fprintf(r.w, "%s:\t%s\n", name, strings.ReplaceAll(safe(value), "\n", "\n\t"))
	}
}

func (p *plugin) show(ctx context.Context, t *skeinv1.Thread, all bool) error {
	w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	r := rows{w}
	record := p.recordOf(ctx, t)
	r.add("Name", t.Name)
	r.add("Namespace", t.Namespace)
	title := t.Spec.Title
	if record != nil && record.Title != "" {
		title = record.Title
	}
	r.add("Title", title)
	agent := orElse(t.Status.Agent, t.Spec.AgentRef.Name)
	if from := t.Status.OriginAgent; from != "" && from != agent {
		agent += " (made with " + from + ")"
	}
	r.add("Agent", agent)
	r.add("User", t.Spec.UserID)
	r.add("Task", t.Spec.TaskID)
	r.add("Parent", t.Status.Parent)
	if from := t.Spec.ForkFrom; from != nil {
		r.add("Forked from", from.ThreadRef.Name)
	}
	r.add("ID", t.ThreadID())
	r.add("Created", timeAgo(t.CreationTimestamp.Time))
	state := stateOf(t)
	if record != nil && record.Archived {
		state += ", archived"
	}
	r.add("State", state)
	if err := p.showWaiting(ctx, r, t); err != nil {
		return err
	}
	if n := t.Status.Messages; n > 0 || t.Status.QueuedMessages > 0 {
		r.add("Messages", messagesOf(t)+", last activity "+timeAgo(activeAt(t)))
	}
	r.add("Last run", shownRun(t.Status.LastRun))
	r.add("Used", shownUsage(t.Status.Usage))
	r.add("Children", shownCounts(t))
	if err := w.Flush(); err != nil {
		return err
	}
	return printChildren(p.Out, t.Status.Children, all)
}

// recordOf returns what the runtime API has of a thread, or nil when it does not say: the Thread has nearly all of it.
func (p *plugin) recordOf(ctx context.Context, t *skeinv1.Thread) *runtimev1.ThreadRecord {
	th, err := p.thread(t.Name)
	if err != nil {
		return nil
	}
	record, err := th.Impatient().Get(ctx) // what a Thread that is being set up waits for is shown at once
	if err != nil {
		if apierrors.IsForbidden(err) {
			fmt.Fprintln(p.ErrOut, "(You may not read the runtime API, so this leaves out what only it has.)")
		}
		return nil
	}
	return record
}

// showWaiting adds what a thread waits for, and the commands that help.
func (p *plugin) showWaiting(ctx context.Context, r rows, t *skeinv1.Thread) error {
	b := blockerOf(t)
	if b.reason == "" {
		return nil
	}
	r.add("Waits for", b.text())
	th, err := p.thread(t.Name)
	if err != nil {
		return err
	}
	_, why, err := p.blockers(th)
	if err != nil {
		return err
	}
	why.name = t.Name
	r.add("Help with", strings.Join(why.nextSteps(ctx, b), "\n"))
	return nil
}

func timeAgo(at time.Time) string { return duration.HumanDuration(time.Since(at)) + " ago" }

func shownRun(run *skeinv1.RunStatus) string {
	if run == nil {
		return ""
	}
	text := orElse(string(run.Outcome), "under way")
	if run.Reason != "" {
		text += " (" + run.Reason + ")"
	}
	text += fmt.Sprintf(", %s, %s", count(int64(run.Steps), "step"), run.ID)
	if run.Message != "" {
		text += "\n" + run.Message
	}
	return text
}

func shownUsage(u *skeinv1.UsageStatus) string {
	if u == nil {
		return ""
	}
	text := fmt.Sprintf("%s, %s, %d tokens read, %d written", count(u.Runs, "run"), count(u.Turns, "model call"), u.InputTokens, u.OutputTokens)
	if u.Cost != "" {
		text += ", $" + u.Cost
	}
	return text
}

func shownCounts(t *skeinv1.Thread) string {
	if t.Status.ChildCount == 0 {
		return ""
	}
	text := fmt.Sprint(t.Status.ChildCount)
	if shown := len(t.Status.Children); shown > maxShownChildren || int(t.Status.ChildCount) > shown {
		text += ", `kubectl skein tree " + t.Name + "` shows all"
	}
	return text
}

func printChildren(out io.Writer, children []skeinv1.ChildStatus, all bool) error {
	if len(children) == 0 {
		return nil
	}
	if !all && len(children) > maxShownChildren {
		children = children[:maxShownChildren]
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "  CHILD\tNAME\tSTATUS\tTITLE")
	for i := range children {
		c := &children[i]
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", c.Reference, orDash(safe(c.Name)), orDash(safe(c.Status)), orDash(shorten(safe(c.Title))))
	}
	return w.Flush()
}
