package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/skein-dev/skein/cmd/kubectl-skein/internal/build"
)

// devOptions say how a session of development goes.
type devOptions struct {
	dir, check, agent string
	keep              bool
}

func newDev(p *plugin) *cobra.Command {
	o := devOptions{check: build.CheckAuto}
	cmd := &cobra.Command{
		Use:   "dev DIR",
		Short: "Build a folder, apply it to a scratch namespace, and chat; again whenever a file changes",
		Long: `Build a folder as kubectl skein build does, apply the objects to a scratch namespace, and chat with one of its agents. When a
file changes, the command builds and applies again while you chat, and the next message uses the change. A mistake is shown and
changes nothing.

The namespace is skein-dev-USER. The command deletes it at the end unless you set --keep. With --namespace it uses that namespace.
If the namespace exists already, the command deletes at the end only what it has created there.`,
		Example: `  kubectl skein dev shop

  # In a namespace that has the Secrets of models
  kubectl skein dev shop -n shop-test --agent courier`,
		Args: exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.dir = args[0]
			if err := checkMode(o.check); err != nil {
				return err
			}
			return p.dev(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.agent, "agent", "", "The agent to chat with. You may leave it out if the folder has only one.")
	f.StringVar(&o.check, "check", o.check, "Check the types: auto, where there is a TypeScript compiler; always; or never.")
	f.BoolVar(&o.keep, "keep", false, "Keep the namespace and what is in it.")
	return cmd
}

// session is one session of development.
type session struct {
	devOptions
	scratch *scratch
	// out is where its lines go: the terminal, and above the line that is being typed during a chat.
	out atomic.Pointer[plugin]
}

func (s *session) say(format string, args ...any) {
	p := s.out.Load()
	fmt.Fprintf(p.ErrOut, "%s %s\n", p.style.cyan("dev:"), fmt.Sprintf(format, args...))
}

// cleanupTime bounds the end of a session.
const cleanupTime = 30 * time.Second

func (p *plugin) dev(ctx context.Context, o devOptions) (err error) {
	if _, err := os.Stat(o.dir); err != nil {
		return err
	}
	// From here on an interrupt ends the session, not the process: there is something to remove.
	interrupts := make(chan os.Signal, 2)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	s := &session{devOptions: o}
	s.out.Store(p)
	if s.scratch, err = p.newScratch(ctx, s.say); err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		s.out.Store(p)
		err = ownInterrupts(err)
		if left := s.scratch.remove(end, o.keep); left != nil { // to be told also where a signal has ended the session
			err = errors.Join(err, &ownInterruptsError{left})
		}
	}()

	watching, stop := context.WithCancel(context.WithoutCancel(ctx)) // an interrupt stops a run, not the builds
	ready := make(chan string, 1)                                    // the agent, once it is applied
	ended := make(chan error, 1)
	go func() {
		ended <- build.Watch(watching, o.dir, "", func() { s.again(watching, ready) })
	}()
	defer func() { // nothing is applied any more when things are removed
		stop()
		if watched := <-ended; watched != nil && !errors.Is(watched, context.Canceled) && err == nil {
			err = watched
		}
	}()
	var agent string
	select {
	case agent = <-ready:
	case watched := <-ended:
		ended <- nil
		return watched
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := s.scratch.awaitAgent(ctx, agent); err != nil {
		return err
	}
	c, obj, err := p.createThread(ctx, &newThread{agent: agent})
	if err != nil {
		return err
	}
	s.scratch.threads = append(s.scratch.threads, obj.Name) // before anything can end the session
	s.say("thread/%s created", obj.Name)
	t, err := p.thread(obj.Name)
	if err != nil {
		return err
	}
	if err := awaitThread(ctx, c, t, obj, createTimeout); err != nil {
		return err
	}
	chatting, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	if err := p.converse(chatting, obj.Name, chatOptions{timeout: defaultSendTimeout}, interrupts, func(q *plugin) { s.out.Store(q) }); !errors.Is(err, errLeft) {
		return err
	}
	return coded(exitInterrupted, errInterrupted) // the thread is removed with what else was made, unless it is kept
}

// again builds and applies. Mistakes are shown.
func (s *session) again(ctx context.Context, ready chan<- string) {
	began := time.Now()
	p := s.out.Load()
	res, err := p.built(ctx, buildOptions{dir: s.dir, check: s.check})
	agent := ""
	if err == nil {
		agent, err = agentOf(res, s.agent)
	}
	if err == nil {
		s.say("built %d objects in %s", len(res.Objects), time.Since(began).Round(time.Millisecond))
		err = s.scratch.apply(ctx, res)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		printError(p.ErrOut, err)
		s.say("waiting for a change")
		return
	}
	select {
	case ready <- agent:
	default: // it is known already
	}
}

// agentOf returns the agent to chat with.
func agentOf(res *build.Result, wanted string) (string, error) {
	var names []string
	for _, o := range res.Objects {
		if o.Kind() == "Agent" {
			names = append(names, o.Name())
		}
	}
	switch {
	case wanted != "" && slices.Contains(names, wanted):
		return wanted, nil
	case wanted != "":
		return "", fmt.Errorf("--agent=%s: the folder has the agents: %s", wanted, orElse(strings.Join(names, ", "), "none"))
	case len(names) == 1:
		return names[0], nil
	case len(names) == 0:
		return "", errors.New("the folder has no Agent to chat with: add one as agents/NAME.ts or in objects/")
	}
	return "", fmt.Errorf("set --agent to the agent to chat with: %s", strings.Join(names, ", "))
}
