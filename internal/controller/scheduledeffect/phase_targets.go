package scheduledeffect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
)

// defaultMaxThreads is how many threads one due time fires for when the spec, written before a default existed, does not say.
const defaultMaxThreads = 100

// findThreads finds the threads for which the schedule fires: one, those that a selector matches, or none at all.
func (r *Reconciler) findThreads(ctx context.Context, d *schedule) (bool, error) {
	spec := &d.object.Spec
	switch {
	case spec.ThreadRef != nil:
		return r.findOneThread(ctx, d)
	case spec.ThreadSelector != nil:
		return r.selectThreads(ctx, d)
	}
	d.threads = []target{{}}
	return false, nil
}

func (r *Reconciler) findOneThread(ctx context.Context, d *schedule) (bool, error) {
	for _, step := range []phase{r.findThread, r.ensureOwner, r.cancel} {
		stop, err := step(ctx, d.scope)
		if d.over = d.canceled; err == nil && d.canceled {
			err = r.cancelUnderWay(ctx, d)
		}
		if err != nil || stop {
			return true, err
		}
	}
	if d.row == nil {
		return true, nil // a watch causes another reconcile
	}
	d.threads = []target{{d.row.ID, d.row.Name}}
	return false, nil
}

// cancelUnderWay cancels the firings of a thread that was terminated. No worker would do so for one that waits for an earlier one, and only
// later for one that is to be tried again.
func (r *Reconciler) cancelUnderWay(ctx context.Context, d *schedule) error {
	if len(d.active) == 0 {
		return nil
	}
	keys := make([]store.FiringKey, len(d.active))
	for i := range d.active {
		keys[i] = d.active[i].Key()
	}
	if _, err := r.Store.CancelFirings(ctx, "the thread was terminated", keys...); err != nil {
		return fmt.Errorf("cancel the firings of a thread that was terminated: %w", err)
	}
	_, err := r.readFirings(ctx, d)
	return err
}

// selectThreads selects the living threads of the namespace by their labels, in the order of their names.
func (r *Reconciler) selectThreads(ctx context.Context, d *schedule) (bool, error) {
	selector, err := metav1.LabelSelectorAsSelector(d.object.Spec.ThreadSelector)
	if err != nil {
		d.problem = &problem{skeinv1.ReasonInvalidSpec, fmt.Sprintf("spec.threadSelector: %v", err)}
		return true, nil
	}
	if selector.Empty() {
		selector = labels.Everything() // an empty selector selects all, as everywhere in Kubernetes
	}
	var list skeinv1.ThreadList
	if err := r.Client.List(ctx, &list, client.InNamespace(d.object.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return true, fmt.Errorf("select Threads: %w", err)
	}
	for i := range list.Items {
		if t := &list.Items[i]; t.DeletionTimestamp.IsZero() && t.Status.TerminatedAt == 0 && t.Status.ThreadID != "" {
			d.threads = append(d.threads, target{t.ThreadID(), t.Name})
		}
	}
	slices.SortFunc(d.threads, func(a, b target) int { return strings.Compare(a.name, b.name) })
	most := int(d.object.Spec.MaxThreads)
	if most <= 0 {
		most = defaultMaxThreads
	}
	if len(d.threads) > most {
		d.beyond, d.threads = d.threads[most:], d.threads[:most]
	}
	return false, nil
}

// checkTarget reports an Effect, or the agent of a template, that is missing or not ready. It keeps nothing from being recorded: a firing
// waits for it, and says so.
func (r *Reconciler) checkTarget(ctx context.Context, d *schedule) (stop bool, err error) {
	switch spec := &d.object.Spec; {
	case spec.Effect != "":
		return r.findEffect(ctx, d.scope)
	case spec.ThreadTemplate != nil:
		d.problem, err = r.findAgent(ctx, d.object.Namespace, spec.ThreadTemplate)
	}
	return err != nil, err
}

// findAgent returns the problem of a template whose agent is missing or not Ready; nil if it has none. Changes of the Ready condition of
// the agent that the spec names are watched.
func (r *Reconciler) findAgent(ctx context.Context, namespace string, t *skeinv1.ThreadTemplate) (*problem, error) {
	name := t.Spec.AgentRef.Name
	var a skeinv1.Agent
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &a, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return &problem{skeinv1.ReasonReferenceNotFound,
			fmt.Sprintf("Agent %q does not exist in namespace %q: create it, or correct spec.threadTemplate.spec.agentRef", name, namespace)}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Agent %q: %w", name, err)
	}
	return notReady("Agent", name, a.Status.Conditions), nil
}

