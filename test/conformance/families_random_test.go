package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// growth is what the agents of trees have besides what grow declares.
type growth struct {
	steps []skeinv1.ScriptStep
	tools []string
}

// computes is code that runs in the sandbox of a thread.
const computes = `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'computes', execute: async () => ({ status: 'success', result: 'computed ' + 6 * 7 }) });`

// grow declares the agents of the trees. A message that begins with "spawn" has its thread start a child, one that begins with "code" has
// it run code, and one that is JSON has it read another thread.
func grow(ctx context.Context, ns string, most int, more growth) *trees {
	GinkgoHelper()
	read := harness.Calls("read_thread", map[string]any{"thread": "{{ (fromJSON .Last.Content).read }}", "goal": "whatever it says"})
	spawn := func(kind string) skeinv1.ScriptStep {
		return harness.On("^spawn "+kind+" ", harness.Calls("subagent_create", map[string]any{"agent": kind, "message": "work", "name": "{{ .Last.Content }}"}))
	}
	kind := func(name string, blocking bool) skeinv1.AgentSubagent {
		return skeinv1.AgentSubagent{Name: name, AgentRef: skeinv1.LocalRef{Name: "agent"}, Description: "does a part", MaxInstances: 20, Blocking: blocking, Resumable: !blocking}
	}
	create(ctx,
		harness.CodeTool(ns, "compute", computes, nil),
		harness.Scripted(ns, "model", append(more.steps, harness.On("^code ", harness.Calls("compute", nil)), spawn("stays"), spawn("once"), harness.On(`^\{"n"`, read), harness.On("^slow ", harness.Slow(time.Second, harness.Answer("at last"))),
			anyTime(harness.On("^Goal of the new conversation: ", harness.Answer("short"))), always("ok"))...),
		harness.Prompt(ns, "prompt", "model", append(more.tools, "compute", "builtin:subagents", "builtin:threads")...),
		harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) {
			s.ReadThreads = skeinv1.ReadThreadsNamespace
			s.Subagents = []skeinv1.AgentSubagent{kind("stays", false), kind("once", true)}
		}),
		harness.Effect(ns, "note", note))
	w := &trees{ns: ns, clients: []*runtimeclient.Client{api()}, ops: ordinary, most: most, patience: 3 * patience, bulk: 20_000, threads: map[string]*tree{}, done: map[string]int{}}
	for range 6 {
		Expect(w.plant(ctx)).To(BeTrue())
	}
	return w
}

// ordinary is what clients do to the threads of trees.
var ordinary = []operation{
	{30, (*trees).say}, {10, (*trees).inject}, {10, (*trees).fork}, {5, (*trees).handOff}, {8, (*trees).mention}, {6, (*trees).rerun}, {5, (*trees).terminate},
	{4, (*trees).remove}, {3, (*trees).orphan}, {8, (*trees).truncate}, {6, (*trees).schedule}, {6, (*trees).write}, {4, (*trees).attach}, {2, (*trees).dismiss},
}

// work does operations, one after the other, while next says so.
func (w *trees) work(ctx context.Context, rng *rand.Rand, next func() bool) {
	sum := 0
	for _, o := range w.ops {
		sum += o.weight
	}
	for next() {
		all := w.choices(ctx)
		if len(all) < 6 || len(all) < w.most/2 && rng.IntN(6) == 0 {
			w.plant(ctx)
			continue
		}
		pick := rng.IntN(sum)
		for _, o := range w.ops {
			if pick -= o.weight; pick < 0 {
				o.do(w, ctx, rng, all[rng.IntN(len(all))])
				break
			}
		}
	}
}

// plant makes a thread without a parent.
func (w *trees) plant(ctx context.Context) bool {
	GinkgoHelper()
	w.root(ctx)
	return true
}

// rootPrefix begins the names of threads that plant makes.
const rootPrefix = "root-"

func (w *trees) root(ctx context.Context) *tree {
	GinkgoHelper()
	o := harness.NewThread(w.ns, rootPrefix+w.text(), "agent")
	create(ctx, o)
	Eventually(ctx, func() error { return w.client().Thread(w.ns, o.Name).SetValue(ctx, "k", 1) }).WithTimeout(w.patience).Should(Succeed())
	t := w.tree(string(o.UID), o.Name)
	w.keep(t)
	w.count("plant", nil)
	return t
}

