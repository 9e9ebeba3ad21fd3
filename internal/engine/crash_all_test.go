package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

// everything is a world with all that can be under way at once: a run with code, an approval, a child and a streamed answer,
// one of a handler, one that fails, one that is stopped, a conversation that is cleared, an effect that fires, and what follows runs.
type everything struct {
	*enginetest.World
	run, coded, wrong, hangs, cleared string
	firing                            store.Firing
}

func newEverything(ctx context.Context, sandboxes ports.Sandboxes, at seat) *everything {
	GinkgoHelper()
	w := &everything{World: newWorld()}
	w.Logger = logr.Discard() // crashes are loud
	w.Sandboxes = sandboxes
	w.Models = patient{w.Models, "child", func(ctx context.Context) bool { // its parent is parked by then
		r := lastRunOr(ctx, w.World, w.run)
		return r.Status == store.RunWaiting || r.Status.Ended()
	}}
	w.Definitions.Put("child", enginetest.Script(skeinv1.ScriptStep{Content: "child says so"}))
	w.Definitions.Put("run", codeTool("stamp", `export default async (state) => { await state.injectMessage({ role: 'system', silent: true, content: 'stamped' }); return 'stamp'; }`),
		enginetest.Approved(skeinv1.BuiltinEffects, 0), enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Blocking: true, MaxInstances: 1}}
		}, enginetest.Script(
			skeinv1.ScriptStep{Content: "first", ToolCalls: []skeinv1.ScriptToolCall{
				enginetest.ToolCall("stamp", nil), enginetest.ToolCall("schedule_effect", map[string]any{"name": "one"})}},
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
				enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "help"})}},
			skeinv1.ScriptStep{Times: ptr.To[int32](0), Content: strings.Repeat("piece by piece ", 300)}))
	// (What is longer than 4 KiB is written in pieces, however fast it comes.)
	w.Definitions.Put("coded", handler(`export default createAgent('Coded', { handler: async (ctx, input) => { await ctx.thread.state.push('calls', 1); return 'by code: ' + input; } });`, nil))
	w.Definitions.Put("wrong", enginetest.Script(skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "never said"}, Content: "x"}))
	w.Definitions.Put("hangs", enginetest.Script(skeinv1.ScriptStep{Latency: ms(3600_000), Times: ptr.To[int32](0), Content: "late"}))
	w.Definitions.Put("cleared", enginetest.Script(enginetest.Say("You said {{.Last.Content}}.")))
	m, failed := compile.Compile("effect.ts", `export default async (state) => { await state.setValue('fired', true); }`, sandbox.TypeScript)
	Expect(failed).To(BeNil())
	w.Definitions.PutEffect("fires", definition.Effect{Module: m, Digest: "fires"})
	w.run, w.coded = makeThread(ctx, w.World, "run", withID(at.first)), makeThread(ctx, w.World, "coded", withID(at.second))
	w.wrong, w.hangs, w.cleared = makeThread(ctx, w.World, "wrong"), makeThread(ctx, w.World, "hangs"), makeThread(ctx, w.World, "cleared")
	for _, id := range []string{w.run, w.coded, w.wrong, w.hangs, w.cleared} {
		send(ctx, w.World, id, "go")
	}
	for i := range 2 { // for the handler, which answers each by itself
		send(ctx, w.World, w.coded, fmt.Sprint("go ", i))
	}
	w.firing = store.Firing{EffectID: uuid.NewString(), Due: time.Now().UnixMicro(), ThreadID: w.run, Namespace: enginetest.Namespace, Name: "se", Effect: "fires"}
	recorded, err := w.Store.RecordFiring(ctx, w.firing)
	Expect(err).NotTo(HaveOccurred())
	Expect(recorded).To(BeTrue())
	return w
}

// withTask follows every run with a task that leaves the same however often it is done.
func (w *everything) withTask(o *engine.Options) {
	o.PostRun = []postrun.Task{{Name: "note", Do: func(ctx context.Context, r postrun.Run) error {
		st, err := w.Threads.Open(ctx, r.Thread.ID)
		if err != nil {
			return err
		}
		return st.SetValue(ctx, "tasksDone", []byte(`true`))
	}}}
}

// people do what people do, through one engine, until all of it is done, or that engine is cut off.
func (w *everything) people(ctx context.Context, e *engine.Engine, isCut func() bool) {
	GinkgoHelper()
	for ctx.Err() == nil && !isCut() && !w.done(ctx) {
		if list, _, err := e.Approvals(ctx, w.run, approval.Page{}); err == nil {
			for _, a := range list {
				if a.Decision == nil {
					_, err := e.Decide(ctx, w.run, a.ToolCallID, store.Approval{Approved: true, By: "ada"})
					var gone *definition.UnknownError
					Expect(err == nil || errors.As(err, &gone) || isCut()).To(BeTrue(), "%v", err)
				}
			}
		}
		if lastRunOr(ctx, w.World, w.hangs).Status == store.RunRunning {
			err := e.Stop(ctx, w.hangs, "enough")
			Expect(err == nil || isCut()).To(BeTrue(), "%v", err)
		}
		if t, err := w.Store.Thread(ctx, w.cleared); err == nil && t.DestroyedReason == "" && lastRunOr(ctx, w.World, w.cleared).Status.Ended() {
			err := e.Destroy(ctx, w.cleared)
			Expect(err == nil || isCut()).To(BeTrue(), "%v", err)
		}
		pause(ctx, 2*time.Millisecond)
	}
}

