package main

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// explainAfter is how long a call may take before the command looks what it waits for. With a warm sandbox most calls
// are over by then.
const explainAfter = time.Second

// explainSandbox says on standard error why the thread's sandbox does not start, until stop is called. Calls outside
// of a run have no condition in the Thread object, so it watches the thread's sandbox pods.
func (p *plugin) explainSandbox(ctx context.Context, t *runtimeclient.Thread) (stop func(), err error) {
	c, r, err := p.blockers(t)
	if err != nil {
		return nil, err
	}
	return background(ctx, func(ctx context.Context) {
		select {
		case <-time.After(explainAfter):
		case <-ctx.Done():
			return
		}
		rec, err := t.Get(ctx)
		if err != nil {
			return // the call itself reports what is wrong
		}
		r.name = rec.ObjectMeta.Name
		r.run(ctx, c, podSource(rec.ThreadID))
	}), nil
}

// podSource is the sandbox pods of a thread.
func podSource(threadID string) source {
	return source{
		list:    &corev1.PodList{},
		options: []client.ListOption{client.MatchingLabels{skeinv1.LabelThreadID: threadID}},
		read:    readPods,
		refused: "You may not watch pods, so this cannot say whether the call waits for a sandbox: ask for the role view in this namespace.",
	}
}

// readPods returns a function that says what keeps the pods of a thread from starting. A thread has a second pod when
// its agent changes to another pool.
func readPods() func(watch.Event) (blocker, bool) {
	pods := map[string]blocker{}
	return func(e watch.Event) (blocker, bool) {
		pod, is := e.Object.(*corev1.Pod)
		if !is {
			return blocker{}, false
		}
		if e.Type == watch.Deleted || podEnds(pod) {
			delete(pods, pod.Name)
		} else {
			pods[pod.Name] = podBlocker(pod)
		}
		for _, name := range slices.Sorted(maps.Keys(pods)) {
			if b := pods[name]; b != (blocker{}) {
				return b, true
			}
		}
		return blocker{}, len(pods) > 0 // without a pod the call still waits, for the next one
	}
}

func podEnds(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// podBlocker returns what keeps a pod from being ready, as Kubernetes says it.
func podBlocker(p *corev1.Pod) blocker {
	b := blocker{reason: "SandboxStarting", message: "pod " + p.Name + " is not ready yet"}
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue:
			return blocker{}
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse:
			b.message = "pod " + p.Name + ": " + because(c.Reason, c.Message)
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			b.message = "pod " + p.Name + ": " + because(w.Reason, w.Message)
		}
	}
	return b
}

// because joins a reason and a message, of which either may be empty.
func because(reason, message string) string {
	if reason == "" || message == "" {
		return reason + message
	}
	return reason + ": " + message
}