func (w *trees) say(ctx context.Context, rng *rand.Rand, t *tree) {
	text := w.text()
	switch rng.IntN(8) {
	case 0, 1:
		text = "slow " + text
	case 2, 3, 4:
		if !w.crowded.Load() {
			text = []string{"spawn once ", "spawn stays "}[rng.IntN(2)] + text
		}
	case 5:
		all := w.choices(ctx)
		text = fmt.Sprintf(`{"n":%q,"read":%q}`, text, all[rng.IntN(len(all))].name)
	case 6:
		text = "code " + text
	}
	w.queue(ctx, "say", t, text)
}

// queue sends a user message to a thread.
func (w *trees) queue(ctx context.Context, what string, t *tree, text string) {
	GinkgoHelper()
	w.sends(t, text, true, func() (bool, bool) {
		return w.until(ctx, what, func(ctx context.Context) error {
			_, err := w.client().Thread(w.ns, t.id).Queue(ctx, runtimev1.NewMessage{Content: text, IdempotencyKey: text})
			return err
		})
	})
}

func (w *trees) inject(ctx context.Context, _ *rand.Rand, t *tree) {
	text := w.text()
	w.sends(t, text, false, func() (bool, bool) {
		return w.until(ctx, "inject", func(ctx context.Context) error {
			_, err := w.client().Thread(w.ns, t.id).Inject(ctx, runtimev1.NewMessage{Role: runtimev1.RoleUser, Content: text, Silent: true, IdempotencyKey: text})
			return err
		})
	})
}

func (w *trees) fork(ctx context.Context, rng *rand.Rand, t *tree) {
	ms := w.heard(ctx, rng, t)
	if len(ms) == 0 || w.crowded.Load() {
		return
	}
	title := w.text()
	var rec *runtimev1.ThreadRecord
	if ok, _ := w.until(ctx, "fork", func(ctx context.Context) (err error) {
		rec, err = w.client().Thread(w.ns, t.id).Fork(ctx, runtimev1.NewFork{MessageID: ms[len(ms)-1].ID, Title: title, IdempotencyKey: title})
		return err
	}); ok {
		f := w.tree(rec.ThreadID, rec.Name)
		w.begins(f, texts(ms))
		w.keep(f)
	}
}

func (w *trees) handOff(ctx context.Context, _ *rand.Rand, t *tree) {
	if w.crowded.Load() {
		return
	}
	title := w.text()
	var made *runtimev1.HandedOff
	if ok, _ := w.until(ctx, "hand off", func(ctx context.Context) (err error) {
		made, err = w.client().Thread(w.ns, t.id).HandOff(ctx, runtimev1.ContextHandoff{Goal: "go on", Title: title, IdempotencyKey: title})
		return err
	}); ok {
		w.keep(w.tree(made.ThreadID, made.Name))
	}
}

func (w *trees) mention(ctx context.Context, rng *rand.Rand, t *tree) {
	all := w.choices(ctx)
	if other := all[rng.IntN(len(all))]; other != t {
		w.until(ctx, "mention", func(ctx context.Context) error {
			_, err := w.client().Thread(w.ns, t.id).Relate(ctx, runtimev1.Relationship{ThreadID: other.id, Type: "mention", Role: "parent"})
			return err
		})
	}
}

func (w *trees) rerun(ctx context.Context, rng *rand.Rand, t *tree) {
	var runs *runtimev1.RunList
	if ok, _ := w.until(ctx, "read runs", func(ctx context.Context) (err error) {
		runs, err = w.client().Thread(w.ns, t.id).Runs(ctx, runtimeclient.Page{})
		return err
	}); !ok || len(runs.Runs) == 0 || w.crowded.Load() {
		return
	}
	text, run := w.text(), runs.Runs[rng.IntN(len(runs.Runs))]
	var rec *runtimev1.ThreadRecord
	if ok, _ := w.until(ctx, "rerun", func(ctx context.Context) (err error) {
		rec, err = w.client().Thread(w.ns, t.id).Rerun(ctx, run.ID, runtimev1.NewRerun{Step: 1, Input: &text, Title: text, IdempotencyKey: text})
		return err
	}); ok {
		w.keep(w.tree(rec.ThreadID, rec.Name))
	}
}

// parent returns a thread that has children, mostly: otherwise few of those that end would have any.
func (w *trees) parent(ctx context.Context, rng *rand.Rand, t *tree) *tree {
	GinkgoHelper()
	var l skeinv1.SubagentList
	Expect(cluster.Client.List(ctx, &l, client.InNamespace(w.ns))).To(Succeed())
	if len(l.Items) == 0 {
		return t
	}
	name := l.Items[rng.IntN(len(l.Items))].Spec.ParentRef.Name
	for _, one := range w.choices(ctx) {
		if one.name == name {
			return one
		}
	}
	return t
}