// readArgs reads the arguments of the firings. Those of an effect that code scheduled are stored outside of the object until it fires, and
// then with its firing.
func (r *Reconciler) readArgs(ctx context.Context, d *schedule) (bool, error) {
	spec := &d.object.Spec
	if spec.Args != nil {
		d.args = spec.Args.Raw
	}
	if spec.ArgsRef == "" {
		return false, nil
	}
	if d.row == nil || !kube.HasArgs(d.object, d.row.ID) {
		d.problem = notItsArgs(spec)
		return true, nil
	}
	args, err := r.Store.EffectArgs(ctx, d.row.ID, spec.ArgsRef)
	if errors.Is(err, store.ErrNotFound) && len(d.recent) > 0 {
		var f *store.Firing
		if f, err = r.Store.Firing(ctx, d.recent[0].Key()); err == nil {
			args = f.Args
		}
	}
	if err != nil {
		return true, fmt.Errorf("read the arguments: %w", err)
	}
	d.args = args
	return false, nil
}

// newFiring returns the firing of a due time for a thread, which begins after those of other threads by its pace. It keeps what is to be done as
// the spec says it now.
func (d *schedule) newFiring(due time.Time, origin store.FiringOrigin, t target, pace time.Duration) store.Firing {
	o := d.object
	f := store.Firing{
		EffectID: string(o.UID), Due: due.UnixMicro(), ThreadID: t.id, Namespace: o.Namespace, Name: o.Name, Effect: o.Spec.Effect,
		Status: store.FiringPending, HookDepth: int(o.Spec.HookDepth), Origin: origin,
	}
	f.Args = d.args
	if o.Spec.ThreadTemplate != nil {
		f.Status, f.Target = store.FiringRunning, encodeTemplate(o.Spec.ThreadTemplate)
		return f
	}
	what := targetOf(&o.Spec)
	what.Jitter = d.jitter + pace
	if origin == store.OriginBackfill {
		what.Deadline = 0 // a backfill fires what is long past
	}
	f.Target = what.Encode()
	return f
}

// targetOf returns what firings of a spec do, and with which policies.
func targetOf(spec *skeinv1.ScheduledEffectSpec) effects.Target {
	t := effects.Target{Counts: len(spec.Schedules) > 0}
	if c := spec.CallTool; c != nil {
		t.Tool = &effects.ToolCall{Name: c.Name, Method: c.Method}
	}
	if c := spec.QueueTool; c != nil {
		t.Queue = &effects.ToolCall{Name: c.Name}
	}
	if m := spec.Message; m != nil {
		t.Message = &effects.Message{Content: m.Content, Silent: m.Silent}
	}
	if spec.SandboxPool != nil {
		t.Pool = spec.SandboxPool.Name
	}
	t.Env = spec.Env
	if spec.Timeout != nil {
		t.Timeout = spec.Timeout.Duration
	}
	if n := spec.StartingDeadlineSeconds; n != nil {
		t.Deadline = time.Duration(*n) * time.Second
	}
	if p := spec.Retry; p != nil {
		t.Retry = &effects.Retry{Attempts: int(p.Attempts), First: effects.DefaultBackoff, Max: effects.DefaultMaxBackoff}
		if p.Backoff != nil {
			t.Retry.First = p.Backoff.Duration
		}
		if p.MaxBackoff != nil {
			t.Retry.Max = p.MaxBackoff.Duration
		}
		for _, status := range p.Statuses {
			t.Retry.Statuses = append(t.Retry.Statuses, int(status))
		}
	}
	return t
}