func (w *everything) done(ctx context.Context) bool {
	for _, id := range []string{w.run, w.coded, w.wrong, w.hangs, w.cleared} {
		if id == w.cleared {
			if t, err := w.Store.Thread(ctx, id); err != nil || t.DestroyedReason == "" {
				return false
			}
		} else if rested, err := w.Resting(ctx, id); err != nil || !rested {
			return false
		}
	}
	f, err := w.Store.Firing(ctx, w.firing.Key())
	if err != nil || f.Status == store.FiringPending {
		return false
	}
	left, err := w.Store.PostRunPending(ctx, time.Now().Add(time.Hour).UnixMicro(), 0)
	return err == nil && len(left) == 0
}

// transcript is all that is left of it in the end.
func (w *everything) transcript(ctx context.Context) (lines []string) {
	GinkgoHelper()
	children, err := w.Store.Children(ctx, w.run)
	Expect(err).NotTo(HaveOccurred())
	Expect(children).To(HaveLen(1), "children of %v", told(ctx, w.World, w.run))
	for name, id := range map[string]string{"run": w.run, "coded": w.coded, "wrong": w.wrong, "hangs": w.hangs, "cleared": w.cleared, "child": children[0].ID} {
		for i, line := range told(ctx, w.World, id) {
			if strings.Contains(line, "tool schedule_effect") {
				line = line[:strings.Index(line, ":")] // the ids are new each time
			}
			lines = append(lines, fmt.Sprintf("%s %02d %s", name, i, line))
		}
		if id != w.cleared {
			lines = append(lines, name+" ended "+string(lastRun(ctx, w.World, id).Status))
		}
		for _, key := range []string{"fired", "tasksDone"} {
			if id == w.cleared {
				continue // what follows its run may come before it is cleared, or after
			}
			if v, err := w.Store.Value(ctx, id, key); err == nil {
				lines = append(lines, name+" "+key+" "+string(v))
			}
		}
	}
	f, err := w.Store.Firing(ctx, w.firing.Key())
	Expect(err).NotTo(HaveOccurred())
	lines = append(lines, "firing "+string(f.Status))
	slices.Sort(lines)
	return lines
}

var _ = Describe("A crash with everything under way", Label("RUN-02", "RUN-11", "EFF-04"), func() {
	It("at any point loses and doubles nothing", func(ctx SpecContext) {
		sandboxes, err := newWorld().UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		seats := newSeats()
		// play has the engine cut off when it comes to a point for the n-th time.
		play := func(point string, n int) (points map[string]int, transcript []string) {
			at := <-seats
			defer func() { seats <- at }()
			w := newEverything(ctx, sandboxes, at)
			gate := &enginetest.Gate{Store: w.Store}
			var mu sync.Mutex
			points = map[string]int{}
			e, stop := start(w.World, w.withTask, func(o *engine.Options) {
				o.Threads = w.Over(gate)
				o.Faults = func(p string) {
					mu.Lock()
					defer mu.Unlock()
					hit := false
					if !gate.IsCut() {
						points[p]++
						hit = p == point && points[p] == n
					}
					if hit {
						gate.Cut()
					}
					// Nothing of a dead process goes on. What does not come out of a run cannot panic, but finds no store any more.
					if gate.IsCut() && !slices.Contains([]string{"effect.handler", "effect.finish", "tasks", "decide", "stop", "destroy"}, strings.TrimSuffix(strings.TrimSuffix(p, ".before"), ".after")) {
						panic("dead")
					}
				}
			})
			w.people(ctx, e, gate.IsCut)
			stop()
			Expect(gate.Expire(ctx)).To(Succeed())
			later := &shifted{} // by now no engine can still work on the tasks after a run
			later.by.Store(int64(hour))
			e, stop = start(w.World, w.withTask, func(o *engine.Options) {
				o.Clock, o.SweepInterval, o.Threads = later, 20*time.Millisecond, w.Over(muchLater{w.Store})
			})
			w.people(ctx, e, func() bool { return false })
			stop()
			Expect(w.Effects.Scheduled(w.run)).To(HaveLen(1), "effects")
			for cause, times := range w.Effects.Calls() {
				Expect(times).To(BeNumerically("<=", 2), cause)
			}
			mu.Lock()
			defer mu.Unlock()
			return points, w.transcript(ctx)
		}
		points, want := play("", 0)
		fmt.Fprintln(GinkgoWriter, strings.Join(want, "\n"))
		reaches("all at once", points)
		atEachPoint(points, firstMiddleLast, func(point string, n int) {
			began := time.Now()
			_, got := play(point, n)
			fmt.Fprintln(GinkgoWriter, point, n, time.Since(began))
			Expect(got).To(Equal(want), "after a crash at %s for the %d. time", point, n)
		})
	}, NodeTimeout(manyPlays))
})

// muchLater is a store by whose clock no engine can still work on the tasks after a run. The store has a clock of its own, as databases do.
type muchLater struct{ store.Store }

func (s muchLater) LeftPostRun(ctx context.Context, _ time.Duration, limit int) ([]store.LeftRun, error) {
	return s.Store.LeftPostRun(ctx, 0, limit)
}

func (s muchLater) TakeTasks(ctx context.Context, run store.RunRef, _ time.Duration) (bool, error) {
	return s.Store.TakeTasks(ctx, run, 0)
}
