package apiserver

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
)

// kind matches an error of one of the client's kinds.
func kind(target error) OmegaMatcher {
	return WithTransform(func(err error) bool { return errors.Is(err, target) }, BeTrue())
}

var _ = Describe("tools", func() {
	It("are invoked beside the conversation", Label("TOL-01"), func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		Expect(t.InvokeTool(ctx, "set_value", map[string]any{"key": "a", "value": []int{1}})).To(HaveField("Status", runtimev1.ToolSuccess))
		Expect(t.InvokeTool(ctx, "get_value", map[string]any{"key": "a"})).To(And(
			HaveField("Status", runtimev1.ToolSuccess), HaveField("Result", MatchJSON(`[1]`)), HaveField("Error", "")))
		Expect(t.InvokeTool(ctx, "get_value", map[string]any{})).To(And(
			HaveField("Status", runtimev1.ToolError), HaveField("Result", ""), HaveField("Error", ContainSubstring("key"))))
		Expect(t.Messages(ctx, runtimeclient.MessageOptions{IncludeSilent: true})).To(HaveField("Messages", BeEmpty()))
		Expect(st.Value(ctx, "a")).To(MatchJSON(`[1]`))
	})

	It("are queued once under a key", Label("TOL-01", "MSG-10"), func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		Expect(t.QueueTool(ctx, "get_value", map[string]any{"key": "a"})).To(Succeed())
		for range 2 {
			resp, body := e.do("POST", at("hello", "/tools/set_value"), strings.NewReader(`{"mode":"queue","arguments":{"key":"a","value":1}}`), runtimev1.HeaderIdempotencyKey, "k")
			Expect(resp.StatusCode).To(Equal(202), body)
			Expect(body).To(ContainSubstring(`"status":"queued"`))
		}
		items, err := e.svc.Store().Inbox(ctx, st.ID())
		Expect(err).NotTo(HaveOccurred())
		Expect(items).To(HaveLen(2))
		var q store.QueuedTool
		Expect(json.Unmarshal(items[1].Payload, &q)).To(Succeed())
		Expect(q.Name).To(Equal("set_value"))
		Expect(q.Arguments).To(MatchJSON(`{"key":"a","value":1}`))
	})

	It("say what is wrong", Label("TOL-01", "THR-18"), func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		_, err := t.InvokeTool(ctx, "no_such_tool", nil)
		Expect(err).To(And(kind(runtimeclient.ErrNotFound), MatchError(ContainSubstring("get_value"))), "it says which tools there are")
		Expect(t.QueueTool(ctx, "no_such_tool", nil)).To(kind(runtimeclient.ErrNotFound))
		Expect(t.QueueTool(ctx, "get_value", []int{1})).To(And(kind(runtimeclient.ErrInvalid), MatchError(ContainSubstring("arguments"))))
		Expect(t.QueueTool(ctx, "get_value", make(chan int))).To(kind(runtimeclient.ErrInvalid))
		Expect(e.status("POST", at("hello", "/tools/get_value"), `{"mode":"later"}`)).To(HaveField("Message", ContainSubstring("invoke")))
		_, err = e.client().Thread("ns", "nobody").InvokeTool(ctx, "get_value", nil)
		Expect(err).To(kind(runtimeclient.ErrNotFound))
		Expect(st.Terminate(ctx, "x")).To(Succeed())
		_, err = t.InvokeTool(ctx, "get_value", nil)
		Expect(err).To(kind(runtimeclient.ErrTerminated))
		Expect(t.QueueTool(ctx, "get_value", nil)).To(kind(runtimeclient.ErrTerminated))
	})
})

var _ = Describe("definitions", func() {
	It("are listed and loaded, and an unknown one is an error", Label("AGT-07"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		e.definitions.Put("other")
		Expect(t.AgentNames(ctx)).To(Equal([]string{"helper", "other"}))
		Expect(t.PromptNames(ctx)).To(Equal([]string{"helper", "other"}))
		Expect(t.ModelNames(ctx)).To(Equal([]string{"helper", "other"}))
		_, body := e.do("GET", at("hello", "/definitions/agents?limit=1&offset=1"), nil)
		Expect(body).To(MatchJSON(`{"kind":"DefinitionNames","apiVersion":"runtime.skein.dev/v1alpha1","names":["other"],"hasMore":false}`))
		Expect(t.LoadAgent(ctx, "other")).To(MatchJSON(`{"name":"other","type":"ai_human"}`))
		_, err := t.LoadModel(ctx, "none")
		Expect(err).To(And(kind(runtimeclient.ErrNotFound), MatchError(ContainSubstring(`"none"`))))
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
		Expect(e.status("GET", at("hello", "/definitions/secrets"), "").Message).To(ContainSubstring("definitions/models"))
		Expect(e.status("GET", at("hello", "/definitions/agents/a/b"), "").Reason).To(BeEquivalentTo("NotFound"))
	})
})

