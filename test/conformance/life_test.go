package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// api is the Go client of the runtime API, as the cluster's administrator.
func api() *runtimeclient.Client {
	GinkgoHelper()
	c, err := runtimeclient.New(cluster.Config)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// running waits until a run of the thread is under way.
func running(ctx SpecContext, t *harness.Thread) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(t.Runs(ctx)).To(ContainElement(HaveField("Status", "running")))
	}).Should(Succeed())
}

// eventTypes gives the types of the thread's log, deltas left out.
func eventTypes(ctx SpecContext, t *harness.Thread) []string {
	GinkgoHelper()
	events, err := t.Log(ctx)
	Expect(err).NotTo(HaveOccurred())
	var types []string
	for i, e := range events {
		if i > 0 {
			Expect(e.Seq).To(Equal(events[i-1].Seq+1), "the log has no gaps")
		}
		if e.Type != runtimev1.EventDelta {
			types = append(types, e.Type)
		}
	}
	return types
}

// hang is a step that never answers "hang".
func hang() skeinv1.ScriptStep {
	return harness.On("hang", harness.Slow(time.Hour, harness.Answer("never")))
}

// refusesNewWork tries what a terminated thread refuses, and what it takes.
func refusesNewWork(ctx context.Context, t *harness.Thread) {
	GinkgoHelper()
	wire := api().Thread(t.Namespace, t.Name)
	for name, call := range map[string]func() error{
		"POST messages": func() error { _, err := wire.Inject(ctx, runtimev1.NewMessage{Content: "x"}); return err },
		"PATCH messages": func() error {
			_, err := wire.UpdateMessage(ctx, must(t.Messages(ctx))[0].ID, runtimev1.MessageUpdates{Content: ptr.To("x")})
			return err
		},
		"POST continue": func() error { _, err := wire.Continue(ctx); return err },
		"PUT files": func() error {
			_, err := wire.WriteFile(ctx, "/late.txt", strings.NewReader("x"), runtimeclient.WriteFileOptions{})
			return err
		},
		"PUT kv":         func() error { return wire.SetValue(ctx, "k", 1) },
		"PUT state":      func() error { return wire.SetState(ctx, "k", 1) },
		"POST state":     func() error { return wire.PushState(ctx, "k", 1, 0) },
		"PUT env":        func() error { return wire.SetEnv(ctx, "K", "v", "text") },
		"POST events":    func() error { return wire.Emit(ctx, "late", 1) },
		"POST notify":    func() error { return wire.NotifyParent(ctx, "x") },
		"PUT status":     func() error { return wire.SetStatus(ctx, "x") },
		"POST tools":     func() error { _, err := wire.InvokeTool(ctx, "get_value", map[string]any{"key": "k"}); return err },
		"POST skills":    func() error { _, err := wire.ActivateSkill(ctx, "s", nil); return err },
		"POST effects":   func() error { _, err := wire.ScheduleEffect(ctx, "e", nil, 0); return err },
		"POST approvals": func() error { _, err := wire.Approve(ctx, "call_1", "", nil); return err },
		"POST relationships": func() error {
			_, err := wire.Relate(ctx, runtimev1.Relationship{ThreadID: t.Name, Type: "mention", Role: "child"})
			return err
		},
		"POST import": func() error {
			_, err := wire.Import(ctx, strings.NewReader(`{"agentId":"a","createdAt":"2026-01-01T00:00:00Z"}`))
			return err
		},
	} {
		err := call()
		Expect(err).To(kind(runtimeclient.ErrTerminated), "%s: %v", name, err)
		Expect(apierrors.IsGone(err)).To(BeTrue(), "%s: %v", name, err)
		Expect(err).To(MatchError(ContainSubstring("create a new Thread")), name)
	}
	Expect(must(wire.Files(ctx, runtimeclient.FileOptions{})).Files).To(BeEmpty())

	_, err := wire.Stop(ctx, "")
	Expect(err).NotTo(HaveOccurred(), "there is nothing to stop")
	_, err = wire.Archive(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(wire.UnsetEnv(ctx, "K")).To(BeFalse())
	Expect(wire.DeleteMessage(ctx, "nothing")).To(BeFalse())
	rc, err := wire.Export(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(rc.Close()).To(Succeed())
}

var _ = Describe("The end of threads", func() {
	It("is soft by terminate: the run is aborted, work refused, all to be read, the parent told", Label("THR-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := family(ctx, ns,
			[]skeinv1.ScriptStep{
				harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "hang"})),
				harness.After("subagent_create", harness.Answer("told: {{ .Last.Content }}")), harness.Echo()},
			[]skeinv1.ScriptStep{hang()},
			helper(func(s *skeinv1.AgentSubagent) { s.Blocking = true }))
		Expect(t.Say(ctx, "go")).To(Succeed())
		var child *harness.Thread
		Eventually(ctx, func(g Gomega) {
			subs := subagents(ctx, ns)
			g.Expect(subs).To(HaveLen(1))
			child = cluster.Thread(ns, subs[0].Name)
			g.Expect(child.Runs(ctx)).To(ContainElement(HaveField("Status", "running")))
		}).Should(Succeed())

		before := time.Now().UnixMicro()
		Expect(api().Thread(ns, child.Name).Terminate(ctx)).To(Succeed())
		rec := must(api().Thread(ns, child.Name).Get(ctx))
		Expect(rec.Terminated).To(HaveValue(And(BeNumerically(">=", before), BeNumerically("<=", time.Now().UnixMicro()))), "in microseconds")
		settled(ctx, child, 1)
		Expect(child.Runs(ctx)).To(HaveExactElements(HaveField("Status", "terminated")))
		Expect(api().Thread(ns, child.Name).Terminate(ctx)).To(Succeed())
		Expect(must(api().Thread(ns, child.Name).Get(ctx)).Terminated).To(Equal(rec.Terminated), "again changes nothing")

		_, err := api().Thread(ns, child.Name).Queue(ctx, runtimev1.NewMessage{Content: "more"})
		Expect(apierrors.IsGone(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("create a new Thread")))
		_, err = child.Code(ctx, runtimev1.CodeRequest{Source: "export default 1"})
		Expect(apierrors.IsGone(err)).To(BeTrue(), "%v", err)
		Expect(texts(must(child.Messages(ctx)))).To(Equal([]string{"user: hang"}), "reads still work")
		refusesNewWork(ctx, child)

		Expect(last(settled(ctx, t, 1))).To(ContainSubstring("terminated"), "the parent that waited was told")
		list, err := api().Thread(ns, "thread").Children(ctx, runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Children).To(HaveExactElements(HaveField("Status", "terminated")))

		By("terminating a parent whose child runs")
		create(ctx, harness.NewThread(ns, "second", "parent"))
		second := ready(ctx, cluster.Thread(ns, "second"))
		Expect(second.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			for _, s := range subagents(ctx, ns) {
				if s.Spec.ParentRef.Name == "second" {
					child = cluster.Thread(ns, s.Name)
				}
			}
			g.Expect(child.Runs(ctx)).To(ContainElement(HaveField("Status", "running")))
		}).Should(Succeed())
		Expect(second.Terminate(ctx)).To(Succeed())
		settled(ctx, child, 1)
		Expect(child.Runs(ctx)).To(HaveExactElements(HaveField("Status", "terminated")))
		o, err := child.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		rec, err = api().Thread(ns, child.Name).Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(rec.TerminatedReason).To(Equal(skeinv1.ReasonParentTerminated), o.Name)
	}, SpecTimeout(3*time.Minute))

	It("clears the conversation by destroy, and the thread goes on under its id", Label("THR-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{hang(), harness.Echo()})
		say(ctx, t, 1, "one")
		Expect(t.WriteFile(ctx, "/keep.txt", "text/plain", []byte("kept"))).To(Succeed())
		Expect(t.SetValue(ctx, "color", `"red"`)).To(Succeed())
		Expect(t.Say(ctx, "hang")).To(Succeed())
		running(ctx, t)
		Expect(t.Say(ctx, "waits")).To(Succeed())
		rec, err := api().Thread(ns, "thread").Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		id, seen := rec.ThreadID, rec.LastEvent

		rec, err = api().Thread(ns, "thread").Destroy(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(rec.MessageCount).To(BeZero())
		Expect(rec.QueuedCount).To(BeZero())
		Expect(rec.DestroyedReason).To(Equal("explicit"))
		Expect(rec.ThreadID).To(Equal(id))
		Expect(t.Messages(ctx)).To(BeEmpty())
		Expect(settled(ctx, t, 2)).To(BeEmpty(), "nothing of the run that was under way comes back")
		Expect(t.Runs(ctx)).To(HaveExactElements(And(HaveField("Status", "stopped"), HaveField("Reason", "Destroyed")), HaveField("Status", "succeeded")))
		Expect(t.ReadFile(ctx, "/keep.txt")).To(BeEquivalentTo("kept"))
		Expect(t.Value(ctx, "color")).To(MatchJSON(`"red"`))

		events, err := t.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		var fired []runtimev1.Event
		deleted := 0
		for _, e := range events {
			switch e.Type {
			case runtimev1.EventDestroyed:
				fired = append(fired, e)
			case runtimev1.EventMessageDeleted:
				deleted++
			}
		}
		Expect(fired).To(HaveLen(1))
		Expect(fired[0].Seq).To(BeNumerically(">", seen))
		Expect(fired[0].Data).To(MatchJSON(`{"reason":"explicit","messages":3}`))
		Expect(deleted).To(Equal(3))
		Expect(eventTypes(ctx, t)).To(ContainElement(runtimev1.EventMessageCreated), "the log has only grown")

		Expect(texts(say(ctx, t, 3, "again"))).To(Equal([]string{"user: again", "assistant: echo: again"}))
		out, err := cluster.Plugin(ctx, "-n", ns, "destroy", "thread")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(Equal("thread/thread destroyed\n"))
		Expect(t.Messages(ctx)).To(BeEmpty())
		Eventually(ctx, func(g Gomega) {
			o, err := t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Destroyed).To(HaveValue(HaveField("Reason", "explicit")))
			out, err := cluster.Kubectl(ctx, "-n", ns, "get", "events.events.k8s.io", "-o", "jsonpath={.items[*].reason}")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(ContainSubstring("Destroyed"))
		}).Should(Succeed())
	}, SpecTimeout(2*time.Minute))

	It("comes to the conversations of idle threads, and to no other", Label("THR-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		short := &metav1.Duration{Duration: 3 * time.Second}
		create(ctx, harness.Scripted(ns, "model", hang(), harness.Echo()), harness.Prompt(ns, "prompt", "model"),
			harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) { s.ThreadIdleExpiry = short }),
			harness.NewThread(ns, "agents", "agent"),
			harness.NewThread(ns, "never", "agent", func(s *skeinv1.ThreadSpec) { s.IdleExpiry = &metav1.Duration{} }),
			harness.NewThread(ns, "busy", "agent"))
		expires, never, busy := ready(ctx, cluster.Thread(ns, "agents")), ready(ctx, cluster.Thread(ns, "never")), ready(ctx, cluster.Thread(ns, "busy"))
		Expect(busy.Say(ctx, "hang")).To(Succeed())
		running(ctx, busy)
		say(ctx, never, 1, "stay")
		// What was said and is gone is told by the log, which stays: the messages may be gone before one looks.
		expiries := func() (data []string, err error) {
			log, err := expires.Log(ctx)
			for _, e := range log {
				if e.Type == runtimev1.EventDestroyed {
					data = append(data, string(e.Data))
				}
			}
			if len(data) > 0 && strings.Contains(data[0], `"messages":0`) {
				data = data[1:] // nothing was said for so long
			}
			return data, err
		}
		once := MatchJSON(`{"reason":"expired","messages":2}`)
		say(ctx, expires, 1, "go")
		for _, name := range []string{"agents", "never", "busy"} {
			want := int64(3_000_000)
			if name == "never" {
				want = 0
			}
			Expect(api().Thread(ns, name).Get(ctx)).To(HaveField("IdleExpiry", want), name)
		}
		Eventually(ctx, expiries).Should(HaveExactElements(once))
		Expect(expires.Messages(ctx)).To(BeEmpty())
		rec, err := api().Thread(ns, "agents").Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(rec.DestroyedReason).To(Equal("expired"))
		say(ctx, expires, 2, "back")
		Eventually(ctx, expiries).Should(HaveExactElements(once, once), "it expires again")
		Expect(expires.Messages(ctx)).To(BeEmpty())
		Expect(expires.Runs(ctx)).To(And(HaveLen(2), HaveEach(HaveField("Status", "succeeded"))))
		// All the while the others were idle for longer, or ran.
		Expect(never.Messages(ctx)).To(HaveLen(2))
		Expect(busy.Messages(ctx)).To(HaveLen(1))
		Expect(busy.Runs(ctx)).To(HaveExactElements(HaveField("Status", "running")))

		_, err = cluster.Kubectl(ctx, "-n", ns, "patch", "thread", "never", "--type=merge", "-p", `{"spec":{"idleExpiry":"1s"}}`)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) { g.Expect(never.Messages(ctx)).To(BeEmpty()) }).Should(Succeed())
		_, err = cluster.Kubectl(ctx, "-n", ns, "patch", "thread", "never", "--type=merge", "-p", `{"spec":{"idleExpiry":"1ms"}}`)
		Expect(err).To(MatchError(ContainSubstring("give 0s for never")))
	}, SpecTimeout(2*time.Minute))

	It("differs for each of its five verbs", Label("THR-10"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Scripted(ns, "model", hang(), harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"))
		type effect struct {
			Run, Record         string // of the run that was under way; what the record says of the thread
			Messages            bool   // are still there
			Takes, Listed, File bool
		}
		// after starts a thread, does the verb to it while it runs, and tells what became of it.
		after := func(name string, verb func(t *harness.Thread) error) effect {
			create(ctx, harness.NewThread(ns, name, "agent"))
			t := ready(ctx, cluster.Thread(ns, name))
			Expect(t.WriteFile(ctx, "/f", "text/plain", []byte("x"))).To(Succeed())
			Expect(t.Say(ctx, "hang")).To(Succeed())
			running(ctx, t)
			Expect(verb(t)).To(Succeed(), name)
			if name == "archive" {
				_, err := api().Thread(ns, name).Stop(ctx, "the spec needs it at rest")
				Expect(err).NotTo(HaveOccurred())
			}
			rec, err := api().Thread(ns, name).Get(ctx)
			if apierrors.IsNotFound(err) {
				return effect{Record: "gone"}
			}
			Expect(err).NotTo(HaveOccurred())
			settled(ctx, t, 1)
			runs := must(t.Runs(ctx))
			e := effect{Run: runs[len(runs)-1].Status + " " + runs[len(runs)-1].Reason, Messages: rec.MessageCount > 0}
			switch {
			case rec.Terminated != nil:
				e.Record = "terminated"
			case rec.Destroyed != nil:
				e.Record = "destroyed"
			}
			_, err = t.ReadFile(ctx, "/f")
			e.File = err == nil
			raw, err := t.Request(http.MethodGet, "").AbsPath("/apis/runtime.skein.dev/v1alpha1/namespaces/" + ns + "/history").DoRaw(ctx)
			Expect(err).NotTo(HaveOccurred(), string(raw))
			var list runtimev1.ThreadHistoryList
			Expect(json.Unmarshal(raw, &list)).To(Succeed())
			for _, item := range list.Items {
				e.Listed = e.Listed || item.Name == name
			}
			_, err = t.Queue(ctx, runtimev1.NewMessage{Content: "more"})
			e.Takes = err == nil
			return e
		}
		Expect(after("stop", func(t *harness.Thread) error { _, err := api().Thread(ns, t.Name).Stop(ctx, ""); return err })).
			To(Equal(effect{Run: "stopped StoppedByUser", Messages: true, Takes: true, Listed: true, File: true}))
		Expect(after("terminate", func(t *harness.Thread) error { return t.Terminate(ctx) })).
			To(Equal(effect{Run: "terminated Terminated", Record: "terminated", Messages: true, Listed: true, File: true}))
		Expect(after("archive", func(t *harness.Thread) error {
			raw, err := t.Request(http.MethodPatch, "").SetHeader("Content-Type", "application/merge-patch+json").Body([]byte(`{"archived":true}`)).DoRaw(ctx)
			if err != nil {
				return fmt.Errorf("%w: %s", err, raw)
			}
			Expect(t.Runs(ctx)).To(HaveExactElements(HaveField("Status", "running")), "archiving does not touch the run")
			return nil
		})).To(Equal(effect{Run: "stopped StoppedByUser", Messages: true, Takes: true, File: true}))
		Expect(after("destroy", func(t *harness.Thread) error { _, err := api().Thread(ns, t.Name).Destroy(ctx); return err })).
			To(Equal(effect{Run: "stopped Destroyed", Record: "destroyed", Takes: true, Listed: true, File: true}))
		Expect(after("delete", func(t *harness.Thread) error {
			if err := t.Delete(ctx); err != nil {
				return err
			}
			Eventually(ctx, func() bool { _, err := t.Object(ctx); return apierrors.IsNotFound(err) }).Should(BeTrue())
			return nil
		})).To(Equal(effect{Record: "gone"}))
	}, SpecTimeout(3*time.Minute))
})

// must gives a value whose error would be a fault of the spec.
func must[T any](v T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return v
}
