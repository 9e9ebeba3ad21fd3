package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newStop(p *plugin) *cobra.Command {
	var message string
	cmd := &cobra.Command{
		Use:   "stop THREAD",
		Short: "Stop the run under way; the thread goes on with the next message",
		Args:  exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			rec, err := t.Stop(cmd.Context(), message)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.Out, "thread/%s stopped\n", rec.Name)
			return nil
		},
	}
	cmd.Flags().StringVar(&message, "message", "", "Why, for people.")
	return cmd
}

func newTerminate(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "terminate THREAD",
		Short: "End a thread and its subagents for good; what was said can still be read",
		Args:  exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			if err := t.Terminate(cmd.Context()); err != nil {
				return err
			}
			fmt.Fprintf(p.Out, "thread/%s terminated\n", args[0])
			return nil
		},
	}
}
