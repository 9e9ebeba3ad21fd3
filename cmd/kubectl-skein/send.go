package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

type sendOptions struct {
	wait    bool
	timeout time.Duration
	files   []string
	name    string
	key     string
	policy  string
}

func newSend(p *plugin) *cobra.Command {
	var o sendOptions
	cmd := &cobra.Command{
		Use:   "send THREAD MESSAGE",
		Short: "Send a message to a thread, which starts it if it is idle",
		Example: `  # Send, and print the answer
  kubectl skein send hello "good morning" --wait

  # With a file, which becomes /orders.csv of the thread
  kubectl skein send orders "what is the total?" --file ./orders.csv

  # The message from standard input
  kubectl skein send hello - < question.txt`,
		Args: exactly("THREAD", "MESSAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			text := args[1]
			if text == "-" {
				data, err := io.ReadAll(io.LimitReader(p.In, runtimev1.MaxContentBytes+1))
				if err != nil {
					return err
				}
				text = string(data)
			}
			return p.send(cmd.Context(), t, args[0], text, &o)
		},
	}
	cmd.Flags().BoolVar(&o.wait, "wait", false, "Wait for the run and print what the agent says; fail when the run does.")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "With --wait: how long to wait, 0 for ever.")
	cmd.Flags().StringArrayVarP(&o.files, "file", "f", nil, "A file to attach, as PATH or PATH:/path/in/the/thread; may be given more than once.")
	cmd.Flags().StringVar(&o.name, "name", "", "Name of the speaker.")
	cmd.Flags().StringVar(&o.policy, "policy", "", "What becomes of a run under way: enqueue, reject, interrupt or rollback; the thread's own by default.")
	cmd.Flags().StringVar(&o.key, "idempotency-key", "", "A repeat with the same key changes nothing.")
	return cmd
}

func (p *plugin) send(ctx context.Context, t *runtimeclient.Thread, name, text string, o *sendOptions) error {
	rec, err := t.Get(ctx) // before the message, so that following it misses nothing
	if err != nil {
		return err
	}
	m := runtimev1.NewMessage{Content: text, Name: o.name, IdempotencyKey: o.key, Policy: o.policy}
	if m.IdempotencyKey == "" {
		m.IdempotencyKey = uuid.NewString()
	}
	for _, f := range o.files {
		a, err := upload(ctx, t, f)
		if err != nil {
			return err
		}
		m.Attachments = append(m.Attachments, *a)
	}
	sent, err := t.Queue(ctx, m)
	if err != nil {
		return err
	}
	if !o.wait {
		fmt.Fprintf(p.Out, "message/%s queued\n", sent.ID)
		return nil
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
	}
	after := rec.LastEvent
	if sent.Status != runtimev1.MessagePending {
		after = 0 // a repeat of a message that was taken long ago: its answer is in the log
	}
	err = p.await(ctx, t, after, sent.ID)
	if errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("no end of the run within %s: the message is in the thread all the same, `kubectl skein watch %s` follows it", o.timeout, name)
	}
	return err
}

var errTimeout = errors.New("timeout")

// upload writes a local file into the thread. spec is PATH or PATH:/remote.
func upload(ctx context.Context, t *runtimeclient.Thread, spec string) (*runtimev1.Attachment, error) {
	local, remote := spec, ""
	if i := strings.LastIndex(spec, ":/"); i > 0 {
		local, remote = spec[:i], spec[i+1:]
	}
	if remote == "" {
		remote = path.Join("/", filepath.Base(local))
	}
	f, err := os.Open(local)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rec, err := t.WriteFile(ctx, remote, f, runtimeclient.WriteFileOptions{})
	if err != nil {
		return nil, err
	}
	return &runtimev1.Attachment{Path: rec.Path}, nil
}

// await follows the thread until the run that takes the message has ended, and prints what the agent says in it. A run
// that takes several messages answers all of them, so its answer belongs to each.
func (p *plugin) await(ctx context.Context, t *runtimeclient.Thread, after int64, messageID string) error {
	answer := &answers{live: newLive(transcript{out: p.Out, style: p.style}, isTerminal(p.Out), false), out: p.Out}
	taken := false
	for e, err := range t.Events(ctx, runtimeclient.EventOptions{After: after}) {
		if err != nil {
			return err
		}
		switch {
		case e.Type == runtimev1.EventMessageCreated && e.MessageID == messageID:
			taken, answer.run = true, e.RunID
		case e.Type == runtimev1.EventTerminated:
			return errors.New("the thread was terminated before it answered")
		case taken && e.Type == runtimev1.EventRunEnded && answer.mine(&e):
			answer.finish()
			if o := outcome(&e); o.Status != runtimev1.RunSucceeded {
				return errors.New(o.String())
			}
			return nil
		case taken:
			answer.event(&e)
		}
	}
	return context.Cause(ctx)
}
