package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

const chatHelp = `Type a message, or one of
  /attach PATH   attach a local file to the next message
  /stop          stop the run under way; an interrupt (Ctrl-C) does the same
  /continue      resume what waits in the queue since a stop
  /help          print this
  /quit          leave, as the end of the input (Ctrl-D) does; the thread goes on
To send a message that begins with a slash, type two slashes: //etc is a folder.
`

func newChat(p *plugin) *cobra.Command {
	tail, timeout := 10, defaultSendTimeout
	var create newThread
	cmd := &cobra.Command{
		Use:   "chat [THREAD]",
		Short: "Talk to a thread: answers appear as they are written, and you decide on calls that wait for approval",
		Long: `Talk to a thread. Answers appear as they are written, with the tool calls. If a call waits for approval, the
command asks you. An interrupt (Ctrl-C) stops the run under way; when there is no run, it leaves the chat. You also see what
other people and effects do in the thread.

Without THREAD, --agent makes a new thread. On a terminal the arrow keys bring earlier lines back. If the input is not a
terminal, each line is a message, which is sent after the answer to the one before. --timeout bounds each answer, and the
command ends at the first file that cannot be attached. It exits as kubectl skein send --wait does.

` + chatHelp,
		Example: `  kubectl skein chat hello

  # A new thread
  kubectl skein chat --agent helper`,
		Args: upTo(0, "THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if tail < 0 || tail > runtimev1.MaxPageSize {
				return fmt.Errorf("--tail=%d: give a number from 0 to %d", tail, runtimev1.MaxPageSize)
			}
			if len(args) == 0 && create.agent == "" {
				return errors.New("name a THREAD, or create one with --agent AGENT")
			}
			if len(args) > 0 && create.agent != "" {
				return fmt.Errorf("--agent creates a new thread, and %s exists already: leave out one of the two", args[0])
			}
			timeout, err := p.answerTimeout(cmd, timeout)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				name, err := p.createReady(cmd.Context(), &create)
				if err != nil {
					return err
				}
				args = []string{name}
			}
			// An interrupt stops the run, not the command. SIGTERM ends the command.
			ctx, cancel := untilTerminated(cmd.Context())
			defer cancel()
			interrupts := make(chan os.Signal, 2)
			signal.Notify(interrupts, os.Interrupt)
			defer signal.Stop(interrupts)
			return ownInterrupts(p.converse(ctx, args[0], chatOptions{tail: tail, timeout: timeout}, interrupts, nil))
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "If the input is not a terminal: how long to wait for each answer; 0 means no limit. If only --request-timeout is set, that is the time.")
	cmd.Flags().IntVar(&tail, "tail", tail, "How many earlier messages to show.")
	create.flags(cmd.Flags())
	return cmd
}

// chatOptions are how much a chat shows of earlier messages, and how long each answer may take without a terminal.
type chatOptions struct {
	tail    int
	timeout time.Duration
}

// converse is one conversation with a thread. It calls started, if there is one, with the plugin whose outputs appear above
// the line that is being typed.
func (p *plugin) converse(ctx context.Context, name string, o chatOptions, interrupts chan os.Signal, started func(*plugin)) error {
	t, err := p.thread(name)
	if err != nil {
		return err
	}
	in, err := newLines(p, interrupts)
	if err != nil {
		return err
	}
	defer in.close()
	c := &chat{plugin: in.plugin(p), t: t, in: in, interrupts: interrupts, sent: map[string]string{}, runs: map[string]bool{}}
	if started != nil {
		started(c.plugin)
	}
	return c.run(ctx, o)
}

// chat is one conversation between a person and a thread.
type chat struct {
	*plugin    // whose outputs are the terminal's
	t          *runtimeclient.Thread
	in         *lines
	interrupts <-chan os.Signal

	view     *live
	attached []runtimev1.Attachment // for the next message
	sent     map[string]string      // messages without an answer so far: the run that took each, "" before one did
	runs     map[string]bool        // that are under way
	stopping bool
	asking   []runtimev1.Approval // calls that the person is asked about, the first one now
	failed   error                // how the last run failed
}

