package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func newTree(p *plugin) *cobra.Command {
	var watch bool
	var output string
	cmd := &cobra.Command{
		Use:   "tree [THREAD]",
		Short: "Show threads with their subagents, effects and sandbox pods",
		Example: `  # Everything in the namespace
  kubectl skein tree

  # One thread and what is below it, again whenever something changes
  kubectl skein tree orders --watch`,
		Args: upTo(0, "THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			if watch && output != "" {
				return errors.New("--watch draws the tree: leave out --output")
			}
			cfg, ns, err := p.config()
			if err != nil {
				return err
			}
			scheme := runtime.NewScheme()
			if err := errors.Join(skeinv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
				return err
			}
			c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
			if err != nil {
				return err
			}
			if output != "" && output != outputWide {
				roots, err := p.rootsOf(cmd.Context(), c, ns, args)
				if err != nil {
					return err
				}
				_, err = p.structured(output, map[string]any{"items": dataOf(roots)}, treeNames(roots))
				return err
			}
			draw := func(ctx context.Context) (string, error) { return p.drawTree(ctx, c, ns, args) }
			if watch {
				ctx, cancel, err := p.bounded(cmd.Context())
				if err != nil {
					return err
				}
				defer cancel()
				return p.watchTree(ctx, c, ns, draw)
			}
			text, err := draw(cmd.Context())
			if err != nil {
				return err
			}
			if text == "" {
				fmt.Fprintf(p.ErrOut, "No threads in namespace %s.\n", ns)
			}
			fmt.Fprint(p.Out, text)
			return nil
		},
	}
	outputFlag(cmd, &output)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Show the tree again whenever something in it changes.")
	return cmd
}

// drawTree returns the tree below a thread, or those of the namespace when args are empty. It returns "" if there are no
// threads.
func (p *plugin) drawTree(ctx context.Context, c client.Client, ns string, args []string) (string, error) {
	roots, err := p.rootsOf(ctx, c, ns, args)
	if err != nil || len(roots) == 0 {
		return "", err
	}
	var text strings.Builder
	w := printers.GetNewTabWriter(&text)
	fmt.Fprintln(w, "NAME\tSTATUS\tDETAILS\tAGE")
	for _, r := range roots {
		r.print(w, "", "")
	}
	err = w.Flush()
	return text.String(), err
}

// rootsOf returns the roots of the trees that are to be shown.
func (p *plugin) rootsOf(ctx context.Context, c client.Client, ns string, args []string) ([]*node, error) {
	f, err := p.gather(ctx, c, ns)
	if err != nil || len(args) == 0 {
		return f.rootsOrNone(), err
	}
	root, err := p.find(ctx, f, args[0])
	if err != nil {
		return nil, err
	}
	return []*node{root}, nil
}

// gather lists everything that can be part of a tree.
func (p *plugin) gather(ctx context.Context, c client.Client, ns string) (*forest, error) {
	f := &forest{}
	var threads skeinv1.ThreadList
	if err := c.List(ctx, &threads, client.InNamespace(ns)); err != nil {
		return nil, err
	}
	for i := range threads.Items {
		f.add(threadNode(&threads.Items[i]))
	}
	// When a right is missing, say which part is missing, and show the rest.
	var subagents skeinv1.SubagentList
	if err := p.listPart(ctx, c, &subagents, "subagents", client.InNamespace(ns)); err != nil {
		return nil, err
	}
	for i := range subagents.Items {
		f.add(subagentNode(&subagents.Items[i]))
	}
	var effects skeinv1.ScheduledEffectList
	if err := p.listPart(ctx, c, &effects, "scheduled effects", client.InNamespace(ns)); err != nil {
		return nil, err
	}
	for i := range effects.Items {
		f.add(effectNode(&effects.Items[i]))
	}
	var pods corev1.PodList
	if err := p.listPart(ctx, c, &pods, "pods", client.InNamespace(ns), client.HasLabels{skeinv1.LabelThreadID}); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		f.add(podNode(&pods.Items[i]))
	}
	f.link()
	return f, nil
}

func (p *plugin) listPart(ctx context.Context, c client.Client, list client.ObjectList, what string, opts ...client.ListOption) error {
	err := c.List(ctx, list, opts...)
	if apierrors.IsForbidden(err) {
		fmt.Fprintf(p.ErrOut, "(without %s: you may not list them)\n", what)
		return nil
	}
	return err
}

// find returns the thread's node, by name or by any spelling of its id.
func (p *plugin) find(ctx context.Context, f *forest, name string) (*node, error) {
	if n := f.thread(name); n != nil {
		return n, nil
	}
	t, err := p.thread(name)
	if err != nil {
		return nil, err
	}
	rec, err := t.Get(ctx)
	if err != nil {
		return nil, err
	}
	if n := f.thread(rec.Name); n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("thread %s has no object in this namespace", name)
}

// forest holds the objects of a namespace as trees.
type forest struct {
	nodes []*node
	roots []*node
}

func (f *forest) add(n *node) { f.nodes = append(f.nodes, n) }

// link puts each node below its owner. Threads without an owner are roots. Other nodes without an owner here are
// omitted.
func (f *forest) link() {
	byUID := map[string]*node{}
	for _, n := range f.nodes {
		byUID[n.uid] = n
	}
	for _, n := range f.nodes {
		var owner *node
		for _, uid := range n.owners {
			if o := byUID[uid]; o != nil && o != n {
				owner = o
				break
			}
		}
		switch {
		case owner != nil:
			owner.children = append(owner.children, n)
		case n.kind == "Thread":
			f.roots = append(f.roots, n)
		}
	}
	for _, n := range f.nodes {
		slices.SortFunc(n.children, byKind)
	}
	slices.SortFunc(f.roots, byKind)
}

// byKind sorts subagents before effects and pods, and older objects before younger ones.
func byKind(a, b *node) int {
	return cmp.Or(cmp.Compare(rank[a.kind], rank[b.kind]), a.created.Compare(b.created), cmp.Compare(a.name, b.name))
}

var rank = map[string]int{"Thread": 0, "Subagent": 1, "ScheduledEffect": 2, "Pod": 3}

func (f *forest) thread(name string) *node {
	for _, n := range f.nodes {
		if n.kind == "Thread" && n.name == name {
			return n
		}
	}
	return nil
}
