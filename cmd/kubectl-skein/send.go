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

// defaultSendTimeout is long enough for a run with some tool calls and one approval by a person.
const defaultSendTimeout = 10 * time.Minute

// lastRead bounds the read of the run that answered.
const lastRead = 10 * time.Second

type sendOptions struct {
	wait    bool
	timeout time.Duration
	files   []string
	name    string
	key     string
	policy  string
	output  string
}

func newSend(p *plugin) *cobra.Command {
	var o sendOptions
	cmd := &cobra.Command{
		Use:   "send THREAD MESSAGE",
		Short: "Send a message to a thread, which starts it if it is idle",
		Long: `Send a message to a thread, which starts it if it is idle.

With --wait the command prints the answer to this message. While the thread waits for something, such as an approval, a
variable or a Secret, it prints the reason and what to do about it to standard error. It exits with

  0  when the run succeeded
  2  when the server refused the message
  3  when the run failed
  4  when the run was stopped or cancelled
  5  when the thread was terminated or deleted before it answered
  6  when the time ran out while the thread worked
  7  when the time ran out while the thread needed a person, also before it was set up
  1  on any other error, and 130 when it was interrupted

A message that was sent stays in the thread, whatever the exit code. With --wait the command also waits until a Thread that
is not set up yet can take the message.`,
		Example: `  # Send, and print the answer
  kubectl skein send hello "good morning" --wait

  # With a file, which becomes /orders.csv of the thread
  kubectl skein send orders "what is the total?" --file ./orders.csv

  # The message from standard input
  kubectl skein send hello - < question.txt

  # The message, the run and the answers as JSON
  kubectl skein send hello "good morning" --wait -o json`,
		Args: exactly("THREAD", "MESSAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.output != outputName {
				if err := checkOutput(o.output); err != nil {
					return fmt.Errorf("--output=%s: give json, yaml or name", o.output)
				}
			}
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
			if o.timeout, err = p.answerTimeout(cmd, o.timeout); err != nil {
				return err
			}
			return p.send(cmd.Context(), t, args[0], text, &o)
		},
	}
	cmd.Flags().BoolVar(&o.wait, "wait", false, "Wait for the run and print what the agent says. Fail if the run fails.")
	cmd.Flags().DurationVar(&o.timeout, "timeout", defaultSendTimeout, "With --wait: how long to wait; 0 means no limit. If only --request-timeout is set, that is the time.")
	cmd.Flags().StringArrayVarP(&o.files, "file", "f", nil, "A file to attach, as PATH or PATH:/path/in/the/thread. You can repeat this flag.")
	cmd.Flags().StringVar(&o.name, "name", "", "Name of the speaker.")
	cmd.Flags().StringVar(&o.policy, "policy", "", "What happens to a run under way: enqueue, reject, interrupt or rollback. The default is the thread's own policy.")
	cmd.Flags().StringVar(&o.key, "idempotency-key", "", "A key for this message. A repeat with the same key changes nothing, and another message with it is refused.")
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "Output format: json, yaml or name.")
	return cmd
}

// answerTimeout returns how long a command waits for an answer: --timeout, or --request-timeout if only that is set.
func (p *plugin) answerTimeout(cmd *cobra.Command, timeout time.Duration) (time.Duration, error) {
	if cmd.Flags().Changed("timeout") {
		return timeout, nil
	}
	d, err := p.requestTimeout()
	if err != nil || d <= 0 {
		return timeout, err
	}
	return d, nil
}

func (p *plugin) send(ctx context.Context, t *runtimeclient.Thread, name, text string, o *sendOptions) error {
	var rec *runtimev1.ThreadRecord
	left := o.timeout
	if o.wait {
		var err error
		if rec, err = t.Get(ctx); notSetUp(err) { // before the message is sent, so that no event is missed
			rec, left, err = p.setUp(ctx, t, name, o.timeout)
		}
		if err != nil {
			return refused(toSend(err))
		}
	}
	m := runtimev1.NewMessage{Content: text, Name: o.name, IdempotencyKey: o.key, Policy: o.policy}
	if m.IdempotencyKey == "" {
		m.IdempotencyKey = uuid.NewString()
	}
	for _, f := range o.files {
		a, err := upload(ctx, t, f)
		if err != nil {
			return refused(err)
		}
		m.Attachments = append(m.Attachments, *a)
	}
	sent, err := t.Queue(ctx, m)
	if err != nil {
		return refused(err)
	}
	result := &sending{Message: sent}
	if !o.wait {
		if done, err := p.structured(o.output, result, []string{"message/" + sent.ID}); done {
			return err
		}
		fmt.Fprintf(p.Out, "message/%s queued\n", sent.ID)
		return nil
	}
	ctx, cancel := limited(ctx, left)
	defer cancel()
	why, stop, err := p.watchBlockers(ctx, t, rec.ObjectMeta.Name)
	if err != nil {
		return err
	}
	defer stop()
	after := rec.LastEvent
	if sent.Status != runtimev1.MessagePending {
		after = 0 // a repeat of a message that was processed long ago: its answer is in the log
	}
	answer := &answers{live: newLive(transcript{out: p.Out, style: p.style}, o.output == "" && isTerminal(p.Out), false), out: p.Out, keep: o.output != ""}
	err = p.await(ctx, t, after, sent.ID, answer)
	if o.output != "" {
		result.Answers = answer.said
		err = errors.Join(err, p.printSending(ctx, t, o.output, result, answer.run))
	}
	if errors.Is(context.Cause(ctx), errTimeout) {
		return why.timeout(o.timeout)
	}
	return endedStream(err)
}

// printSending prints what became of a message. The run is as it is by now, and "" while none has taken the message.
func (p *plugin) printSending(ctx context.Context, t *runtimeclient.Thread, output string, s *sending, run string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRead) // the time to wait for the answer may be over
	defer cancel()
	names := []string{"message/" + s.Message.ID}
	var err error
	if run != "" {
		names = append(names, "run/"+run)
		s.Run, err = t.Run(ctx, run)
	}
	_, printErr := p.structured(output, s, names)
	return errors.Join(err, printErr)
}

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

// await follows the thread until the run that takes the message has ended, and gives what the agent says in that run to answer. A run that takes several messages answers all of them, so its answer belongs to each.
func (p *plugin) await(ctx context.Context, t *runtimeclient.Thread, after int64, messageID string, answer *answers) error {
	taken := false
	for e, err := range t.Events(ctx, runtimeclient.EventOptions{After: after}) {
		if err != nil {
			return err
		}
		switch {
		case e.Type == runtimev1.EventMessageCreated && e.MessageID == messageID:
			taken, answer.run = true, e.RunID
		case e.Type == runtimev1.EventTerminated:
			return coded(exitEnded, errors.New("the thread was terminated before it answered"))
		case e.Type == runtimev1.EventRetained:
			return coded(exitEnded, errors.New("the Thread was deleted before it answered, and its data is retained"))
		case taken && e.Type == runtimev1.EventRunEnded && answer.mine(&e):
			answer.finish()
			if o := outcome(&e); o.Status != runtimev1.RunSucceeded {
				return failedRun(o)
			}
			return nil
		case taken:
			answer.event(&e)
		}
	}
	return context.Cause(ctx)
}