func (c *chat) run(ctx context.Context, o chatOptions) error {
	rec, err := c.t.Get(ctx) // before the messages, so that nothing is lost in between
	if err != nil {
		return err
	}
	c.view = newLive(transcript{out: c.Out, style: c.style}, c.in.terminal, false)
	if o.tail > 0 && c.in.terminal {
		if err := c.earlier(ctx, o.tail); err != nil {
			return err
		}
	}
	why, stop, err := c.watchBlockers(ctx, c.t, rec.ObjectMeta.Name)
	if err != nil {
		return err
	}
	defer stop()
	if last := rec.LastRun; last != nil && last.EndedAt == 0 {
		c.runs[last.ID] = true // a run that goes on after an approval starts no second time
		c.askAll(ctx)
	}
	c.in.start()
	events, ended := c.events(ctx, rec.LastEvent)
	var over <-chan time.Time // when an answer has taken too long
	for {
		switch {
		case c.idle():
			over = nil
		case over == nil && !c.in.terminal && o.timeout > 0:
			over = time.After(o.timeout)
		}
		var typed <-chan string
		if c.in.terminal || c.idle() || len(c.asking) > 0 {
			typed = c.in.typed
		}
		select {
		case line, more := <-typed:
			if !more {
				c.view.breakOff()
				return errors.Join(c.in.err, c.failed)
			}
			if quit, err := c.line(ctx, line); quit || err != nil {
				return err
			}
		case e := <-events:
			c.event(ctx, &e)
		case <-over:
			return why.timeout(o.timeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-ended:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return endedStream(err)
		case s := <-c.interrupts:
			if s == syscall.SIGTERM || c.idle() || c.stopping {
				return coded(exitInterrupted, errLeft)
			}
			c.stop(ctx)
		}
	}
}

func (c *chat) idle() bool { return len(c.sent) == 0 && len(c.runs) == 0 }

// earlier prints the newest messages.
func (c *chat) earlier(ctx context.Context, tail int) error {
	list, err := c.t.Messages(ctx, runtimeclient.MessageOptions{Page: runtimeclient.Page{Limit: tail}})
	if err != nil {
		return err
	}
	for i := range list.Messages {
		c.view.message(&list.Messages[i])
		c.view.shown[list.Messages[i].ID] = true
	}
	return nil
}

func (c *chat) events(ctx context.Context, after int64) (<-chan runtimev1.Event, <-chan error) {
	events, ended := make(chan runtimev1.Event), make(chan error, 1)
	go func() {
		for e, err := range c.t.Events(ctx, runtimeclient.EventOptions{After: after}) {
			if err != nil {
				ended <- err
				return
			}
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
		ended <- errors.New("the server ended the stream of events")
	}()
	return events, ended
}

// line does what the person typed. quit reports whether to leave. An error ends the chat.
func (c *chat) line(ctx context.Context, line string) (quit bool, err error) {
	line = strings.TrimSpace(line)
	command, rest, _ := strings.Cut(line, " ")
	switch {
	case line == "":
	case command == "/quit", command == "/exit":
		return true, nil
	case command == "/help":
		fmt.Fprint(c.ErrOut, chatHelp)
	case command == "/stop":
		c.stop(ctx)
	case command == "/continue":
		_, err := c.t.Continue(ctx)
		c.report(err)
	case command == "/attach":
		if err := c.attach(ctx, strings.TrimSpace(rest)); err != nil {
			if !c.in.terminal { // the next line would be sent before the file could be attached again
				return true, err
			}
			c.report(err)
		}
	case strings.HasPrefix(line, "/") && !strings.HasPrefix(line, "//"):
		fmt.Fprintf(c.ErrOut, "%s is not a command; /help lists the commands; to send a message that begins with a slash, type two slashes\n", command)
	case len(c.asking) > 0:
		return c.decideOn(ctx, line)
	default:
		if strings.HasPrefix(line, "//") {
			line = line[1:]
		}
		return c.send(ctx, line)
	}
	return false, nil
}

func (c *chat) report(err error) {
	if err != nil {
		printError(c.ErrOut, err)
	}
}

func (c *chat) send(ctx context.Context, text string) (quit bool, err error) {
	m, err := c.t.Queue(ctx, runtimev1.NewMessage{Content: text, Attachments: c.attached, IdempotencyKey: uuid.NewString()})
	if err != nil {
		if !c.in.terminal { // a script learns that the message was not taken, whatever became of the next ones
			return true, refused(err)
		}
		c.report(err)
		return false, nil
	}
	c.attached, c.failed = nil, nil
	c.sent[m.ID] = ""
	return false, nil
}

func (c *chat) attach(ctx context.Context, path string) error {
	if path == "" {
		return errors.New("name a file: /attach ./orders.csv")
	}
	a, err := upload(ctx, c.t, path)
	if err != nil {
		return err
	}
	c.attached = append(c.attached, *a)
	fmt.Fprintf(c.ErrOut, "%s will be attached to the next message\n", safe(a.Path))
	return nil
}

func (c *chat) stop(ctx context.Context) {
	if c.idle() {
		fmt.Fprintln(c.ErrOut, "nothing runs")
		return
	}
	c.stopping = true
	_, err := c.t.Stop(ctx, "stopped by the person who chats")
	c.report(err)
	c.asking = nil
}

func (c *chat) event(ctx context.Context, e *runtimev1.Event) {
	switch e.Type {
	case runtimev1.EventRunStarted:
		c.runs[e.RunID] = true
	case runtimev1.EventMessageCreated:
		if _, mine := c.sent[e.MessageID]; mine {
			c.sent[e.MessageID] = e.RunID
			if c.in.terminal {
				c.view.shown[e.MessageID] = true // the person sees what they typed
			}
		}
	case runtimev1.EventApprovalRequested:
		c.view.breakOff()
		c.askAll(ctx)
	case runtimev1.EventApprovalDecided:
		c.decided(e)
	}
	c.view.event(e)
	if e.Type == runtimev1.EventRunEnded {
		c.runEnded(e)
	}
}

func (c *chat) runEnded(e *runtimev1.Event) {
	delete(c.runs, e.RunID)
	c.stopping, c.asking = false, nil
	for id, run := range c.sent {
		if run != "" && run == e.RunID {
			delete(c.sent, id)
		}
	}
	c.failed = nil
	if o := outcome(e); o.Status != runtimev1.RunSucceeded {
		c.failed = failedRun(o)
		if o.Status == runtimev1.RunStopped {
			clear(c.sent) // what was not taken waits for /continue
		}
	}
}
