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

func newRetained(p *plugin) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "retained",
		Short: "List threads whose object was deleted and whose data was kept",
		Example: `  # What is kept in this namespace
  kubectl skein retained

  # Give it to a new Thread: name its id in spec.threadID
  # Remove it for good
  kubectl skein purge 6f1c2a54-0000-4000-8000-000000000001`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			c, ns, err := p.client()
			if err != nil {
				return err
			}
			all := &runtimev1.RetainedList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindRetainedList), Threads: []runtimev1.ThreadRecord{}}
			for after := ""; ; {
				page, err := c.Retained(cmd.Context(), ns, after, runtimev1.MaxPageSize)
				if err != nil {
					return err
				}
				all.Threads = append(all.Threads, page.Threads...)
				if !page.HasMore || len(page.Threads) == 0 {
					break
				}
				after = page.Threads[len(page.Threads)-1].ThreadID
			}
			if done, err := p.structured(output, all, namesOf(all.Threads, func(t *runtimev1.ThreadRecord) string { return t.ThreadID })); done {
				return err
			}
			if len(all.Threads) == 0 {
				fmt.Fprintf(p.ErrOut, "No retained threads in namespace %s.\n", ns)
				return nil
			}
			w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "THREAD ID\tWAS\tAGENT\tMESSAGES\tQUEUED\tRETAINED")
			for _, t := range all.Threads {
				age := "?"
				if t.Retained != nil {
					age = duration.HumanDuration(time.Since(time.UnixMicro(*t.Retained)))
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", t.ThreadID, t.Name, t.AgentID, t.MessageCount, t.QueuedCount, age)
			}
			return w.Flush()
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

func newPurge(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "purge ID",
		Short: "Remove the data of a retained thread for good",
		Args:  exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, ns, err := p.client()
			if err != nil {
				return err
			}
			if err := c.PurgeRetained(cmd.Context(), ns, args[0]); err != nil {
				return err
			}
			p.changed(threadName(args[0]), "thread %s purged\n", args[0])
			return nil
		},
	}
}

// client returns a client of the runtime API, and the namespace from the flags and the kubeconfig.
func (p *plugin) client() (*runtimeclient.Client, string, error) {
	cfg, ns, err := p.config()
	if err != nil {
		return nil, "", err
	}
	c, err := runtimeclient.New(cfg)
	return c, ns, err
}
