package main

import (
	"context"

	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// verb is a command that makes one change to a thread and reports it.
type verb struct {
	name, short string
	done        string // the state of the thread afterwards
	// do makes the change and returns the thread's record, or nil when the API returns none.
	do func(context.Context, *runtimeclient.Thread) (*runtimev1.ThreadRecord, error)
}

func (v verb) command(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   v.name + " THREAD",
		Short: v.short,
		Args:  exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			rec, err := v.do(cmd.Context(), t)
			if err != nil {
				return err
			}
			name := args[0]
			if rec != nil {
				name = rec.Name // also when the argument is an id
			}
			p.changed(threadName(name), "thread/%s %s\n", name, v.done)
			return nil
		},
	}
}

func newStop(p *plugin) *cobra.Command {
	var message string
	cmd := verb{"stop", "Stop the run under way; the thread goes on with the next message", "stopped",
		func(ctx context.Context, t *runtimeclient.Thread) (*runtimev1.ThreadRecord, error) {
			return t.Stop(ctx, message)
		}}.command(p)
	cmd.Flags().StringVar(&message, "message", "", "The reason, for people to read.")
	return cmd
}

func newContinue(p *plugin) *cobra.Command {
	return verb{"continue", "Resume the messages that wait in the queue since the thread was stopped", "continued",
		func(ctx context.Context, t *runtimeclient.Thread) (*runtimev1.ThreadRecord, error) {
			return t.Continue(ctx)
		}}.command(p)
}

func newDestroy(p *plugin) *cobra.Command {
	return verb{"destroy", "Clear the conversation; files and values stay, and the thread can be used again", "destroyed",
		func(ctx context.Context, t *runtimeclient.Thread) (*runtimev1.ThreadRecord, error) {
			return t.Destroy(ctx)
		}}.command(p)
}

func newTerminate(p *plugin) *cobra.Command {
	return verb{"terminate", "End a thread and its subagents for good; what was said can still be read", "terminated",
		func(ctx context.Context, t *runtimeclient.Thread) (*runtimev1.ThreadRecord, error) {
			return nil, t.Terminate(ctx)
		}}.command(p)
}

func newArchive(p *plugin) *cobra.Command {
	return verb{"archive", "Hide a thread from the history; it can still be read and written", "archived",
		func(ctx context.Context, t *runtimeclient.Thread) (*runtimev1.ThreadRecord, error) {
			return t.Archive(ctx)
		}}.command(p)
}

func newUnarchive(p *plugin) *cobra.Command {
	return verb{"unarchive", "Show an archived thread in the history again", "unarchived",
		func(ctx context.Context, t *runtimeclient.Thread) (*runtimev1.ThreadRecord, error) {
			return t.Unarchive(ctx)
		}}.command(p)
}
