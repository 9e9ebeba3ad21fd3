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
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/test/harness"
)

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
}

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
		_ = json.Unmarshal([]byte(body), &args) // what nobody sent is seen afterwards
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

// waiting returns the threads that wait for somebody.
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
		Retry: &skeinv1.EffectRetry{Attempts: 10, Backoff: &metav1.Duration{Duration: 100 * time.Millisecond}, MaxBackoff: &metav1.Duration{Duration: time.Second}},
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

// failings looks whether tools were called, effects fired, and values and decisions kept as clients were told.
func (l *load) failings(ctx context.Context, p *problems, all map[string]*looked) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for text, keys := range l.arrived {
		// A thread that lost messages may have asked its model anew.
		if t := l.asked[text]; len(keys) != 1 && (t == nil || t.living()) {
			p.add("the call %q came under %d keys: %v", text, len(keys), keys)
		}
		if approved, ok := l.decided[text]; ok && !approved {
			p.add("the call %q was refused, and made", text)
		}
		if l.asked[text] == nil && l.alone[text] == nil {
			p.add("nobody asked for the call %q", text)
		}
	}
	for text, approved := range l.decided {
		if t := l.asked[text]; approved && t != nil && t.living() && len(l.arrived[text]) == 0 {
			p.add("%s: the call %q was approved, and not made", t.name, text)
		}
	}
	for id, looked := range all {
		l.results(p, id, looked)
	}
	for text, o := range l.alone {
		if err := l.fired(ctx, p, text, o); err != nil {
			return err
		}
	}
	for t, keys := range l.values {
		if all[t.id] == nil {
			continue
		}
		for _, key := range keys {
			if value, err := l.client().Thread(l.ns, t.id).Value(ctx, key); err != nil || string(value) != fmt.Sprintf("%q", key) {
				p.add("%s: the value %s is %s: %v", t.name, key, value, err)
			}
		}
	}
	return nil
}

// results looks whether a thread has one result for each call, each of them of a call that came, and whether its effects did their
// work once.
func (l *load) results(p *problems, id string, looked *looked) {
	name := looked.object.Name
	calls, results := map[string]string{}, map[string]int{}
	said := map[string]int{}
	for _, m := range looked.said {
		said[strings.TrimSpace(ptr.Deref(m.Content, ""))]++
		for _, c := range m.ToolCalls {
			var args struct{ N string }
			if c.Name == "count" || c.Name == "careful" {
				_ = json.Unmarshal([]byte(c.Arguments), &args)
				calls[c.ID] = args.N
			}
		}
		if m.Role != runtimev1.RoleTool || calls[m.ToolCallID] == "" {
			continue
		}
		text := calls[m.ToolCallID]
		if results[m.ToolCallID]++; results[m.ToolCallID] > 1 {
			p.add("%s: the call %q has %d results", name, text, results[m.ToolCallID])
		}
		if m.ToolStatus != "success" {
			continue
		}
		keys := l.arrived[text]
		if len(keys) == 0 {
			p.add("%s: the call %q has a result, and never came", name, text)
		} else if t := l.asked[text]; t != nil && t.id == id && keys[tool.IdempotencyKey(id, m.ToolCallID)] == 0 {
			p.add("%s: the call %q came under another key than its own: %v", name, text, keys)
		}
	}
	for text, t := range l.soon {
		if n := said["once "+text]; t.id == id && n > 1 {
			p.add("%s: the effect %s did its work %d times", name, text, n)
		}
	}
}

// fired looks whether an effect without a thread fired once.
func (l *load) fired(ctx context.Context, p *problems, text string, o *skeinv1.ScheduledEffect) error {
	if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	list, err := l.client().Firings(ctx, l.ns, o.Name, runtimeclient.FiringPage{})
	if err != nil {
		return err
	}
	if len(list.Firings) != 1 || o.Status.CompletionTime == nil {
		p.add("%s fired %d times, its phase is %s", o.Name, len(list.Firings), o.Status.Phase)
		return nil
	}
	f := list.Firings[0]
	if requests := l.arrived[text][tool.IdempotencyKey(string(o.UID), fmt.Sprintf("effect:%s:%d", o.UID, f.Due))]; requests > f.Attempts || f.Status == "succeeded" && requests == 0 {
		p.add("%s: %d requests under the key of its firing, which is %+v", o.Name, requests, f)
	}
	return nil
}
