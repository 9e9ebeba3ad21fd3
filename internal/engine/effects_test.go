package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool/httptool"
)

func compiledEffect(source string) definition.Effect {
	GinkgoHelper()
	m, failed := compile.Compile("effect.ts", source, sandbox.TypeScript)
	Expect(failed).To(BeNil())
	return definition.Effect{Module: m, Digest: source}
}

func putEffect(w *enginetest.World, name, source string, change ...func(*definition.Effect)) {
	GinkgoHelper()
	e := compiledEffect(source)
	for _, c := range change {
		c(&e)
	}
	w.Definitions.PutEffect(name, e)
}

// fireEffect records a firing that is due now.
func fireEffect(ctx context.Context, w *enginetest.World, threadID, name string, args any, change ...func(*store.Firing)) store.Firing {
	GinkgoHelper()
	f := store.Firing{EffectID: uuid.NewString(), Due: time.Now().UnixMicro(), ThreadID: threadID, Namespace: enginetest.Namespace, Name: "se", Effect: name, Args: enginetest.JSON(args)}
	for _, c := range change {
		c(&f)
	}
	recorded, err := w.Store.RecordFiring(ctx, f)
	Expect(err).NotTo(HaveOccurred())
	Expect(recorded).To(BeTrue())
	return f
}

// endedFiring waits until a firing is not pending any more.
func endedFiring(ctx context.Context, w *enginetest.World, f store.Firing) store.Firing {
	GinkgoHelper()
	var got *store.Firing
	Eventually(func() store.FiringStatus {
		var err error
		got, err = w.Store.Firing(ctx, f.Key())
		Expect(err).NotTo(HaveOccurred())
		return got.Status
	}).ShouldNot(Equal(store.FiringPending))
	return *got
}

