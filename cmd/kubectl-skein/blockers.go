package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// watchPause is the pause before a watch that ended is started again.
const watchPause = time.Second

// blockers says why a thread does not continue and what a person can do, whenever that changes. It learns that from a
// watch. mu guards last.
type blockers struct {
	out       io.Writer
	thread    *runtimeclient.Thread
	name      string
	namespace string
	command   string // the beginning of commands for this thread: "kubectl skein", with the namespace when that was given

	mu   sync.Mutex
	last blocker
}

// blocker says why a thread does not continue. The zero value means that nothing blocks it.
type blocker struct {
	reason, message string
	// needsPerson is true when a person must act.
	needsPerson bool
}

// text returns the reason and the message.
func (b blocker) text() string { return strings.TrimSuffix(b.reason+": "+b.message, ": ") }

// source is what blockers watches.
type source struct {
	list    client.ObjectList
	options []client.ListOption
	// read returns, for each new watch, a function that says what its events mean. ok is false when an event says
	// nothing about the thread.
	read func() func(e watch.Event) (b blocker, ok bool)
	// refused is for users who may not watch it.
	refused string
}

// watchBlockers starts to follow a thread; stop ends that. name is the name of the Thread object.
func (p *plugin) watchBlockers(ctx context.Context, t *runtimeclient.Thread, name string) (r *blockers, stop func(), err error) {
	c, r, err := p.blockers(t)
	if err != nil {
		return nil, nil, err
	}
	r.name = name
	return r, background(ctx, func(ctx context.Context) { r.run(ctx, c, r.threadSource()) }), nil
}

// blockers returns a reasons without the thread's name, and the client for it.
func (p *plugin) blockers(t *runtimeclient.Thread) (client.WithWatch, *blockers, error) {
	cfg, ns, err := p.config()
	if err != nil {
		return nil, nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 0 // it is a timeout for requests, and a watch lasts longer
	scheme := runtime.NewScheme()
	if err := errors.Join(skeinv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, nil, err
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, err
	}
	r := &blockers{out: p.ErrOut, thread: t, namespace: ns, command: "kubectl skein"}
	if p.flags.Namespace != nil && *p.flags.Namespace != "" {
		r.command += " -n " + ns
	}
	return c, r, nil
}

// background runs work until it returns or stop is called. stop waits for its end.
func background(ctx context.Context, work func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(ctx)
	}()
	return func() { cancel(); <-done }
}

func (r *blockers) run(ctx context.Context, c client.WithWatch, s source) {
	for ctx.Err() == nil {
		w, err := c.Watch(ctx, s.list, append([]client.ListOption{client.InNamespace(r.namespace)}, s.options...)...)
		if apierrors.IsForbidden(err) {
			fmt.Fprintln(r.out, s.refused)
			return
		}
		if err == nil {
			r.take(ctx, w, s.read())
		}
		select {
		case <-time.After(watchPause):
		case <-ctx.Done():
		}
	}
}

func (r *blockers) take(ctx context.Context, w watch.Interface, read func(watch.Event) (blocker, bool)) {
	defer w.Stop()
	for {
		select {
		case e, more := <-w.ResultChan():
			if !more {
				return
			}
			if b, ok := read(e); ok {
				r.say(ctx, b)
			}
		case <-ctx.Done():
			return
		}
	}
}

// threadSource is the Thread object.
func (r *blockers) threadSource() source {
	read := func(e watch.Event) (blocker, bool) {
		t, is := e.Object.(*skeinv1.Thread)
		if !is || e.Type == watch.Deleted {
			return blocker{}, false
		}
		return blockerOf(t), true
	}
	return source{
		list:    &skeinv1.ThreadList{},
		options: []client.ListOption{client.MatchingFields{"metadata.name": r.name}},
		read:    func() func(watch.Event) (blocker, bool) { return read },
		refused: "You may not watch the Thread object, so this cannot say what the thread waits for: ask for the role skein-viewer in this namespace.",
	}
}

// blockerOf returns what keeps a thread from continuing.
func blockerOf(t *skeinv1.Thread) blocker {
	conditions := t.Status.Conditions
	if t.DeletionTimestamp != nil {
		return blocker{reason: "Deleting", message: "the Thread is being deleted", needsPerson: true}
	}
	if c := meta.FindStatusCondition(conditions, skeinv1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse {
		return blocker{reason: c.Reason, message: c.Message, needsPerson: c.Reason != skeinv1.ReasonProgressing}
	}
	c := meta.FindStatusCondition(conditions, skeinv1.ConditionExecuting)
	if c != nil && c.Status == metav1.ConditionTrue && c.Reason != skeinv1.ReasonRunning {
		needsPerson := c.Reason == skeinv1.ReasonWaitingForApproval || c.Reason == skeinv1.ReasonEnvMissing
		return blocker{reason: c.Reason, message: c.Message, needsPerson: needsPerson}
	}
	if t.Status.Phase == "Parked" {
		return blocker{reason: "Parked", message: "the thread was stopped, and what waits in its queue stays there", needsPerson: true}
	}
	return blocker{}
}

// say prints a blocker unless it is the last one again.
func (r *blockers) say(ctx context.Context, b blocker) {
	r.mu.Lock()
	was := r.last
	r.last = b
	r.mu.Unlock()
	switch b {
	case was:
	case blocker{}:
		fmt.Fprintf(r.out, "thread/%s goes on\n", r.name)
	default:
		fmt.Fprintln(r.out, indent(safe("thread/"+r.name+" waits: "+b.text())))
		for _, next := range r.nextSteps(ctx, b) {
			fmt.Fprintln(r.out, "  "+safe(next))
		}
	}
}

// maxShownApprovals bounds the calls for which a command is shown.
const maxShownApprovals = 5

// nextSteps returns the commands that resolve a blocker.
func (r *blockers) nextSteps(ctx context.Context, b blocker) []string {
	switch b.reason {
	case skeinv1.ReasonWaitingForApproval:
		list, err := waitingCalls(ctx, r.thread, maxShownApprovals)
		if err != nil {
			return []string{fmt.Sprintf("%s approvals %s", r.command, r.name)}
		}
		var steps []string
		for _, a := range list.Approvals {
			if a.Decision == nil {
				steps = append(steps, fmt.Sprintf("%s approve %s %s   # %s(%s), or refuse", r.command, r.name, a.ToolCallID, a.Name, shorten(plainJSON(a.Arguments))))
			}
		}
		return steps
	case skeinv1.ReasonEnvMissing:
		return []string{fmt.Sprintf("%s provide %s", r.command, r.name)}
	case skeinv1.ReasonWaitingForChild:
		return []string{fmt.Sprintf("%s tree %s", r.command, r.name)}
	case "Parked":
		return []string{fmt.Sprintf("%s continue %s", r.command, r.name)}
	}
	return nil
}

// now returns what blocks the thread.
func (r *blockers) now() blocker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// timeout returns the error of a wait that reached its timeout.
func (r *blockers) timeout(d time.Duration) error {
	b := r.now()
	text := fmt.Sprintf("no end of the run within %s", d)
	code := exitTimeout
	if b.reason != "" {
		text += ", for the thread waits (" + b.text() + ")"
	}
	if b.needsPerson {
		code = exitWaits
	}
	return coded(code, fmt.Errorf("%s: the message is in the thread all the same, `%s watch %s` follows it", text, r.command, r.name))
}
