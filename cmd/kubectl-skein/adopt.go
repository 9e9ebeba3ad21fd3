package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func newAdopt(p *plugin) *cobra.Command {
	var name, agent, output string
	var list bool
	timeout := time.Minute
	cmd := &cobra.Command{
		Use:   "adopt (--list | ID [--name NAME] [--agent AGENT])",
		Short: "Give a new Thread to a conversation whose object is gone",
		Long: `Give a new Thread to a conversation whose object is gone. The data need not be retained, as after the cluster was created
anew with the old database. A run that was under way ends. You need the ClusterRole skein-backup.`,
		Example: `  # Which conversations have no object
  kubectl skein adopt --list

  # Go on with one of them
  kubectl skein adopt 6f1c2a54-0000-4000-8000-000000000001 --name orders`,
		Args: upTo(0, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			c, ns, err := p.client()
			switch {
			case err != nil:
				return err
			case list && len(args) == 0:
				return p.listOrphans(cmd.Context(), c, ns, output)
			case list || len(args) == 0:
				return errors.New("give the ID of a conversation, or --list to see which have no object")
			}
			return p.adopt(cmd.Context(), c, ns, args[0], name, agent, timeout)
		},
	}
	outputFlag(cmd, &output)
	cmd.Flags().BoolVar(&list, "list", false, "List conversations whose object is gone.")
	cmd.Flags().StringVar(&name, "name", "", "The name of the new Thread. The default is the name of the last Thread with this conversation.")
	cmd.Flags().StringVar(&agent, "agent", "", "The agent of the new Thread. The default is the agent that the conversation had.")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "How long to wait until the Thread has the conversation.")
	return cmd
}

func orphans(ctx context.Context, c *runtimeclient.Client, ns string) (all []runtimev1.ThreadRecord, err error) {
	for after := ""; ; {
		page, err := c.Orphans(ctx, ns, after, runtimev1.MaxPageSize)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Threads...)
		if !page.HasMore || len(page.Threads) == 0 {
			return all, nil
		}
		after = page.Threads[len(page.Threads)-1].ThreadID
	}
}

func (p *plugin) listOrphans(ctx context.Context, c *runtimeclient.Client, ns, output string) error {
	all, err := orphans(ctx, c, ns)
	if err != nil {
		return err
	}
	list := &runtimev1.RetainedList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindRetainedList), Threads: all}
	if done, err := p.structured(output, list, namesOf(all, func(t *runtimev1.ThreadRecord) string { return t.ThreadID })); done {
		return err
	}
	if len(all) == 0 {
		fmt.Fprintf(p.ErrOut, "No conversation in namespace %s has lost its object. kubectl skein retained lists retained conversations.\n", ns)
		return nil
	}
	w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "THREAD ID\tWAS\tAGENT\tMESSAGES\tQUEUED")
	for _, t := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\n", t.ThreadID, t.Name, t.AgentID, t.MessageCount, t.QueuedCount)
	}
	return w.Flush()
}

func (p *plugin) adopt(ctx context.Context, c *runtimeclient.Client, ns, id, name, agent string, timeout time.Duration) error {
	cfg, _, err := p.config()
	if err != nil {
		return err
	}
	rec, err := c.Thread(ns, id).Get(ctx)
	if err != nil {
		return err
	}
	if name == "" {
		name = rec.Name
	}
	if agent == "" {
		agent = rec.AgentID
	}
	objects, err := threadObjects(cfg)
	if err != nil {
		return err
	}
	o := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: agent}, ThreadID: rec.ThreadID}}
	// The thread may be one with an object, of the same name: the server says so.
	if err := mayCreate(ctx, objects, o.DeepCopy()); err != nil {
		return err
	}
	if err := c.RetainOrphan(ctx, ns, rec.ThreadID); err != nil {
		return err
	}
	err = objects.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("a Thread %q exists already: name the new one with --name. The conversation is retained meanwhile", name)
	}
	if err != nil {
		return err
	}
	if err := awaitThread(ctx, objects, c.Thread(ns, name), o, timeout); err != nil {
		return err
	}
	fmt.Fprintf(p.Out, "thread/%s has the conversation %s\n", name, rec.ThreadID)
	return nil
}
