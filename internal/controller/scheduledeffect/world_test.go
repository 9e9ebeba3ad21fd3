package scheduledeffect_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

// world is what specs of one ScheduledEffect share.
type world struct {
	*Env
	r *scheduledeffect.Reconciler
	s *skeinv1.ScheduledEffect
}

func newWorld(ctx context.Context) *world {
	GinkgoHelper()
	e := New(ctx)
	effect := &skeinv1.Effect{ObjectMeta: Meta("tick")}
	e.Create(ctx, effect)
	e.SetReady(ctx, effect, &effect.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
	e.ReadyAgent(ctx, "analyst")
	return &world{Env: e, r: newReconciler(e)}
}

// declare creates the ScheduledEffect.
func (w *world) declare(ctx context.Context, edit ...func(*skeinv1.ScheduledEffect)) {
	GinkgoHelper()
	w.s = &skeinv1.ScheduledEffect{ObjectMeta: Meta("s"), Spec: skeinv1.ScheduledEffectSpec{Effect: "tick", Schedules: []string{"@every 1m"}}}
	for _, f := range edit {
		f(w.s)
	}
	w.Create(ctx, w.s)
}

// settle reconciles until there is nothing more to do at once, and returns the time until there is.
func (w *world) settle(ctx context.Context) time.Duration {
	GinkgoHelper()
	var rest time.Duration
	for range 20 {
		if rest = Reconcile(ctx, w.r, w.s).RequeueAfter; rest == 0 || rest > 10*time.Millisecond {
			break
		}
	}
	Expect(client.IgnoreNotFound(w.Client.Get(ctx, client.ObjectKeyFromObject(w.s), w.s))).To(Succeed())
	return rest
}

// pass lets time pass, with a reconcile whenever there is something to do.
func (w *world) pass(ctx context.Context, d time.Duration) {
	GinkgoHelper()
	for end := w.Clock.Now().Add(d); ; {
		next := w.settle(ctx)
		rest := end.Sub(w.Clock.Now())
		if rest <= 0 {
			return
		}
		if next > 0 {
			rest = min(rest, next)
		}
		w.Clock.Step(rest)
	}
}

// ask sets an annotation.
func (w *world) ask(ctx context.Context, annotation, value string) {
	GinkgoHelper()
	if w.s.Annotations == nil {
		w.s.Annotations = map[string]string{}
	}
	w.s.Annotations[annotation] = value
	Expect(w.Client.Update(ctx, w.s)).To(Succeed())
}

func (w *world) firings(ctx context.Context) []store.Firing {
	GinkgoHelper()
	all, err := w.Store.Firings(ctx, store.FiringQuery{EffectID: string(w.s.UID), Limit: 1000})
	Expect(err).NotTo(HaveOccurred())
	slices.Reverse(all)
	return all
}

// fired returns the firings, the oldest due time first.
func (w *world) fired(ctx context.Context) (out []string) {
	GinkgoHelper()
	for _, f := range w.firings(ctx) {
		out = append(out, fmt.Sprintf("%s %s %s", time.UnixMicro(f.Due).Sub(Start).Truncate(time.Second), f.Origin, f.Status))
	}
	return out
}

func (w *world) skipped(ctx context.Context) []store.EffectSkip {
	GinkgoHelper()
	all, err := w.Store.EffectSkips(ctx, string(w.s.UID), 100)
	Expect(err).NotTo(HaveOccurred())
	return all
}

// events returns the Events since the last call.
func (w *world) events() (all []string) {
	for {
		select {
		case text := <-w.Recorder.Events:
			all = append(all, text)
		default:
			return all
		}
	}
}

// thread creates the Thread t, and its row.
func (w *world) thread(ctx context.Context) *skeinv1.Thread {
	GinkgoHelper()
	t := &skeinv1.Thread{ObjectMeta: Meta("t")}
	w.Create(ctx, t)
	_, _, err := w.Store.CreateThread(ctx, store.Thread{ID: string(t.UID), Namespace: Namespace, Name: "t", Agent: "a"})
	Expect(err).NotTo(HaveOccurred())
	return t
}

// answers returns what the status says of requests by hand.
func (w *world) answers(requests ...string) (out []string) {
	GinkgoHelper()
	for _, request := range requests {
		i := slices.IndexFunc(w.s.Status.Requests, func(q skeinv1.EffectRequest) bool { return q.Request == request })
		Expect(i).To(BeNumerically(">=", 0), request)
		q := w.s.Status.Requests[i]
		var results []string
		for _, r := range q.Results {
			results = append(results, strings.TrimSpace(fmt.Sprintf("%d %s %s %s", r.Count, r.Outcome, r.Reason, r.Message)))
		}
		text := strings.Join(results, "; ")
		if q.Repeated {
			text = "again: " + text
		}
		if q.Refused != "" {
			text = "refused: " + q.Refused
		}
		out = append(out, text)
	}
	return out
}
