package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// patiently is how often, and when, what calls a tool tries again.
var patiently = &skeinv1.EffectRetry{Attempts: 10, Backoff: &metav1.Duration{Duration: 100 * time.Millisecond}, MaxBackoff: &metav1.Duration{Duration: time.Second}}

// load is what clients do to trees while faults strike, besides what they do to them anyway: calls of tools with approval and
// without, values and effects.
type load struct {
	*trees
	server *harness.ToolServer

	mu      sync.Mutex
	arrived map[string]map[string]int // requests to the server, by the text in their arguments and the idempotency key
	asked   map[string]*tree          // the thread that got a message, by its text, for calls and approvals
	decided map[string]bool           // decisions that were acknowledged, by the text of the call
	values  map[*tree][]string
	soon    map[string]*tree // the effects that are due at once, by their text
	alone   map[string]*skeinv1.ScheduledEffect
	rings   *skeinv1.ScheduledEffect // calls a tool each second
	fires   int                      // how often it has
}

// ring is the text of the calls of rings.
const ring = "ring"

func (l *load) locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// loads declares the agents of a load on so many threads.
func loads(ctx context.Context, ns string, most int) *load {
	GinkgoHelper()
	l := &load{
		arrived: map[string]map[string]int{}, asked: map[string]*tree{}, decided: map[string]bool{}, values: map[*tree][]string{},
		soon: map[string]*tree{}, alone: map[string]*skeinv1.ScheduledEffect{},
	}
	rng := rand.New(rand.NewPCG(seed(), 2))
	l.server = toolServer(func(w http.ResponseWriter, r *http.Request, body string) {
		var args struct{ N string }
		_ = json.Unmarshal([]byte(body), &args) // the checks at the end report an unknown request
		var wait time.Duration
		l.locked(func() {
			if l.arrived[args.N] == nil {
				l.arrived[args.N] = map[string]int{}
			}
			l.arrived[args.N][r.Header.Get("Idempotency-Key")]++
			wait = time.Duration(rng.IntN(500)) * time.Millisecond
		})
		lasts(r.Context(), wait) // so that faults strike while the tool runs
		_, _ = w.Write([]byte(`{}`))
	})
	n := map[string]any{"n": stringProperty}
	careful := harness.HTTPTool(ns, "careful", skeinv1.HTTPTool{Method: "POST", URL: l.server.URL}, n, "n")
	careful.Spec.RequiresApproval = true
	create(ctx, harness.HTTPTool(ns, "count", skeinv1.HTTPTool{Method: "POST", URL: l.server.URL}, n, "n"), careful)
	args := map[string]any{"n": "{{ .Last.Content }}"}
	l.trees = grow(ctx, ns, most, growth{
		steps: []skeinv1.ScriptStep{harness.On("^call ", harness.Calls("count", args)), harness.On("^ask ", harness.Calls("careful", args))},
		tools: []string{"count", "careful"},
	})
	l.rings = scheduled(ns, "rings", skeinv1.ScheduledEffectSpec{
		Schedules: []string{"@every 1s"}, CallTool: &skeinv1.EffectToolCall{Name: "count"}, Args: harness.Raw(map[string]any{"n": ring}),
		CatchUp:                &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll, Limit: 1000, Window: &metav1.Duration{Duration: time.Hour}},
		SuccessfulHistoryLimit: ptr.To[int32](kept), FailedHistoryLimit: ptr.To[int32](kept),
		Retry: patiently,
	})
	create(ctx, l.rings)
	l.bulk = 2000
	l.before, l.more = l.refuse, l.failings
	more := func(weight int, do func(context.Context, *rand.Rand, *tree)) {
		l.ops = append(l.ops, operation{weight, func(_ *trees, ctx context.Context, rng *rand.Rand, t *tree) { do(ctx, rng, t) }})
	}
	l.ops = slices.Clone(ordinary)
	more(20, l.call)
	more(8, l.ask)
	more(16, l.decide)
	more(10, l.set)
	more(4, l.effect)
	more(6, l.fire)
	return l
}

// call has a thread call a tool.
func (l *load) call(ctx context.Context, _ *rand.Rand, t *tree) {
	text := "call " + l.text()
	l.locked(func() { l.asked[text] = t })
	l.queue(ctx, "call", t, text)
}

// ask has a thread call a tool that needs approval.
func (l *load) ask(ctx context.Context, _ *rand.Rand, t *tree) {
	text := "ask " + l.text()
	l.locked(func() { l.asked[text] = t })
	l.queue(ctx, "ask", t, text)
}