func (w *trees) terminate(ctx context.Context, rng *rand.Rand, t *tree) {
	w.end(ctx, w.parent(ctx, rng, t))
}

// end terminates a thread, and reports whether that was carried out.
func (w *trees) end(ctx context.Context, t *tree) bool {
	w.locked(func() { t.asked = true })
	ok, _ := w.until(ctx, "terminate", w.client().Thread(w.ns, t.id).Terminate)
	if ok {
		w.locked(func() { t.terminated = true })
	}
	return ok
}

func (w *trees) remove(ctx context.Context, rng *rand.Rand, t *tree) {
	t = w.parent(ctx, rng, t)
	w.locked(func() { t.deleted = true })
	how := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}[rng.IntN(2)]
	w.until(ctx, "delete", func(ctx context.Context) error {
		return cluster.Client.Delete(ctx, harness.NewThread(w.ns, t.name, ""), client.PropagationPolicy(how))
	})
}

func (w *trees) orphan(ctx context.Context, rng *rand.Rand, t *tree) {
	t = w.parent(ctx, rng, t)
	w.locked(func() {
		t.deleted, t.orphaned = true, true
		t.ended = t.terminated
	})
	w.until(ctx, "orphan", func(ctx context.Context) error {
		return cluster.Client.Delete(ctx, harness.NewThread(w.ns, t.name, ""), client.PropagationPolicy(metav1.DeletePropagationOrphan))
	})
}

func (w *trees) truncate(ctx context.Context, rng *rand.Rand, t *tree) {
	ms := w.heard(ctx, rng, t)
	if len(ms) == 0 {
		return
	}
	w.cuts(t, texts(ms), func() (bool, bool) {
		return w.until(ctx, "truncate", func(ctx context.Context) error {
			_, err := w.client().Thread(w.ns, t.id).Truncate(ctx, runtimev1.Truncate{MessageID: ms[len(ms)-1].ID})
			return err
		})
	})
}

// schedule schedules an effect that is not due before the spec ends, also after hours of chaos.
func (w *trees) schedule(ctx context.Context, _ *rand.Rand, t *tree) {
	text := w.text()
	if ok, _ := w.until(ctx, "schedule", func(ctx context.Context) error {
		_, err := w.client().Thread(w.ns, t.id).Schedule(ctx, runtimev1.NewEffect{Name: "note", Args: fmt.Appendf(nil, `{"n":%q}`, text), Delay: (24 * time.Hour).Milliseconds(), IdempotencyKey: text})
		return err
	}); ok {
		w.locked(func() { t.effects = append(t.effects, text) })
	}
}

func (w *trees) write(ctx context.Context, _ *rand.Rand, t *tree) {
	text := w.text()
	if ok, _ := w.until(ctx, "write", func(ctx context.Context) error {
		_, err := w.client().Thread(w.ns, t.id).WriteFile(ctx, "/"+text, strings.NewReader(strings.Repeat(text, w.bulk)), runtimeclient.WriteFileOptions{})
		return err
	}); ok {
		w.locked(func() { t.files = append(t.files, text) })
	}
}

// attach declares a child, as kubectl would.
func (w *trees) attach(ctx context.Context, _ *rand.Rand, t *tree) {
	if w.crowded.Load() {
		return
	}
	name := "child-" + w.text()
	w.until(ctx, "attach", func(ctx context.Context) error {
		return cluster.Client.Create(ctx, &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, Spec: skeinv1.SubagentSpec{
			ParentRef: skeinv1.LocalRef{Name: t.name}, AgentRef: skeinv1.LocalRef{Name: "agent"}, Name: "stays", Message: "work", Resumable: true,
		}})
	})
}

// dismiss deletes a child by its Subagent.
func (w *trees) dismiss(ctx context.Context, rng *rand.Rand, _ *tree) {
	var l skeinv1.SubagentList
	Expect(cluster.Client.List(ctx, &l, client.InNamespace(w.ns))).To(Succeed())
	if len(l.Items) == 0 {
		return
	}
	s := &l.Items[rng.IntN(len(l.Items))]
	if s.Status.Entry != nil && s.Status.Entry.ThreadID != "" {
		t := w.tree(s.Status.Entry.ThreadID, s.Status.Entry.ThreadName)
		w.locked(func() { t.deleted = true })
	}
	w.until(ctx, "dismiss", func(ctx context.Context) error { return cluster.Client.Delete(ctx, s) })
}
