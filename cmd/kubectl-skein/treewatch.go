package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

const (
	// redrawDelay is how long further changes are waited for before the tree is drawn again.
	redrawDelay = 200 * time.Millisecond
	// reopenAfter is the time after which a watch that ended is opened again.
	reopenAfter = time.Second
)

// watchTree draws the tree now and whenever something that can be part of it has changed, until ctx ends. On a terminal
// each drawing takes the place of the one before.
func (p *plugin) watchTree(ctx context.Context, c client.WithWatch, ns string, draw func(context.Context) (string, error)) error {
	changed := make(chan struct{}, 1)
	in := client.InNamespace(ns)
	for _, watched := range []struct {
		list client.ObjectList
		opts []client.ListOption
	}{
		{&skeinv1.ThreadList{}, []client.ListOption{in}},
		{&skeinv1.SubagentList{}, []client.ListOption{in}},
		{&skeinv1.ScheduledEffectList{}, []client.ListOption{in}},
		{&corev1.PodList{}, []client.ListOption{in, client.HasLabels{skeinv1.LabelThreadID}}},
	} {
		go watchChanges(ctx, c, watched.list, watched.opts, changed)
	}
	before := ""
	for {
		text, err := draw(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if same := withoutAges(text); same != before {
			before = same
			p.showTree(text, ns)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(redrawDelay):
		}
		select {
		case <-changed: // the next drawing has it
		default:
		}
	}
}

func (p *plugin) showTree(text, ns string) {
	if isTerminal(p.Out) {
		fmt.Fprint(p.Out, "\x1b[H\x1b[2J")
	}
	if text == "" {
		text = fmt.Sprintf("No threads in namespace %s.\n", ns)
	}
	fmt.Fprintln(p.Out, text)
}

var age = regexp.MustCompile(`(?m)\s+\S+$`)

// withoutAges returns a drawing without its last column, which changes all the time.
func withoutAges(text string) string { return strings.TrimSpace(age.ReplaceAllString(text, "")) }

// watchChanges sends to changed whenever an object of a list changes. It gives up what the caller may not watch: the tree
// is drawn without it.
func watchChanges(ctx context.Context, c client.WithWatch, list client.ObjectList, opts []client.ListOption, changed chan<- struct{}) {
	for ctx.Err() == nil {
		w, err := c.Watch(ctx, list, opts...)
		if apierrors.IsForbidden(err) {
			return
		}
		if err == nil {
			for range w.ResultChan() {
				select {
				case changed <- struct{}{}:
				default: // a drawing is due already
				}
			}
			w.Stop()
		}
		select {
		case <-ctx.Done():
		case <-time.After(reopenAfter):
		}
	}
}