var _ = Describe("a child", func() {
	It("finds its parent, and is found", Label("SUB-05"), func(ctx SpecContext) {
		e := newEnv()
		pst, parent := e.thread("parent")
		cst, child := e.child("child", pst)
		e.children = memoryChildren{{Reference: "ref-child", Resumable: true, ThreadName: "child", ThreadID: cst.ID()}, {Reference: "once"}}
		up, err := child.ParentThread(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(up.Info(ctx)).To(And(WithTransform((*runtimeclient.Info).ThreadID, Equal(pst.ID())),
			WithTransform((*runtimeclient.Info).Children, ConsistOf(HaveField("Reference", "ref-child")))), "the registry has the resumable ones")
		Expect(parent.ParentThread(ctx)).To(BeNil())
		down, err := parent.ChildThread(ctx, "ref-child")
		Expect(err).NotTo(HaveOccurred())
		Expect(down.Info(ctx)).To(WithTransform((*runtimeclient.Info).ThreadID, Equal(cst.ID())))
		Expect(parent.ChildThread(ctx, "nobody")).To(BeNil())
		_, err = e.client().Thread("ns", "nobody").ChildThread(ctx, "x")
		Expect(err).To(kind(runtimeclient.ErrNotFound))
	})

	It("notifies its parent by a silent message", Label("SUB-05"), func(ctx SpecContext) {
		e := newEnv()
		pst, parent := e.thread("parent")
		cst, child := e.child("child", pst)
		Expect(child.NotifyParent(ctx, "halfway")).To(Succeed())
		for range 2 {
			_, body := e.do("POST", at("child", "/notify"), strings.NewReader(`{"content":"again","idempotencyKey":"k"}`))
			Expect(body).To(ContainSubstring("Success"))
		}
		s := e.status("POST", at("child", "/notify"), `{"content":"another","idempotencyKey":"k"}`)
		Expect(s.Message).To(ContainSubstring("this key was used for another request"))
		waiting, err := pst.QueuedMessages(ctx, store.MessageQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(waiting.Messages).To(HaveExactElements(
			And(HaveField("Content", HaveValue(Equal("halfway"))), HaveField("Silent", true), HaveField("Metadata", HaveKeyWithValue("subagent_id", "ref-child"))),
			HaveField("Content", HaveValue(Equal("again")))))
		Expect(parent.NotifyParent(ctx, "x")).To(And(kind(runtimeclient.ErrInvalid), MatchError(ContainSubstring("no parent"))))
		Expect(child.NotifyParent(ctx, "")).To(kind(runtimeclient.ErrInvalid))
		Expect(child.NotifyParent(ctx, strings.Repeat("x", runtimev1.MaxContentBytes+1))).To(kind(runtimeclient.ErrInvalid))
		Expect(pst.Terminate(ctx, "x")).To(Succeed())
		Expect(child.NotifyParent(ctx, "x")).To(And(kind(runtimeclient.ErrTerminated), MatchError(ContainSubstring("parent"))))
		Expect(cst.Terminate(ctx, "x")).To(Succeed())
		Expect(child.NotifyParent(ctx, "x")).To(And(kind(runtimeclient.ErrTerminated), MatchError(ContainSubstring("the thread"))))
	})

	It("sets its status", Label("SUB-05"), func(ctx SpecContext) {
		e := newEnv()
		pst, parent := e.thread("parent")
		cst, child := e.child("child", pst)
		Expect(child.SetStatus(ctx, "counting")).To(Succeed())
		Expect(child.Status(ctx)).To(Equal("counting"))
		row, err := cst.Info(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(row.RegistryStatus).To(Equal("counting"))
		for _, bad := range []string{"", strings.Repeat("x", 201), "a\x00b"} {
			Expect(child.SetStatus(ctx, bad)).To(And(kind(runtimeclient.ErrInvalid), MatchError(ContainSubstring("status"))), "%q", bad)
		}
		Expect(parent.SetStatus(ctx, "x")).To(kind(runtimeclient.ErrInvalid))
		Expect(parent.Status(ctx)).To(BeEmpty())
		Expect(cst.Terminate(ctx, "x")).To(Succeed())
		Expect(child.SetStatus(ctx, "x")).To(kind(runtimeclient.ErrTerminated))
		Expect(child.Status(ctx)).To(Equal("counting"))
	})
})

var _ = Describe("emit", func() {
	It("reaches those who follow", Label("EVT-01"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		Expect(t.Emit(ctx, "progress", map[string]any{"step": 3})).To(Succeed())
		Expect(t.Emit(ctx, "ping", nil)).To(Succeed())
		var seen []runtimev1.Event
		for ev, err := range t.Events(ctx, runtimeclient.EventOptions{NoFollow: true}) {
			Expect(err).NotTo(HaveOccurred())
			if strings.HasPrefix(ev.Type, runtimev1.EventCustomPrefix) {
				seen = append(seen, ev)
			}
		}
		Expect(seen).To(HaveExactElements(
			And(HaveField("Type", "event:progress"), HaveField("Data", MatchJSON(`{"step":3}`))),
			And(HaveField("Type", "event:ping"), HaveField("Data", MatchJSON(`null`)))))
		for _, bad := range []string{"", "no spaces", "1st", strings.Repeat("x", 101), "a\nb"} {
			Expect(t.Emit(ctx, bad, nil)).To(And(kind(runtimeclient.ErrInvalid), MatchError(ContainSubstring("letters, digits"))), "%q", bad)
		}
		Expect(t.Emit(ctx, "x", make(chan int))).To(kind(runtimeclient.ErrInvalid))
		Expect(e.status("POST", at("hello", "/events"), `{"event":"x","data":`).Reason).To(BeEquivalentTo("BadRequest"))
	})
})

var _ = Describe("execution", func() {
	It("is the run under way, and nothing at rest", Label("RUN-03"), func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		Expect(t.Execution(ctx)).To(BeNil())
		run := store.Run{ID: "sess_1", ThreadID: st.ID(), Agent: "helper", Status: store.RunRunning, Steps: 2, StartedAt: 7}
		Expect(st.Apply(ctx, &store.PutRun{Run: run})).To(Succeed())
		x, err := t.Execution(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(x.ExecutionState).To(Equal(runtimev1.ExecutionState{TypeMeta: runtimev1.TypeMetaOf("ExecutionState"), FlowID: "sess_1", Agent: "helper", CurrentSide: "a", StepCount: 2, SideAStepCount: 2, StartedAt: 7}))
		Expect(x.Stop(ctx, "enough")).To(Succeed())
		Expect(e.engine.stopped).To(ConsistOf(st.ID() + " enough"))
		run.Status, run.EndedAt = store.RunSucceeded, 8
		Expect(st.Apply(ctx, &store.PutRun{Run: run})).To(Succeed())
		Expect(t.Execution(ctx)).To(BeNil())
	})
})

var _ = Describe("runCode in Go", Label("COD-04"), func() {
	It("gives a handle that settles once", func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		e.engine.result = sandbox.Result{Status: sandbox.StatusSuccess, Value: 3.0, Reports: []any{1.0, 2.0}}
		var reported []string
		x := t.RunCode(ctx, "export const f = (a) => a", runtimeclient.CodeOptions{
			Fn: "f", Args: []any{1}, Globals: map[string]any{"g": "x"}, Imports: map[string]map[string]any{"lib": {"v": 2}},
			WallTime: time.Second, Report: func(v json.RawMessage) { reported = append(reported, string(v)) },
		})
		Expect(x.Wait(ctx)).To(And(HaveField("Status", runtimev1.CodeSuccess), HaveField("Result", MatchJSON(`3`))))
		Expect(x.Running()).To(BeFalse())
		Expect(reported).To(Equal([]string{"1", "2"}))
		var again []string
		for v := range x.Reports() {
			again = append(again, string(v))
		}
		Expect(again).To(Equal(reported))
		x.Terminate("too late")
		Expect(x.Wait(ctx)).To(HaveField("Status", runtimev1.CodeSuccess))
		Expect(e.engine.code.Fn).To(Equal("f"))
		Expect(e.engine.code.WallTime).To(Equal(time.Second))
	})

	It("is ended with a reason", func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		e.engine.block = make(chan string, 2)
		x := t.RunCode(ctx, "for (;;);", runtimeclient.CodeOptions{})
		Eventually(e.engine.block).Should(Receive(Equal("begun")))
		Expect(x.Running()).To(BeTrue())
		x.Terminate("changed my mind")
		Expect(x.Wait(ctx)).To(And(HaveField("Status", runtimev1.CodeTerminated), HaveField("Error.Message", "changed my mind")))
		Eventually(e.engine.block).Should(Receive(Equal("ended")), "the request ended with it")
	})

	It("says why code did not run at all", func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		e.engine.err = &definition.NotReadyError{Reason: "ReferenceNotFound", Message: "no"}
		_, err := t.RunCode(ctx, "x", runtimeclient.CodeOptions{}).Wait(ctx)
		Expect(err).To(kind(runtimeclient.ErrUnavailable))
	})

	It("says why the thread has no sandbox, and suggests no retry", Label("COD-09"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		e.engine.err = &ports.NoSandboxError{Message: "exceeded quota: raise it"}
		_, err := t.RunCode(ctx, "x", runtimeclient.CodeOptions{}).Wait(ctx)
		Expect(err).To(And(kind(runtimeclient.ErrUnavailable), MatchError(ContainSubstring("no sandbox at present, and nothing has run: exceeded quota: raise it"))))
		var status *runtimeclient.Error
		Expect(errors.As(err, &status)).To(BeTrue())
		Expect(status.ErrStatus.Details.Causes).To(ContainElement(HaveField("Type", runtimev1.CauseNoSandbox)))
		_, wait := apierrors.SuggestsClientDelay(err)
		Expect(wait).To(BeFalse())
	})
})

