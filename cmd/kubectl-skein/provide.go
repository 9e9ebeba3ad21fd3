package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newProvide(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "provide THREAD [NAME]",
		Short: "Give a thread the variables that it waits for",
		Long: `Give a thread the variables that it waits for. On a terminal the command asks for each value, and shows nothing of
a secret while you type. Otherwise it reads the value of one variable from standard input, without one newline at the end. No value
is an argument, because a shell history or a list of processes would keep it.

Setting variables needs a separate right: if the server refuses you, ask for the role skein-env-editor.`,
		Example: `  # Ask for everything that is missing
  kubectl skein provide orders

  # One variable, from a file
  kubectl skein provide orders API_KEY < key.txt`,
		Args: upTo(1, "THREAD", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 1 {
				name = args[1]
			}
			if before, _, found := strings.Cut(name, "="); found {
				return fmt.Errorf("a value does not belong on the command line, where others can read it: leave it out and type it, or write `kubectl skein provide %s %s < FILE`", args[0], before)
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			return p.provide(cmd.Context(), t, args[0], name)
		},
	}
}

// provide sets the variable of that name, or all that the thread waits for.
func (p *plugin) provide(ctx context.Context, t *runtimeclient.Thread, threadName, name string) error {
	pending, err := t.PendingEnv(ctx)
	if err != nil {
		return err
	}
	wanted := pending.Variables
	names := namesOf(wanted, func(v *runtimev1.EnvWanted) string { return v.Name })
	switch i := slices.Index(names, name); {
	case name != "" && i < 0 && len(names) == 0:
		return fmt.Errorf("the thread waits for no variables: `kubectl skein env set %s %s` sets one all the same", threadName, name)
	case name != "" && i < 0:
		return fmt.Errorf("the thread does not wait for %s, but for %s: `kubectl skein env set %s %s` sets it all the same", name, strings.Join(names, ", "), threadName, name)
	case name != "":
		wanted = wanted[i : i+1]
	case len(wanted) == 0:
		fmt.Fprintln(p.ErrOut, "The thread waits for no variables.")
		return nil
	}
	terminal := isTerminal(p.In)
	if !terminal && len(wanted) > 1 {
		return fmt.Errorf("standard input has one value, and the thread waits for %s: name one, as in `kubectl skein provide %s %s < FILE`", strings.Join(names, ", "), threadName, names[0])
	}
	lines := bufio.NewReader(p.In)
	for i := range wanted {
		v := &wanted[i]
		value, err := p.valueOf(ctx, v, terminal, lines)
		if err != nil {
			return err
		}
		if value == "" {
			return fmt.Errorf("%s got no value, so nothing was set", v.Name)
		}
		if err := t.SetEnv(ctx, v.Name, value, v.Type); err != nil {
			return err
		}
		p.changed("variable/"+v.Name, "%s set\n", v.Name)
	}
	return nil
}

// valueOf asks a person for the value of a variable, or reads it from standard input.
func (p *plugin) valueOf(ctx context.Context, v *runtimev1.EnvWanted, terminal bool, lines *bufio.Reader) (string, error) {
	if !terminal {
		data, err := io.ReadAll(io.LimitReader(lines, runtimev1.MaxBodyBytes))
		return withoutNewline(string(data)), err
	}
	question := v.Name
	if v.Description != "" {
		question += " (" + safe(v.Description) + ")"
	}
	fmt.Fprint(p.ErrOut, question+": ")
	if v.Type == runtimev1.EnvText {
		return interruptible(ctx, p.In.(*os.File), func() (string, error) {
			line, err := lines.ReadString('\n')
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return withoutNewline(line), err
		})
	}
	in := p.In.(*os.File)
	value, err := interruptible(ctx, in, func() (string, error) {
		secret, err := term.ReadPassword(int(in.Fd()))
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return string(secret), err
	})
	fmt.Fprintln(p.ErrOut) // the person's own line end was not shown
	return value, err
}

// interruptible reads from a terminal until ctx ends. It then leaves the terminal as it was.
func interruptible(ctx context.Context, in *os.File, read func() (string, error)) (string, error) {
	state, err := term.GetState(int(in.Fd()))
	if err != nil {
		return "", fmt.Errorf("prepare the terminal: %w", err)
	}
	type result struct {
		value string
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return "", errors.Join(context.Cause(ctx), term.Restore(int(in.Fd()), state))
	}
}

// withoutNewline removes one line end from the end of a text.
func withoutNewline(text string) string {
	return strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
}
