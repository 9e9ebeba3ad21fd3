package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// completeName is the name under which kubectl runs the plugin to complete `kubectl skein`.
const completeName = "kubectl_complete-skein"

// commandLine returns the arguments of the program. When kubectl requests completions, it returns cobra's completion
// command instead.
func commandLine(args []string) []string {
	name := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	if name == completeName {
		return append([]string{cobra.ShellCompRequestCmd}, args[1:]...)
	}
	return args[1:]
}

const (
	// completionTimeout bounds how long a person waits after pressing the completion key.
	completionTimeout = 3 * time.Second
	// maxCandidates bounds how many candidates are read.
	maxCandidates = 500
)

// candidates returns the possible values for a position of the command line. args are the arguments before it.
type candidates func(ctx context.Context, args []string) ([]string, error)

// complete adds completion of arguments and flags to all commands below cmd. The usage line of a command names its
// arguments.
func (p *plugin) complete(cmd *cobra.Command) {
	places, flags := p.places(), p.flagPlaces()
	p.completeFlags(cmd, flags)
	for _, sub := range cmd.Commands() {
		p.complete(sub)
		words := argumentsOf(sub)
		if len(words) == 0 {
			continue
		}
		sub.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			words := words
			if f := cmd.Flag("store"); f != nil && f.Value.String() != "" && len(words) > 0 && words[0] == "THREAD" {
				words = words[1:] // a store takes the place of the thread
				args = append([]string{f.Value.String()}, args...)
				if len(args) == 2 || len(args) == 1 && len(words) > 0 && words[0] == "KEY" {
					return offer(cmd, p.storeKeys, args[:1], typed)
				}
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			if len(args) >= len(words) {
				return nil, cobra.ShellCompDirectiveDefault
			}
			word := words[len(args)]
			for _, key := range []string{strings.TrimPrefix(cmd.CommandPath(), cmd.Root().CommandPath()+" ") + " " + word, word} {
				if from, known := places[key]; known {
					return offer(cmd, from, args, typed)
				}
			}
			if slices.Contains(localFiles, word) {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

func (p *plugin) completeFlags(cmd *cobra.Command, flags map[string]candidates) {
	for name, from := range flags {
		if cmd.Flag(name) == nil || cmd.Root() != cmd && cmd.LocalNonPersistentFlags().Lookup(name) == nil {
			continue
		}
		// It fails only for a flag that has a completion already.
		_ = cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return offer(cmd, from, args, typed)
		})
	}
	if f := cmd.LocalNonPersistentFlags().Lookup("output"); f != nil && len(formatsOf(f.Usage)) > 0 {
		formats := formatsOf(f.Usage)
		_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	}
}

// offer returns the candidates that begin with what was typed, and none when the cluster cannot be reached.
func offer(cmd *cobra.Command, from candidates, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	names, err := from(ctx, args)
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, typed) })
	return names, cobra.ShellCompDirectiveNoFileComp
}

func words(list ...string) candidates {
	return func(context.Context, []string) ([]string, error) { return slices.Clone(list), nil }
}

// objectNames returns candidates: the names of Skein's objects of a kind in the namespace.
func (p *plugin) objectNames(list string) candidates {
	return func(ctx context.Context, _ []string) ([]string, error) {
		return p.names(ctx, skeinv1.GroupVersion.WithKind(list), true)
	}
}

func (p *plugin) namespaces(ctx context.Context, _ []string) ([]string, error) {
	return p.names(ctx, schema.GroupVersionKind{Version: "v1", Kind: "NamespaceList"}, false)
}

func (p *plugin) names(ctx context.Context, list schema.GroupVersionKind, namespaced bool) ([]string, error) {
	cfg, ns, err := p.config()
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		return nil, err
	}
	objects := &metav1.PartialObjectMetadataList{}
	objects.SetGroupVersionKind(list)
	opts := []client.ListOption{client.Limit(maxCandidates)}
	if namespaced {
		opts = append(opts, client.InNamespace(ns))
	}
	if err := c.List(ctx, objects, opts...); err != nil {
		return nil, err
	}
	names := make([]string, len(objects.Items))
	for i := range objects.Items {
		names[i] = objects.Items[i].Name
	}
	return names, nil
}

func (p *plugin) contexts(context.Context, []string) ([]string, error) {
	raw, err := p.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range raw.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// ofThread reads candidates from the thread that the first argument names.
func ofThread[T any](p *plugin, args []string, ask func(*runtimeclient.Thread) ([]T, error), name func(*T) string) ([]string, error) {
	if len(args) == 0 {
		return nil, nil
	}
	t, err := p.thread(args[0])
	if err != nil {
		return nil, err
	}
	list, err := ask(t)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list))
	for i := range list {
		if n := name(&list[i]); n != "" {
			names = append(names, n)
		}
	}
	return names, nil
}

// callIDs returns the tool calls of a thread that wait for approval.
func (p *plugin) callIDs(ctx context.Context, args []string) ([]string, error) {
	return ofThread(p, args, func(t *runtimeclient.Thread) ([]runtimev1.Approval, error) {
		list, err := t.Approvals(ctx, runtimeclient.Page{Limit: maxCandidates})
		if err != nil {
			return nil, err
		}
		return list.Approvals, nil
	}, func(a *runtimev1.Approval) string {
		if a.Decision != nil {
			return ""
		}
		return a.ToolCallID + "\t" + safe(a.Name) // the shell shows the text after the tab as a description
	})
}

// runIDs returns the newest runs of a thread.
func (p *plugin) runIDs(ctx context.Context, args []string) ([]string, error) {
	return ofThread(p, args, func(t *runtimeclient.Thread) ([]runtimev1.Run, error) {
		list, err := t.Runs(ctx, runtimeclient.Page{Limit: 100})
		if err != nil {
			return nil, err
		}
		return list.Runs, nil
	}, func(r *runtimev1.Run) string { return r.ID + "\t" + r.Status })
}

// toolNames returns the names under which models know the tools of the namespace.
func (p *plugin) toolNames(ctx context.Context, _ []string) ([]string, error) {
	names, err := p.names(ctx, skeinv1.GroupVersion.WithKind("ToolList"), true)
	for i, name := range names {
		names[i] = strings.NewReplacer("-", "_", ".", "_").Replace(name)
	}
	return names, err
}

// endpointPaths returns the paths of the namespace's endpoints, each up to its first parameter.
func (p *plugin) endpointPaths(ctx context.Context, _ []string) ([]string, error) {
	cfg, ns, err := p.config()
	if err != nil {
		return nil, err
	}
	c, err := threadObjects(cfg)
	if err != nil {
		return nil, err
	}
	var list skeinv1.ThreadEndpointList
	if err := c.List(ctx, &list, client.InNamespace(ns), client.Limit(maxCandidates)); err != nil {
		return nil, err
	}
	var paths []string
	for i := range list.Items {
		fixed, _, _ := strings.Cut(list.Items[i].Spec.Path, "[")
		paths = append(paths, "/"+strings.TrimPrefix(fixed, "/"))
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

// retainedIDs returns the threads that are kept without an object.
func (p *plugin) retainedIDs(ctx context.Context, _ []string) ([]string, error) {
	c, ns, err := p.client()
	if err != nil {
		return nil, err
	}
	page, err := c.Retained(ctx, ns, "", runtimev1.MaxPageSize)
	if err != nil {
		return nil, err
	}
	var ids []string
	for i := range page.Threads {
		ids = append(ids, page.Threads[i].ThreadID+"\t"+safe(page.Threads[i].ObjectMeta.Name))
	}
	return ids, nil
}
