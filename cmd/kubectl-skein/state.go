package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newState(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Show and change the state that code keeps in a thread",
	}
	cmd.AddCommand(newStateGet(p), newStateSet(p), newStateDelete(p))
	return cmd
}

func newStateGet(p *plugin) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "get THREAD [KEY]",
		Short: "Print the state as a JSON object, or the value of a key",
		Args:  upTo(1, "THREAD", "KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			if len(args) == 2 {
				value, ok, err := t.StateValue(cmd.Context(), args[1])
				if err == nil && !ok {
					err = noStateKey(args)
				}
				if err != nil {
					return err
				}
				return p.printValue(output, value, args[1:])
			}
			all := map[string]json.RawMessage{}
			for more := true; more; {
				l, err := t.State(cmd.Context(), runtimeclient.Page{Limit: runtimev1.MaxPageSize, Offset: len(all)})
				if err != nil {
					return err
				}
				for _, e := range l.Entries {
					all[e.Key] = e.Value
				}
				more = l.HasMore
			}
			return p.printValue(output, all, slices.Sorted(maps.Keys(all)))
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

// noStateKey returns the error for a key that the state of a thread does not have; args are the thread and the key.
func noStateKey(args []string) error {
	return fmt.Errorf("the state has no key %q: `kubectl skein state get %s` shows all of it", args[1], args[0])
}

func newStateSet(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:     "set THREAD KEY VALUE",
		Short:   "Store a value, which is JSON; - reads it from standard input",
		Example: `  kubectl skein state set orders region '"north"'`,
		Args:    exactly("THREAD", "KEY", "VALUE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := p.jsonArgument(args[2])
			if err != nil {
				return err
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			if err := t.SetState(cmd.Context(), args[1], value); err != nil {
				return err
			}
			p.changed("key/"+args[1], "%s set\n", args[1])
			return nil
		},
	}
}

func newStateDelete(p *plugin) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "delete THREAD [KEY]",
		Short: "Remove a key; --all removes all of the state",
		Args:  upTo(1, "THREAD", "KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) == 2) {
				return fmt.Errorf("name a KEY, or set --all; usage: %s", cmd.UseLine())
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			if all {
				if err := t.ClearState(cmd.Context()); err != nil {
					return err
				}
				p.changed(threadName(args[0]), "state cleared\n")
				return nil
			}
			_, ok, err := t.StateValue(cmd.Context(), args[1])
			if err == nil && !ok {
				err = noStateKey(args)
			}
			if err != nil {
				return err
			}
			if err := t.DeleteState(cmd.Context(), args[1]); err != nil {
				return err
			}
			p.changed("key/"+args[1], "%s removed\n", args[1])
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "Remove all of the state.")
	return cmd
}
