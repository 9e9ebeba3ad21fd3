package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/test/harness"
)

// stormKills returns how often a storm kills managers. SKEIN_STORM_KILLS asks for more, or fewer, than an ordinary run has time for.
func stormKills(ordinary int) int {
	GinkgoHelper()
	text := os.Getenv("SKEIN_STORM_KILLS")
	if text == "" {
		return ordinary
	}
	n, err := strconv.Atoi(text)
	Expect(err).NotTo(HaveOccurred(), "SKEIN_STORM_KILLS: write a number")
	return n
}

// The handler of a one-time effect of a storm.
const note = `
import { defineEffect } from '@standardagents/builder';
export default defineEffect({
  description: 'leaves a note',
  handler: async (state, args) => {
    await state.injectMessage({ role: 'system', silent: true, content: 'once ' + args.n });
  },
});`

// kept is how many firings the history of a schedule keeps, which is the most that it can. A storm may last for longer.
const kept = 1000

// firingPage is how many firings a storm reads at a time.
const firingPage = 50

// waiting is how many messages wait in the queue of a thread at most.
const waiting = 5

// storm is what is due all the while managers are killed, and what is known of it afterwards.
type storm struct {
	ns      string
	thread  *harness.Thread // messages are queued on it each second
	doomed  *harness.Thread // so they are on this one, until it is terminated
	server  *harness.ToolServer
	called  []*skeinv1.ScheduledEffect // call the server each second
	told    *skeinv1.ScheduledEffect   // queues messages on thread
	dooms   *skeinv1.ScheduledEffect   // queues messages on doomed
	selects *skeinv1.ScheduledEffect   // queues messages on the threads that chosen has
	makes   *skeinv1.ScheduledEffect   // makes a Thread every five seconds
	chosen  []*harness.Thread
	once    []*skeinv1.ScheduledEffect
	mu      sync.Mutex
	arrived map[string][]time.Time // requests to the server, by idempotency key
}

