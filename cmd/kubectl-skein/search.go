package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newSearch(p *plugin) *cobra.Command {
	var output, thread, role string
	var all bool
	limit := 20
	cmd := &cobra.Command{
		Use:   "search TEXT",
		Short: "Find messages by their text",
		Long: `Find messages by their text, best match first, in the threads that you may read.

A message matches if it has all words, in any order. Put "phrases" in quotes. Put a - before a word that messages must not
have. Put a * after the beginning of a word. A message that a fork inherited is found once, under the thread that it comes
from.`,
		Example: `  # In the namespace
  kubectl skein search invoice

  # In every namespace that you may read
  kubectl skein search '"last week" invoice -draft' --all-namespaces`,
		Args: exactly("TEXT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			if limit < 1 || limit > runtimev1.MaxPageSize {
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
			if all {
				ns = ""
			}
			list, err := c.Search(cmd.Context(), args[0], runtimeclient.SearchOptions{
				Page: runtimeclient.Page{Limit: limit}, Namespace: ns, Thread: thread, Role: role,
			})
			if err != nil {
				return err
			}
			if done, err := p.structured(output, list, namesOf(list.Hits, func(h *runtimev1.SearchHit) string { return "message/" + h.Message.ID })); done {
				return err
			}
			if len(list.Hits) == 0 {
				if err := missing(cmd.Context(), c, ns, thread); err != nil {
					return err
				}
				fmt.Fprintln(p.ErrOut, "Nothing found.")
			}
			for _, h := range list.Hits {
				name := h.Thread
				if all {
					name = h.Namespace + "/" + name
				}
				fmt.Fprintf(p.Out, "%s\t%s\t%s\n", name, h.Message.Role, safe(h.Snippet))
			}
			if list.HasMore {
				fmt.Fprintln(p.ErrOut, "(there is more: --limit shows it)")
			}
			return nil
		},
	}
	outputFlag(cmd, &output)
	cmd.Flags().StringVar(&thread, "thread", "", "Search only this thread.")
	cmd.Flags().StringVar(&role, "role", "", "Find only messages of this role: system, user, assistant or tool.")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "Search every namespace that you may read.")
	cmd.Flags().IntVar(&limit, "limit", limit, "How many messages to show.")
	return cmd
}

// missing returns an error if a thread was named that does not exist: a search of it finds nothing. A caller who may not get threads may
// search nevertheless.
func missing(ctx context.Context, c *runtimeclient.Client, namespace, thread string) error {
	if namespace == "" || thread == "" {
		return nil
	}
	if _, err := c.Thread(namespace, thread).Impatient().Get(ctx); apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