var _ = Describe("Effects", func() {
	var w *enginetest.World
	var sandboxes *enginetest.Processes
	BeforeEach(func() {
		w = newWorld()
		var err error
		sandboxes, err = w.UseProcesses(process.Options{MaxWallTime: time.Hour})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		w.Definitions.Put("a", enginetest.Script(enginetest.Say("noted: {{.Last.Content}}")))
	})

	effect := func(name, source string, change ...func(*definition.Effect)) {
		GinkgoHelper()
		putEffect(w, name, source, change...)
	}
	fire := func(ctx context.Context, threadID, name string, args any, change ...func(*store.Firing)) store.Firing {
		GinkgoHelper()
		return fireEffect(ctx, w, threadID, name, args, change...)
	}
	ended := func(ctx context.Context, f store.Firing) store.Firing {
		GinkgoHelper()
		return endedFiring(ctx, w, f)
	}

	DescribeTable("that hooks schedule, whose handlers write what the hooks are told of", Label("HOK-01"), func(ctx SpecContext, delay string, fires int, failed types.GomegaMatcher) {
		w.Definitions.Put("loop", hook(skeinv1.HookAfterCreateMessage, `export default async (state, m) => { await state.scheduleEffect('again', {}, `+delay+`); };`))
		effect("again", `export default async (state) => { await state.injectMessage({ role: 'system', silent: true, content: 'again' }); };`)
		e, _ := start(w)
		id := makeThread(ctx, w, "loop")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		row, err := st.Info(ctx)
		Expect(err).NotTo(HaveOccurred())
		text := "begin"
		_, err = st.WithHooks(e.MessageHooks(ctx, row)).Inject(ctx, thread.NewMessage{Content: &text})
		Expect(err).NotTo(HaveOccurred())
		quiet(ctx, w, id) // the hook has been told
		fired := 0
		for ; fired < 6; fired++ {
			pending := w.Effects.Scheduled(id)
			if len(pending) == 0 {
				break
			}
			Expect(pending).To(HaveLen(1))
			Expect(w.Effects.Remove(ctx, &store.Thread{ID: id}, pending[0].ID)).To(BeTrue())
			f := store.Firing{EffectID: pending[0].ID, Due: 1, ThreadID: id, Namespace: enginetest.Namespace, Name: "se", Effect: "again", Args: enginetest.JSON(map[string]any{}), HookDepth: pending[0].HookDepth}
			Expect(w.Store.RecordFiring(ctx, f)).To(BeTrue())
			Expect(ended(ctx, f)).To(HaveField("Status", store.FiringSucceeded))
			quiet(ctx, w, id)
		}
		Expect(fired).To(Equal(fires))
		Expect(failures(ctx, w, id)).To(failed)
	},
		Entry("come to an end when they follow each other at once", "59999", 3,
			ConsistOf(And(HaveField("Hook", "after_create_message"), HaveField("Error", ContainSubstring("not scheduled: a chain of 4 hooks, each caused by the one before, ends here"))))),
		Entry("go on when each is put off by a minute", "60000", 6, BeEmpty()),
	)

	It("run apart from the conversation, with its thread as their state", Label("EFF-01", "EFF-02"), func(ctx SpecContext) {
		effect("remind", `import { defineEffect } from '@standardagents/builder';
export default defineEffect({ description: 'Reminds.', handler: async (state, args) => {
  await state.setValue('seen', { execution: state.execution, thread: state.threadId, text: args.text });
  await state.queueMessage({ role: 'user', content: 'Reminder: ' + args.text });
} });`)
		start(w)
		id := makeThread(ctx, w, "a")
		f := ended(ctx, fire(ctx, id, "remind", map[string]any{"text": "call home"}))
		Expect(f).To(And(HaveField("Status", store.FiringSucceeded), HaveField("Attempts", 1), HaveField("Error", "")))
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: Reminder: call home", "assistant: noted: Reminder: call home"}))
		v, err := w.Store.Value(ctx, id, "seen")
		Expect(err).NotTo(HaveOccurred())
		Expect(v).To(MatchJSON(`{"execution":null,"thread":"` + id + `","text":"call home"}`))
		_, held := sandboxes.Counts()
		Expect(held).To(BeZero())
	})

	It("run while a run of the thread is under way, not under its lease", Label("EFF-02"), func(ctx SpecContext) {
		w.Definitions.Put("busy", enginetest.Script(skeinv1.ScriptStep{Latency: ms(3600_000)}))
		effect("note", `export default async (state) => { await state.setValue('done', true) }`)
		start(w)
		id := makeThread(ctx, w, "busy")
		send(ctx, w, id, "go")
		Eventually(func() store.RunStatus { return lastRunOr(ctx, w, id).Status }).Should(Equal(store.RunRunning))
		Expect(ended(ctx, fire(ctx, id, "note", nil)).Status).To(Equal(store.FiringSucceeded))
		Expect(lastRun(ctx, w, id).Status).To(Equal(store.RunRunning))
	})

	DescribeTable("that cannot be done end with a reason, without another try", Label("EFF-02"), func(ctx SpecContext, source string, args any, want string) {
		effect("bad", source, func(e *definition.Effect) {
			e.Spec.Parameters = &runtime.RawExtension{Raw: json.RawMessage(`{"type":"object","properties":{"n":{"type":"number"}}}`)}
			if strings.Contains(source, "for (;;)") {
				e.Spec.Timeout = ms(500)
			}
		})
		start(w)
		id := makeThread(ctx, w, "a")
		f := ended(ctx, fire(ctx, id, "bad", args))
		Expect(f).To(And(HaveField("Status", store.FiringFailed), HaveField("Attempts", 1), HaveField("Error", MatchRegexp(want))))
	},
		Entry("by throwing", "export default () => { throw new Error('no') }", nil, `^Error: no\n.*effect\.ts:1:`),
		Entry("by never ending", "export default () => { for (;;); }", nil, `did not finish|ended before`),
		Entry("with wrong arguments", "export default () => 1", map[string]any{"n": "x"}, `/n: got string, want number`),
	)

	It("of a thread that is terminated or gone do not run", Label("EFF-06"), func(ctx SpecContext) {
		effect("note", `export default async (state) => { await state.setValue('done', true) }`)
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		Expect(e.Terminate(ctx, id, skeinv1.ReasonTerminatedByRequest)).To(Succeed())
		Expect(ended(ctx, fire(ctx, id, "note", nil))).To(And(HaveField("Status", store.FiringCanceled), HaveField("Error", "the thread is terminated")))
		_, err := w.Store.Value(ctx, id, "done")
		Expect(err).To(MatchError(store.ErrNotFound))
		Expect(ended(ctx, fire(ctx, uuid.NewString(), "note", nil))).To(And(HaveField("Status", store.FiringCanceled), HaveField("Error", "the thread is gone")))
	})

	It("wait until they can be run, which is no attempt", Label("EFF-04"), func(ctx SpecContext) {
		later := compiledEffect(`export default async (state) => { await state.setValue('done', true) }`)
		id := makeThread(ctx, w, "a")
		f := fire(ctx, id, "later", nil)
		var looks atomic.Int32
		var said atomic.Value
		start(w, func(o *engine.Options) {
			o.Faults = func(point string) {
				if point == "effect.finish.before" && looks.Add(1) == 1 {
					w.Definitions.PutEffect("later", later) // it is there before the next look, however late this one's end is told
				}
				if point == "effect.handler.before" {
					got, err := w.Store.Firing(ctx, f.Key())
					if err == nil {
						said.Store(got.Waiting)
					}
				}
			}
		})
		Expect(ended(ctx, f)).To(And(HaveField("Status", store.FiringSucceeded), HaveField("Attempts", 1), HaveField("Waiting", "")))
		Expect(said.Load()).To(ContainSubstring(`"later" does not exist`), "what it waited for, until the attempt has ended")

		never := fire(ctx, id, "never", nil)
		looked := looks.Load()
		Eventually(looks.Load).Should(BeNumerically(">=", looked+4), "more looks than a firing has attempts")
		Eventually(func() (*store.Firing, error) { return w.Store.Firing(ctx, never.Key()) }).Should(And(HaveField("Status", store.FiringPending),
			HaveField("Attempts", 0), HaveField("StartedAt", BeZero()), HaveField("Error", ""), HaveField("Waiting", ContainSubstring(`Effect "never" does not exist`))))
	})

	It("run again after a crash under the same key, which makes what they do happen once", Label("EFF-04"), func(ctx SpecContext) {
		effect("remind", `export default async (state, args) => { await state.queueMessage('Reminder: ' + args.text) }`)
		gate := &enginetest.Gate{Store: w.Store}
		var cut atomic.Bool
		_, stop := start(w, func(o *engine.Options) {
			o.Threads = w.Over(gate)
			o.Faults = func(p string) {
				if p == "effect.finish.before" && cut.CompareAndSwap(false, true) {
					gate.Cut()
				}
			}
		})
		id := makeThread(ctx, w, "a", func(n *thread.NewThread) { n.Title = "t" })
		f := fire(ctx, id, "remind", map[string]any{"text": "x"})
		Eventually(gate.IsCut).Should(BeTrue())
		stop()
		Expect(gate.Expire(ctx)).To(Succeed())
		start(w)
		Expect(ended(ctx, f)).To(And(HaveField("Status", store.FiringSucceeded), HaveField("Attempts", 2)))
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: Reminder: x", "assistant: noted: Reminder: x"}))
	})

	It("are one attempt when the claim runs out under the handler, which goes on", Label("EFF-04"), func(ctx SpecContext) {
		effect("slow", `export default async (state) => { while (!(await state.getValue('go'))); }`)
		late := &lateRenewals{Store: w.Store}
		start(w, func(o *engine.Options) {
			o.Threads = w.Over(late)
			o.LeaseTTL = 90 * time.Millisecond
		})
		id := makeThread(ctx, w, "a")
		f := fire(ctx, id, "slow", nil)
		Eventually(func() (*store.Firing, error) { return w.Store.Firing(ctx, f.Key()) }).Should(HaveField("Attempts", 1))
		seen := late.claims.Load()
		Eventually(late.claims.Load).Should(BeNumerically(">", seen+10), "ticks of a third of the claim's term")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.SetValue(ctx, "go", []byte("true"))).To(Succeed())
		Expect(ended(ctx, f)).To(And(HaveField("Status", store.FiringSucceeded), HaveField("Attempts", 1)))
	})

	It("that take longer than a claim are not run twice", Label("EFF-04"), func(ctx SpecContext) {
		effect("slow", `export default async (state) => {
  const n = (await state.getValue('n')) ?? 0;
  await state.setValue('n', n + 1);
  while (!(await state.getValue('go')));
}`)
		kept := &renewals{Store: w.Store}
		start(w, kept.in(w))
		id := makeThread(ctx, w, "a")
		f := fire(ctx, id, "slow", nil)
		Eventually(kept.claims.Load).Should(BeNumerically(">=", 3), "each for a whole term")
		Expect(w.Store.ClaimFirings(ctx, "another", hour, map[string]int{enginetest.Namespace: 10})).To(BeEmpty())
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.SetValue(ctx, "go", []byte("true"))).To(Succeed())
		Expect(ended(ctx, f).Attempts).To(Equal(1))
		Expect(w.Store.Value(ctx, id, "n")).To(MatchJSON("1"))
	})

	It("keep what a failed attempt has said when its claim is renewed at that moment", Label("EFF-04"), func(ctx SpecContext) {
		held := &heldRenewal{Store: w.Store, begun: make(chan struct{}), said: make(chan struct{}), over: make(chan struct{})}
		effect("bad", `export default () => { throw new Error('no') }`)
		start(w, func(o *engine.Options) {
			o.Threads, o.Clock = w.Over(held), hasty{}
			o.Faults = func(point string) {
				if point == "effect.finish.before" {
					<-held.begun
				}
			}
		})
		f := fire(ctx, makeThread(ctx, w, "a"), "bad", nil, func(f *store.Firing) {
			f.Target = effects.Target{Retry: &effects.Retry{Attempts: 2, First: hour}}.Encode()
		})
		Eventually(held.over).Should(BeClosed())
		Expect(held.kept.Load()).To(HaveValue(And(HaveField("Error", ContainSubstring("Error: no")), HaveField("Status", store.FiringPending),
			HaveField("AvailableAt", BeNumerically(">=", f.Due+hour.Microseconds())))), "what the attempt failed by, and when the next is due")
	})

	It("are not tried again when they took longer than a sandbox lets code run", Label("EFF-04", "COD-06"), func(ctx SpecContext) {
		brief, err := w.UseProcesses(process.Options{MaxWallTime: 500 * time.Millisecond})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(brief.Close)
		effect("busy", "export default () => { for (;;); }")
		start(w)
		Expect(ended(ctx, fire(ctx, makeThread(ctx, w, "a"), "busy", nil))).To(And(
			HaveField("Status", store.FiringFailed), HaveField("Attempts", 1), HaveField("Error", ContainSubstring("ran for longer than 500ms"))))
	})

	Describe("without a thread", Label("EFF-03"), func() {
		without := func(ctx context.Context, f store.Firing, t effects.Target) store.Firing {
			GinkgoHelper()
			f.EffectID, f.Due, f.Namespace, f.Name, f.Origin, f.Target = uuid.NewString(), time.Now().UnixMicro(), enginetest.Namespace, "se", store.OriginSchedule, t.Encode()
			Expect(w.Store.RecordFiring(ctx, f)).To(BeTrue())
			return ended(ctx, f)
		}

		It("run in a sandbox of a pool, with the variables of their object, and log to their firing", func(ctx SpecContext) {
			effect("tidy", `export default async (state, args) => {
  console.log('tidying', args.what, await state.env('WHERE'), state.threadId, state.execution);
}`)
			start(w)
			f := without(ctx, store.Firing{Effect: "tidy", Args: enginetest.JSON(map[string]any{"what": "logs"})}, effects.Target{Env: []skeinv1.EnvVar{{Name: "WHERE", Value: ptr.To("here")}}})
			Expect(f).To(And(HaveField("Status", store.FiringSucceeded), HaveField("Error", ""), HaveField("Log", ContainSubstring("tidying logs here null null"))))
		})

		It("say clearly that there is no thread", func(ctx SpecContext) {
			effect("asks", `export default async (state) => { await state.getMessages() }`)
			start(w)
			Expect(without(ctx, store.Firing{Effect: "asks"}, effects.Target{})).To(And(HaveField("Status", store.FiringFailed),
				HaveField("Error", ContainSubstring("state.getMessages needs a thread, and this effect runs without one"))))
		})

		It("explain which tool cannot be called", func(ctx SpecContext) {
			w.Definitions.PutTool("coded", definition.Tool{ObjectName: "coded", Name: "coded"})
			start(w)
			Expect(without(ctx, store.Firing{}, effects.Target{Tool: &effects.ToolCall{Name: "coded"}})).To(And(HaveField("Status", store.FiringFailed),
				HaveField("Error", ContainSubstring(`Tool "coded" is code, which needs a thread`))))
			request, err := httptool.Compile(&skeinv1.HTTPTool{Method: "POST", URL: "http://127.0.0.1:1"}, httptool.Secrets{})
			Expect(err).NotTo(HaveOccurred())
			w.Definitions.PutTool("service", definition.Tool{ObjectName: "service", Name: "service", HTTP: request})
			Expect(without(ctx, store.Firing{}, effects.Target{Tool: &effects.ToolCall{Name: "service", Method: "GET"}})).To(And(HaveField("Status", store.FiringFailed), HaveField("Attempts", 1),
				HaveField("Error", ContainSubstring(`Tool "service" is an HTTP request: remove callTool.method`))))
		})
	})
})
