package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// values is a place with key-values: a thread, or a store of the namespace.
type values interface {
	keys(ctx context.Context, o runtimeclient.KeyOptions) (*runtimev1.KeyList, error)
	get(ctx context.Context, key string) (value json.RawMessage, ok bool, err error)
	set(ctx context.Context, key string, value json.RawMessage) error
	remove(ctx context.Context, key string) (existed bool, err error)
}

type threadValues struct{ t *runtimeclient.Thread }

func (v threadValues) keys(ctx context.Context, o runtimeclient.KeyOptions) (*runtimev1.KeyList, error) {
	return v.t.Keys(ctx, o)
}

func (v threadValues) get(ctx context.Context, key string) (json.RawMessage, bool, error) {
	value, err := v.t.Value(ctx, key)
	return value, value != nil, err
}

func (v threadValues) set(ctx context.Context, key string, value json.RawMessage) error {
	return v.t.SetValue(ctx, key, value)
}

func (v threadValues) remove(ctx context.Context, key string) (bool, error) {
	value, err := v.t.Value(ctx, key)
	if err != nil || value == nil {
		return false, err
	}
	return true, v.t.SetValue(ctx, key, nil)
}

type storeValues struct {
	kv  *runtimeclient.KV
	ttl time.Duration // of values that are set
}

func (v storeValues) keys(ctx context.Context, o runtimeclient.KeyOptions) (*runtimev1.KeyList, error) {
	return v.kv.Keys(ctx, o)
}

func (v storeValues) get(ctx context.Context, key string) (json.RawMessage, bool, error) {
	r, err := v.kv.Get(ctx, key)
	if err != nil {
		return nil, false, err
	}
	return r.Data, r.Exists, nil
}

func (v storeValues) set(ctx context.Context, key string, value json.RawMessage) error {
	return v.kv.Set(ctx, key, value, v.ttl)
}

func (v storeValues) remove(ctx context.Context, key string) (bool, error) {
	return v.kv.Delete(ctx, key)
}

// valuesOptions say where the key-values are.
type valuesOptions struct {
	store string
	ttl   time.Duration
}

// command makes a command about key-values. Its arguments are the thread, unless --store is set, and names.
func (o *valuesOptions) command(p *plugin, verb, short string, names []string, do func(ctx context.Context, v values, args []string) error) *cobra.Command {
	use := strings.Join(append([]string{verb, "[THREAD]"}, names...), " ")
	cmd := &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		v, rest, err := o.place(p, cmd, args, names)
		if err != nil {
			return err
		}
		return do(cmd.Context(), v, rest)
	}}
	cmd.Flags().StringVar(&o.store, "store", "", "Use this store of the namespace instead of a thread.")
	return cmd
}

func (o *valuesOptions) place(p *plugin, cmd *cobra.Command, args, names []string) (values, []string, error) {
	if o.store != "" {
		if err := exactly(names...)(cmd, args); err != nil {
			return nil, nil, err
		}
		c, ns, err := p.client()
		if err != nil {
			return nil, nil, err
		}
		return storeValues{c.KV(ns, o.store), o.ttl}, args, nil
	}
	if o.ttl != 0 {
		return nil, nil, errors.New("--ttl is for stores: only their values expire; set --store too")
	}
	if err := exactly(append([]string{"THREAD"}, names...)...)(cmd, args); err != nil {
		return nil, nil, err
	}
	t, err := p.thread(args[0])
	return threadValues{t}, args[1:], err
}

func newKV(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kv",
		Short: "Show and change the key-values of a thread, or of a store of the namespace",
		Long: `Show and change the key-values of a thread, or with --store those of a store of the namespace, which all code of the
namespace shares and whose values may expire.`,
	}
	cmd.AddCommand(newKVList(p), newKVGet(p), newKVSet(p), newKVDelete(p))
	return cmd
}

func newKVList(p *plugin) *cobra.Command {
	var o valuesOptions
	var prefix, output string
	cmd := o.command(p, "list", "List the keys", nil, func(ctx context.Context, v values, _ []string) error {
		if err := checkListOutput(output); err != nil {
			return err
		}
		after, all := "", []string{}
		for {
			l, err := v.keys(ctx, runtimeclient.KeyOptions{Prefix: prefix, After: after, Limit: runtimev1.MaxPageSize})
			if err != nil {
				return err
			}
			for _, key := range l.Keys {
				if output == "" { // as they come: there may be many
					fmt.Fprintln(p.Out, safe(key))
				} else {
					all = append(all, key)
				}
				after = key
			}
			if !l.HasMore {
				break
			}
		}
		if output == outputWide {
			output = outputName // keys have no more columns
		}
		_, err := p.structured(output, map[string]any{"keys": all}, all)
		return err
	})
	outputFlag(cmd, &output)
	cmd.Flags().StringVar(&prefix, "prefix", "", "List only keys that begin with this.")
	return cmd
}

func newKVGet(p *plugin) *cobra.Command {
	var o valuesOptions
	var output string
	cmd := o.command(p, "get", "Print a value as JSON", []string{"KEY"}, func(ctx context.Context, v values, args []string) error {
		if err := checkListOutput(output); err != nil {
			return err
		}
		value, ok, err := v.get(ctx, args[0])
		if err == nil && !ok {
			err = fmt.Errorf("there is no value %q: `kubectl skein kv list` shows the keys", args[0])
		}
		if err != nil {
			return err
		}
		return p.printValue(output, value, args)
	})
	outputFlag(cmd, &output)
	return cmd
}

func newKVSet(p *plugin) *cobra.Command {
	var o valuesOptions
	cmd := o.command(p, "set", "Store a value, which is JSON; - reads it from standard input", []string{"KEY", "VALUE"}, func(ctx context.Context, v values, args []string) error {
		value, err := p.jsonArgument(args[1])
		if err != nil {
			return err
		}
		if err := v.set(ctx, args[0], value); err != nil {
			return err
		}
		p.changed("key/"+args[0], "%s set\n", args[0])
		return nil
	})
	cmd.Example = `  kubectl skein kv set orders region '"north"'
  kubectl skein kv set --store rates eur '{"rate":1.08}' --ttl 1h`
	cmd.Flags().DurationVar(&o.ttl, "ttl", 0, "With --store: for how long the value is kept. 0 means for ever.")
	return cmd
}

func newKVDelete(p *plugin) *cobra.Command {
	var o valuesOptions
	return o.command(p, "delete", "Remove a value", []string{"KEY"}, func(ctx context.Context, v values, args []string) error {
		existed, err := v.remove(ctx, args[0])
		if err == nil && !existed {
			err = fmt.Errorf("there is no value %q: `kubectl skein kv list` shows the keys", args[0])
		}
		if err != nil {
			return err
		}
		p.changed("key/"+args[0], "%s removed\n", args[0])
		return nil
	})
}

// jsonArgument returns JSON from the command line, or from standard input when the argument is "-".
func (p *plugin) jsonArgument(arg string) (json.RawMessage, error) {
	data := []byte(arg)
	if arg == "-" {
		var err error
		if data, err = io.ReadAll(io.LimitReader(p.In, runtimev1.MaxBodyBytes)); err != nil {
			return nil, err
		}
	}
	if !json.Valid(data) {
		return nil, fmt.Errorf("the value is not JSON: put a text in double quotes, such as '\"north\"', and an object in braces")
	}
	return data, nil
}