// waiting returns the threads in the phase Waiting.
func (l *load) waiting(ctx context.Context) (out []skeinv1.Thread) {
	GinkgoHelper()
	var threads skeinv1.ThreadList
	Expect(cluster.Client.List(ctx, &threads, client.InNamespace(l.ns))).To(Succeed())
	for _, o := range threads.Items {
		if o.Status.Phase == "Waiting" && o.Status.ThreadID != "" {
			out = append(out, o)
		}
	}
	return out
}

// decide approves or refuses the calls of a thread that wait.
func (l *load) decide(ctx context.Context, rng *rand.Rand, _ *tree) {
	waiting := l.waiting(ctx)
	if len(waiting) == 0 {
		return
	}
	l.decideOn(ctx, waiting[rng.IntN(len(waiting))].Status.ThreadID, func() bool { return rng.IntN(2) == 0 })
}

func (l *load) decideOn(ctx context.Context, id string, approves func() bool) {
	GinkgoHelper()
	var list *runtimev1.ApprovalList
	if ok, _ := l.until(ctx, "read approvals", func(ctx context.Context) (err error) {
		list, err = l.client().Thread(l.ns, id).Approvals(ctx, runtimeclient.Page{})
		return err
	}); !ok {
		return
	}
	for _, a := range list.Approvals {
		if a.Decision != nil {
			continue
		}
		var args struct{ N string }
		Expect(json.Unmarshal([]byte(a.Arguments), &args)).To(Succeed())
		approved := approves()
		if ok, _ := l.until(ctx, "decide", func(ctx context.Context) (err error) {
			if approved {
				_, err = l.client().Thread(l.ns, id).Approve(ctx, a.ToolCallID, "", nil)
			} else {
				_, err = l.client().Thread(l.ns, id).Refuse(ctx, a.ToolCallID, "no")
			}
			return err
		}); ok {
			l.locked(func() { l.decided[args.N] = approved })
		}
	}
}

// cutOff terminates the parent of a thread whose call waits for a decision. The random operations of a short run may not include that.
func (l *load) cutOff(ctx context.Context) {
	GinkgoHelper()
	parent, child := l.couple(ctx)
	l.ask(ctx, nil, child)
	Eventually(ctx, func() []string {
		var names []string
		for _, o := range l.waiting(ctx) {
			names = append(names, o.Name)
		}
		return names
	}).WithTimeout(l.patience).Should(ContainElement(child.name))
	Expect(l.end(ctx, parent)).To(BeTrue())
}

// set sets a value.
func (l *load) set(ctx context.Context, _ *rand.Rand, t *tree) {
	text := l.text()
	if ok, _ := l.until(ctx, "set", func(ctx context.Context) error { return l.client().Thread(l.ns, t.id).SetValue(ctx, text, text) }); ok {
		l.locked(func() { l.values[t] = append(l.values[t], text) })
	}
}

// hosts is on how many threads effects run code: each of them takes a process.
const hosts = 6

// effect schedules an effect that is due soon on one of a few threads.
func (l *load) effect(ctx context.Context, rng *rand.Rand, _ *tree) {
	all := l.choices(ctx)
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b *tree) int { return strings.Compare(a.name, b.name) })
	text, t, delay := l.text(), all[rng.IntN(min(hosts, len(all)))], rng.Int64N(3000)
	if ok, _ := l.until(ctx, "schedule soon", func(ctx context.Context) error {
		_, err := l.client().Thread(l.ns, t.id).Schedule(ctx, runtimev1.NewEffect{Name: "note", Args: fmt.Appendf(nil, `{"n":%q}`, text), Delay: delay, IdempotencyKey: text})
		return err
	}); ok {
		l.locked(func() { l.soon[text] = t })
	}
}

// fire declares an effect without a thread that calls a tool soon.
func (l *load) fire(ctx context.Context, rng *rand.Rand, _ *tree) {
	text := l.text()
	o := scheduled(l.ns, "fire-"+text, skeinv1.ScheduledEffectSpec{
		After: &metav1.Duration{Duration: time.Duration(rng.IntN(5000)) * time.Millisecond}, CallTool: &skeinv1.EffectToolCall{Name: "count"},
		Args:  harness.Raw(map[string]any{"n": text}),
		Retry: patiently,
		// They are looked at in the end.
		TTLSecondsAfterFinished: ptr.To[int32](24 * 3600),
	})
	if ok, _ := l.until(ctx, "fire", func(ctx context.Context) error { return cluster.Client.Create(ctx, o) }); ok {
		l.locked(func() { l.alone[text] = o })
	}
}

// refuse refuses all calls that wait yet.
func (l *load) refuse(ctx context.Context) {
	GinkgoHelper()
	for _, o := range l.waiting(ctx) {
		l.decideOn(ctx, o.Status.ThreadID, func() bool { return false })
	}
}