var _ = Describe("The queue of a thread", Label("MSG-07", "K8S-12"), func() {
	It("refuses messages of clients once too many bytes wait", func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		large := strings.Repeat("x", 200_000)
		var err error
		sent := 0
		for ; sent < 150 && err == nil; sent++ {
			_, err = t.Queue(ctx, runtimev1.NewMessage{Role: "system", Content: large})
		}
		Expect(err).To(And(kind(runtimeclient.ErrQueueFull), MatchError(ContainSubstring("so much waits for the thread that it takes no more: send this again"))))
		Expect(sent-1).To(BeNumerically("~", store.MaxWaitingBytes/200_000, 2), "all that was taken is kept")
		page, err := t.Queued(ctx, runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).NotTo(BeEmpty())
	})
})

var _ = Describe("errors of the client", Label("THR-18"), func() {
	It("have kinds, and are the Kubernetes machinery's too", func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		for range 5 {
			_, err := t.Send(ctx, "x")
			Expect(err).NotTo(HaveOccurred())
		}
		_, err := t.Send(ctx, "x")
		Expect(err).To(kind(runtimeclient.ErrQueueFull))
		Expect(err).NotTo(kind(runtimeclient.ErrUnavailable))
		Expect(apierrors.IsTooManyRequests(err)).To(BeTrue())
		_, wait := apierrors.SuggestsClientDelay(err)
		Expect(wait).To(BeTrue())
		_, err = t.Inject(ctx, runtimev1.NewMessage{Role: "king", Content: "x"})
		Expect(err).To(kind(runtimeclient.ErrInvalid))
		Expect(apierrors.IsInvalid(err)).To(BeTrue())
		Expect(t.SetValue(ctx, "k", strings.Repeat("x", runtimev1.MaxBodyBytes))).To(kind(runtimeclient.ErrTooLarge))
		bob := *e.config
		bob.BearerToken = "bob"
		c, err := runtimeclient.New(&bob)
		Expect(err).NotTo(HaveOccurred())
		_, err = c.Thread("ns", "hello").Get(ctx)
		Expect(err).To(kind(runtimeclient.ErrForbidden))
		Expect(st.Terminate(ctx, "x")).To(Succeed())
		_, err = t.Send(ctx, "x")
		Expect(err).To(And(kind(runtimeclient.ErrTerminated), Not(kind(runtimeclient.ErrNotFound))))

		nowhere := *e.config
		nowhere.Host = "https://127.0.0.1:1"
		c, err = runtimeclient.New(&nowhere)
		Expect(err).NotTo(HaveOccurred())
		_, err = c.Thread("ns", "hello").Get(ctx)
		Expect(err).To(kind(runtimeclient.ErrUnavailable))
	})

	It("keep scratch to the handle", Label("STA-08"), func() {
		e := newEnv()
		_, t := e.thread("hello")
		t.Context()["x"] = 1
		Expect(t.Context()).To(HaveKeyWithValue("x", 1))
		Expect(e.client().Thread("ns", "hello").Context()).To(BeEmpty())
		Expect(t.NotPackableRuntimeContext()).To(BeNil())
	})
})