// storms declares what is due during a storm of about so long.
func storms(ctx context.Context, ns string, long time.Duration) *storm {
	GinkgoHelper()
	s := &storm{ns: ns, arrived: map[string][]time.Time{}}
	s.thread = converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
	create(ctx, harness.NewThread(ns, "doomed", "agent"), harness.Effect(ns, "note", note))
	s.doomed = ready(ctx, cluster.Thread(ns, "doomed"))
	rng := rand.New(rand.NewPCG(seed(), 1))
	s.server = toolServer(func(w http.ResponseWriter, r *http.Request, _ string) {
		s.mu.Lock()
		key := r.Header.Get("Idempotency-Key")
		s.arrived[key] = append(s.arrived[key], time.Now())
		wait := time.Duration(rng.IntN(1500)) * time.Millisecond
		s.mu.Unlock()
		select { // so that managers are killed while the handler runs
		case <-time.After(wait):
		case <-r.Context().Done():
		}
	})
	create(ctx, harness.HTTPTool(ns, "count", skeinv1.HTTPTool{Method: "POST", URL: s.server.URL}, map[string]any{"n": map[string]any{"type": "integer"}}))
	each := func(name string, spec skeinv1.ScheduledEffectSpec) *skeinv1.ScheduledEffect {
		spec.Schedules = []string{"@every 1s"}
		spec.CatchUp = &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll, Limit: 1000, Window: &metav1.Duration{Duration: time.Hour}}
		spec.SuccessfulHistoryLimit, spec.FailedHistoryLimit = ptr.To(int32(kept)), ptr.To(int32(kept))
		spec.Retry = &skeinv1.EffectRetry{Attempts: 10, Backoff: &metav1.Duration{Duration: 100 * time.Millisecond}, MaxBackoff: &metav1.Duration{Duration: time.Second}}
		return scheduled(ns, name, spec)
	}
	for n := range 4 {
		s.called = append(s.called, each(fmt.Sprintf("call-%d", n), skeinv1.ScheduledEffectSpec{CallTool: &skeinv1.EffectToolCall{Name: "count"}}))
	}
	s.told = each("tell", skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: s.thread.Name}, Message: &skeinv1.EffectMessage{Content: "tick", Silent: true}})
	s.dooms = each("doom", skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: s.doomed.Name}, Message: &skeinv1.EffectMessage{Content: "tick", Silent: true}})
	for _, name := range []string{"chosen-a", "chosen-b"} {
		t := harness.NewThread(ns, name, "agent")
		t.Labels = map[string]string{"storm": "chosen"}
		create(ctx, t)
		s.chosen = append(s.chosen, ready(ctx, cluster.Thread(ns, name)))
	}
	s.selects = each("select", skeinv1.ScheduledEffectSpec{
		ThreadSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"storm": "chosen"}}, Message: &skeinv1.EffectMessage{Content: "tick", Silent: true}})
	s.makes = each("make", skeinv1.ScheduledEffectSpec{
		ThreadTemplate: &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "agent"}, Message: "go"}}, ConcurrencyPolicy: skeinv1.ConcurrencyAllow})
	s.makes.Spec.Schedules, s.makes.Spec.Retry = []string{"@every 5s"}, nil
	for _, o := range append(slices.Clone(s.called), s.told, s.dooms, s.selects, s.makes) {
		create(ctx, o)
	}
	began := time.Now()
	for at := time.Second; at < long; at += time.Second {
		n := len(s.once)
		o := scheduled(ns, fmt.Sprintf("once-%d", n), skeinv1.ScheduledEffectSpec{
			ThreadRef: &skeinv1.LocalRef{Name: s.thread.Name}, Effect: "note", Args: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"n":%d}`, n)},
			TTLSecondsAfterFinished: ptr.To(int32(3600)),
		})
		if n%2 == 0 {
			at := skeinv1.NewTimestamp(began.Add(at))
			o.Spec.At = &at
		} else {
			o.Spec.After = &metav1.Duration{Duration: at}
		}
		s.once = append(s.once, o)
		create(ctx, o)
	}
	return s
}

// end suspends the schedules.
func (s *storm) end(ctx context.Context) {
	GinkgoHelper()
	for _, o := range append(slices.Clone(s.called), s.told, s.selects, s.makes) {
		suspendNow(ctx, o)
	}
}

// suspendNow suspends a schedule.
func suspendNow(ctx context.Context, o *skeinv1.ScheduledEffect) {
	GinkgoHelper()
	before := &skeinv1.ScheduledEffect{}
	Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), before)).To(Succeed())
	after := before.DeepCopy()
	after.Spec.Suspend = true
	Expect(cluster.Client.Patch(ctx, after, client.MergeFrom(before))).To(Succeed())
}

// firings waits until all firings of a ScheduledEffect have ended, and, when it was suspended, until that is in force. It returns them,
// the newest first.
func (s *storm) firings(ctx context.Context, o *skeinv1.ScheduledEffect, suspended bool) *runtimev1.FiringList {
	GinkgoHelper()
	c := api()
	var list *runtimev1.FiringList
	Eventually(ctx, func(g Gomega) {
		list = nil
		for page := (runtimeclient.FiringPage{Limit: firingPage}); list == nil || page.Continue != ""; {
			next, err := c.Firings(ctx, s.ns, o.Name, page)
			g.Expect(err).NotTo(HaveOccurred())
			if page.Continue = next.Continue; list == nil {
				list = next
			} else {
				list.Firings = append(list.Firings, next.Firings...)
			}
		}
		g.Expect(list.Firings).NotTo(BeEmpty(), o.Name)
		for _, f := range list.Firings {
			g.Expect(f.EndedAt).NotTo(BeZero(), "%s: %+v", o.Name, f)
		}
		if suspended {
			g.Expect(list.Skipped).To(ContainElement(HaveField("Reason", "Suspended")), o.Name)
		}
	}).WithTimeout(2 * patience).Should(Succeed())
	return list
}

// consecutive expects one firing for each due time since the object was created. It returns how many there were, with those that the
// history has no more.
func consecutive(o *skeinv1.ScheduledEffect, list *runtimev1.FiringList) int {
	GinkgoHelper()
	every, err := time.ParseDuration(strings.TrimPrefix(o.Spec.Schedules[0], "@every "))
	Expect(err).NotTo(HaveOccurred())
	period := every.Microseconds()
	fs := list.Firings
	fired := int(fs[0].Due/period - o.CreationTimestamp.UnixMicro()/period) // due times are multiples of the period
	if fired <= kept {
		Expect(fs).To(HaveLen(fired), "%s: no due time since its creation is missing", o.Name)
	}
	Expect(len(fs)).To(BeNumerically(">=", min(fired, kept)), o.Name)
	for i, f := range fs {
		switch {
		case i == 0:
		case fired <= kept:
			Expect(fs[i-1].Due-f.Due).To(Equal(period), "%s: no due time is missing, and none is there twice", o.Name)
		default: // the history has those that ended last
			Expect(fs[i-1].Due).To(BeNumerically(">", f.Due), "%s: no due time is there twice", o.Name)
		}
	}
	return fired
}

// punctual expects that no firing is early.
func punctual(o *skeinv1.ScheduledEffect, list *runtimev1.FiringList) {
	GinkgoHelper()
	for _, f := range list.Firings {
		Expect(f.FiredAt).To(BeNumerically(">=", f.Due), "%s: %+v was recorded early", o.Name, f)
		if f.StartedAt != 0 {
			Expect(f.StartedAt).To(BeNumerically(">=", f.Due), "%s: %+v began early", o.Name, f)
		}
	}
}

// requests takes the times at which the firing of a due time called the server.
func (s *storm) requests(o *skeinv1.ScheduledEffect, due int64) []time.Time {
	GinkgoHelper()
	key := tool.IdempotencyKey(string(o.UID), fmt.Sprintf("effect:%s:%d", o.UID, due))
	s.mu.Lock()
	defer s.mu.Unlock()
	came := s.arrived[key]
	delete(s.arrived, key)
	Expect(came).NotTo(BeEmpty(), "%s: the handler of %s ran", o.Name, time.UnixMicro(due))
	for _, at := range came {
		Expect(at).To(BeTemporally(">=", time.UnixMicro(due)), "%s: it ran early", o.Name)
	}
	return came
}

// counted expects that a schedule says that it has fired so often.
func counted(ctx context.Context, o *skeinv1.ScheduledEffect, fired int) {
	GinkgoHelper()
	Eventually(ctx, func() int64 { return effectStatus(ctx, o).Fired }).Should(BeEquivalentTo(fired), o.Name)
}

// check expects that each due time fired exactly once, and that each handler ran, under one key and never early.
func (s *storm) check(ctx context.Context) {
	GinkgoHelper()
	s.end(ctx)
	fired, attempts, requests := 0, 0, 0
	for _, o := range s.called {
		list := s.firings(ctx, o, true)
		n := consecutive(o, list)
		punctual(o, list)
		counted(ctx, o, n)
		skips := list.Skipped
		Expect(skips).To(HaveEach(HaveField("Reason", "Suspended")), o.Name)
		Expect(skips[len(skips)-1].Due).To(Equal(list.Firings[0].Due+time.Second.Microseconds()), "%s: what was not fired was skipped", o.Name)
		came := map[int64]int{}
		for i := range n {
			due := o.CreationTimestamp.Add(time.Duration(i+1) * time.Second).UnixMicro()
			came[due] = len(s.requests(o, due))
			requests += came[due]
		}
		for _, f := range list.Firings {
			Expect(f.Status).To(Equal("succeeded"), "%s: %+v", o.Name, f)
			Expect(came[f.Due]).To(BeNumerically("<=", f.Attempts), "%s: %+v", o.Name, f)
			attempts += f.Attempts
		}
		fired += n
	}
	Expect(s.arrived).To(BeEmpty(), "requests under keys that no firing has")

	told := s.firings(ctx, s.told, true)
	toldTimes := consecutive(s.told, told)
	punctual(s.told, told)
	counted(ctx, s.told, toldTimes)
	Expect(told.Firings).To(HaveEach(HaveField("Status", "succeeded")))
	doomed := s.firings(ctx, s.dooms, false)
	doomTimes := consecutive(s.dooms, doomed)
	punctual(s.dooms, doomed)
	var terminatedAt int64
	Eventually(ctx, func(g Gomega) {
		o, err := s.doomed.Object(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		terminatedAt = o.Status.TerminatedAt
		g.Expect(terminatedAt).NotTo(BeZero())
	}).Should(Succeed())
	before, cut := doomTimes-len(doomed.Firings), 0 // those that the history has no more succeeded: few fail
	for _, f := range doomed.Firings {
		switch {
		case f.Status == "succeeded":
			before++
			Expect(f.StartedAt).To(BeNumerically("<=", terminatedAt), "%+v began after the end of its thread", f)
		case f.StartedAt != 0:
			cut++
		}
	}
	// Each firing that succeeded queued one message. So did some of those that were cut off before they could say so, and were canceled with the
	// thread before they ran again. The thread did not read the messages that waited when it ended.
	Expect(ticks(ctx, s.doomed)["tick"]).To(And(BeNumerically("<=", before+cut), BeNumerically(">=", before-waiting)), "%d succeeded, %d were cut off", before, cut)
	Expect(ticks(ctx, s.thread)["tick"]).To(Equal(toldTimes), "each firing queued one message")

	fired += s.checkSelected(ctx) + s.checkMade(ctx)
	// Some of them become due only now.
	for _, o := range s.once {
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
			g.Expect(o.Status.CompletionTime).NotTo(BeNil(), "%s: %+v", o.Name, o.Status)
		}).WithTimeout(2 * patience).Should(Succeed())
	}
	said := ticks(ctx, s.thread)
	for n, o := range s.once {
		list := s.firings(ctx, o, false)
		Expect(o.Status.Phase).To(Equal("Succeeded"), "%s: %+v: %+v", o.Name, o.Status, list.Firings)
		Expect(list.Firings).To(HaveLen(1), o.Name)
		f := list.Firings[0]
		Expect(f.Due).To(Equal(o.Status.ScheduledAt), o.Name)
		Expect(f.FiredAt).To(BeNumerically(">=", f.Due), o.Name)
		Expect(f.StartedAt).To(BeNumerically(">=", f.Due), o.Name)
		Expect(said[fmt.Sprintf("once %d", n)]).To(Equal(1), o.Name)
		attempts += f.Attempts
	}
	fired += toldTimes + doomTimes + len(s.once)
	AddReportEntry("firings", fired)
	AddReportEntry("requests of firings that call a tool", fmt.Sprintf("%d, of %d attempts", requests, attempts-len(s.once)))
	GinkgoWriter.Printf("storm: %d firings; attempts of tools and of one-time effects: %d; requests: %d\n", fired, attempts, requests)
}

// ticks counts the messages of a thread by their content.
func ticks(ctx context.Context, t *harness.Thread) map[string]int {
	GinkgoHelper()
	out := map[string]int{}
	for m, err := range golang(t).AllMessages(ctx, runtimeclient.MessageOptions{IncludeSilent: true}) {
		Expect(err).NotTo(HaveOccurred())
		out[strings.TrimSpace(ptr.Deref(m.Content, ""))]++
	}
	return out
}
