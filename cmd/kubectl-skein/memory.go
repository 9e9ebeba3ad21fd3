package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// maxRecalled bounds how much of a message is printed.
const maxRecalled = 160

func newMemory(p *plugin) *cobra.Command {
	var output string
	var since time.Duration
	limit := 10
	cmd := &cobra.Command{
		Use:   "memory THREAD TEXT",
		Short: "Find what was said before in threads of the same agent and user, by meaning",
		Long: `Find what was said before in threads of the same agent and user, by meaning, closest first.

The agent needs spec.memory. The command shows only messages of threads that you may read.`,
		Example: `  kubectl skein memory orders "what did we say about late deliveries?" --since 720h`,
		Args:    exactly("THREAD", "TEXT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			if limit < 1 || limit > runtimev1.MaxMemoryHits {
				return fmt.Errorf("--limit=%d: give a number from 1 to %d", limit, runtimev1.MaxMemoryHits)
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			o := runtimeclient.MemoryOptions{Limit: limit}
			if since > 0 {
				o.Since = time.Now().Add(-since)
			}
			list, err := t.SearchMemory(cmd.Context(), args[1], o)
			if err != nil {
				return err
			}
			if done, err := p.structured(output, list, namesOf(list.Hits, func(h *runtimev1.MemoryHit) string { return "message/" + h.Message.ID })); done {
				return err
			}
			if len(list.Hits) == 0 {
				fmt.Fprintln(p.ErrOut, "Nothing found.")
			}
			for _, h := range list.Hits {
				text := ""
				if h.Message.Content != nil {
					text = strings.Join(strings.Fields(*h.Message.Content), " ")
				}
				if runes := []rune(text); len(runes) > maxRecalled {
					text = string(runes[:maxRecalled]) + "…"
				}
				fmt.Fprintf(p.Out, "%.3f\t%s\t%s\t%s\n", h.Score, h.Thread, h.Message.Role, safe(text))
			}
			return nil
		},
	}
	outputFlag(cmd, &output)
	cmd.Flags().DurationVar(&since, "since", 0, "Show only messages from this period up to now, such as 72h.")
	cmd.Flags().IntVar(&limit, "limit", limit, "How many messages to show.")
	return cmd
}
