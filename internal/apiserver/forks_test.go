package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/family"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// agents returns the Agents that tests name. What becomes of a fork depends on its agent.
func agents() (all []client.Object) {
	for _, name := range []string{"helper", "earlier", "missing", "late", "full", "slow", "deleted"} {
		all = append(all, &skeinv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}})
	}
	return all
}

// storing creates Thread objects as the manager does, and stores their threads as the controller does.
type storing struct{ e *testEnv }

func (e *testEnv) objects() family.Objects { return storing{e} }

func (s storing) CreateFork(ctx context.Context, origin *store.Thread, t *skeinv1.Thread, cause string) (*skeinv1.Thread, error) {
	t.UID = types.UID(uuid.NewString())
	made, err := kube.NewThreads(s.e.kube, s.e.kube).CreateFork(ctx, origin, t, cause)
	if err != nil || made.Spec.AgentRef.Name == "missing" {
		return made, err
	}
	if refusal, ok := map[string]metav1.Condition{ // as the controller does
		"late": {Reason: skeinv1.ReasonForkPointLost, Message: "it has been removed"},
		"full": {Reason: skeinv1.ReasonQuotaExceeded, Message: "the namespace has used up its quota"},
		"slow": {Reason: skeinv1.ReasonReferenceNotReady, Message: "its origin is not stored yet"},
	}[made.Spec.AgentRef.Name]; ok {
		refused := made.DeepCopy()
		refusal.Type, refusal.Status = skeinv1.ConditionReady, metav1.ConditionFalse
		refused.Status.Conditions = []metav1.Condition{refusal}
		return made, s.e.kube.Status().Update(ctx, refused)
	}
	if made.Spec.AgentRef.Name == "deleted" {
		return made, s.e.kube.Delete(ctx, made)
	}
	_, _, err = s.e.svc.Fork(ctx, thread.NewThread{
		Thread:  store.Thread{ID: string(made.UID), Name: made.Name, Title: made.Spec.Title, Agent: made.Spec.AgentRef.Name},
		Message: made.Spec.Message,
	}, thread.ForkOf{ThreadID: origin.ID, Index: *made.Spec.ForkFrom.MessageIndex})
	return made, err
}

func (s storing) RemoveRefused(ctx context.Context, t *skeinv1.Thread) error {
	if err := ctx.Err(); err != nil {
		return err // as from a real API server
	}
	return kube.NewThreads(s.e.kube, s.e.kube).RemoveRefused(ctx, t)
}

var _ = Describe("POST fork", Label("REL-02"), func() {
	origin := func(ctx context.Context, e *testEnv, n int) *thread.State {
		GinkgoHelper()
		st, _ := e.thread("origin")
		for i := range n {
			_, err := st.Inject(ctx, thread.NewMessage{ID: fmt.Sprint("m", i), Content: ptr.To(fmt.Sprint(i))})
			Expect(err).NotTo(HaveOccurred())
		}
		return st
	}

	It("creates the Thread object of a fork and answers with its record", func(ctx SpecContext) {
		e := newEnv()
		st := origin(ctx, e, 5)
		c := e.client().Thread("ns", "origin")
		fork, err := c.Fork(ctx, runtimev1.NewFork{MessageIndex: ptr.To(int64(2)), Title: "Aside"})
		Expect(err).NotTo(HaveOccurred())
		Expect(fork.Name).To(HavePrefix("origin-fork-"))
		Expect(*fork).To(And(HaveField("Title", "Aside"), HaveField("AgentID", "helper"), HaveField("OriginThreadID", st.ID()),
			HaveField("ForkPointIndex", HaveValue(BeEquivalentTo(2))), HaveField("MessageCount", int64(3)),
			HaveField("Relationships", ConsistOf(And(HaveField("ThreadID", st.ID()), HaveField("Role", "child"))))))
		var object skeinv1.Thread
		Expect(e.kube.Get(ctx, client.ObjectKey{Namespace: "ns", Name: fork.Name}, &object)).To(Succeed())
		Expect(object.Annotations).To(HaveKeyWithValue(skeinv1.AnnotationForkPoint, HavePrefix(st.ID()+"/")))
		Expect(object.Spec).To(Equal(skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "helper"}, Title: "Aside",
			ForkFrom: &skeinv1.ForkFrom{ThreadRef: skeinv1.LocalRef{Name: "origin"}, MessageIndex: ptr.To(int64(2))}}))

		all, err := c.Fork(ctx, runtimev1.NewFork{Name: "all", Message: "go on"})
		Expect(err).NotTo(HaveOccurred())
		Expect(*all).To(And(HaveField("Name", "all"), HaveField("MessageCount", int64(5)), HaveField("QueuedCount", int64(1)), HaveField("Title", "Forked: Untitled")))
		byID, err := c.Fork(ctx, runtimev1.NewFork{MessageID: "m3"})
		Expect(err).NotTo(HaveOccurred())
		Expect(byID.ForkPointIndex).To(HaveValue(BeEquivalentTo(3)))
		again, err := e.client().Thread("ns", byID.Name).Fork(ctx, runtimev1.NewFork{MessageID: "m1"})
		Expect(err).NotTo(HaveOccurred())
		Expect(again.Title).To(Equal("Forked(2): Untitled"))
		list, err := c.Relationships(ctx, runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Relationships).To(HaveLen(3))
	})

	It("makes one fork for a key, however often it is asked", func(ctx SpecContext) {
		e := newEnv()
		origin(ctx, e, 3)
		names := make(chan string, 20)
		for range cap(names) {
			go func() {
				defer GinkgoRecover()
				fork, err := e.client().Thread("ns", "origin").Fork(ctx, runtimev1.NewFork{IdempotencyKey: "k"})
				Expect(err).NotTo(HaveOccurred())
				names <- fork.Name
			}()
		}
		var first string
		Eventually(names).Should(Receive(&first))
		for range cap(names) - 1 {
			Eventually(names).Should(Receive(Equal(first)))
		}
		var list skeinv1.ThreadList
		Expect(e.kube.List(ctx, &list)).To(Succeed())
		Expect(list.Items).To(HaveLen(2))
	})

	It("returns the fork of an agent that was deleted since, and makes another of it no more", func(ctx SpecContext) {
		e := newEnv()
		origin(ctx, e, 3)
		c := e.client().Thread("ns", "origin")
		fork, err := c.Fork(ctx, runtimev1.NewFork{AgentID: "earlier", IdempotencyKey: "k"})
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"earlier", "helper"} {
			Expect(e.kube.Delete(ctx, &skeinv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}})).To(Succeed())
		}
		Expect(c.Fork(ctx, runtimev1.NewFork{AgentID: "earlier", IdempotencyKey: "k"})).To(HaveField("Name", fork.Name))
		Expect(c.Fork(ctx, runtimev1.NewFork{AgentID: "earlier"})).Error().To(Satisfy(apierrors.IsInvalid))
		Expect(c.Fork(ctx, runtimev1.NewFork{})).To(HaveField("AgentID", "helper"), "it is what its origin is")
	})

	It("says what is wrong before it creates anything", func(ctx SpecContext) {
		e := newEnv()
		st := origin(ctx, e, 3)
		c := e.client().Thread("ns", "origin")
		for want, n := range map[string]runtimev1.NewFork{
			"give an index from 0 to 2, not 3":  {MessageIndex: ptr.To(int64(3))},
			"give an index from 0 to 2, not -1": {MessageIndex: ptr.To(int64(-1))},
			`no message "none"`:                 {MessageID: "none"},
			"set messageIndex or messageId":     {MessageID: "m1", MessageIndex: ptr.To(int64(1))},
			"write a long text to a file":       {Message: strings.Repeat("x", runtimev1.MaxContentBytes+1)},
			`there is no Agent "nope" in namespace "ns": create it first; existing Agents: deleted, earlier, full, helper, late, missing, slow`: {AgentID: "nope"},
		} {
			_, err := c.Fork(ctx, n)
			Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(want))))
		}
		_, err := c.Fork(ctx, runtimev1.NewFork{Name: "origin"})
		Expect(err).To(Satisfy(apierrors.IsAlreadyExists))
		e.thread("empty")
		_, err = e.client().Thread("ns", "empty").Fork(ctx, runtimev1.NewFork{})
		Expect(err).To(MatchError(ContainSubstring("has no messages")))
		_, err = e.client().Thread("ns", "nobody").Fork(ctx, runtimev1.NewFork{})
		Expect(err).To(Satisfy(apierrors.IsNotFound))
		res, body := e.do(http.MethodPost, at("origin", "/fork"), strings.NewReader(`{"msg":1}`))
		Expect(res.StatusCode).To(Equal(http.StatusUnprocessableEntity), body)
		var list skeinv1.ThreadList
		Expect(e.kube.List(ctx, &list)).To(Succeed())
		Expect(list.Items).To(HaveLen(2))

		_, err = c.Fork(ctx, runtimev1.NewFork{Name: "late", AgentID: "missing"})
		Expect(err).To(And(Satisfy(apierrors.IsTimeout), MatchError(ContainSubstring(`Thread "late" was created`))))
		_, err = c.Fork(ctx, runtimev1.NewFork{Name: "lost", AgentID: "late"})
		Expect(err).To(And(Satisfy(apierrors.IsConflict), MatchError(ContainSubstring("it has been removed"))))
		_, err = c.Fork(ctx, runtimev1.NewFork{Name: "beyond", AgentID: "full"})
		Expect(err).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("used up its quota"))))
		Expect(apierrors.HasStatusCause(err, runtimev1.CauseQuotaExceeded)).To(BeTrue())
		_, err = c.Fork(ctx, runtimev1.NewFork{Name: "deleted", AgentID: "deleted"})
		Expect(err).To(And(Satisfy(apierrors.IsConflict), MatchError(ContainSubstring("deleted before the fork was stored"))))
		for _, name := range []string{"lost", "beyond"} {
			Expect(e.kube.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, &skeinv1.Thread{})).To(Satisfy(apierrors.IsNotFound), "what nobody can use is not left")
		}
		_, err = c.Fork(ctx, runtimev1.NewFork{Name: "slow", AgentID: "slow"})
		Expect(err).To(And(Satisfy(apierrors.IsTimeout), MatchError(ContainSubstring("ReferenceNotReady: its origin is not stored yet"))))
		Expect(e.svc.Store().Apply(ctx, st.ID(), nil, &store.Terminate{Reason: skeinv1.ReasonTerminatedByRequest})).To(Succeed())
		_, err = c.Fork(ctx, runtimev1.NewFork{Name: "of-the-ended"})
		Expect(err).NotTo(HaveOccurred())
		Expect(e.svc.Store().Apply(ctx, st.ID(), nil, &store.Retain{})).To(Succeed())
		_, err = c.Fork(ctx, runtimev1.NewFork{})
		Expect(err).To(HaveOccurred())
	})

	It("says that the thread is being deleted, also when its messages are purged already", func(ctx SpecContext) {
		e := newEnv()
		st := origin(ctx, e, 3)
		Expect(e.svc.Store().MarkDeleted(ctx, st.ID(), st.ID())).To(Succeed())
		Expect(e.svc.Store().Apply(ctx, st.ID(), nil, &store.Destroy{})).To(Succeed()) // so it is until its rows are removed
		for _, n := range []runtimev1.NewFork{{}, {MessageIndex: ptr.To(int64(1))}, {MessageID: "m1"}} {
			_, err := e.client().Thread("ns", "origin").Fork(ctx, n)
			Expect(err).To(And(Satisfy(apierrors.IsConflict), MatchError(ContainSubstring("the Thread object is being deleted, so the thread cannot be forked"))))
		}
	})

	It("needs the rights to create Threads and to read the messages and files of the origin", Label("K8S-04"), func(ctx SpecContext) {
		e := newEnv()
		origin(ctx, e, 3)
		fork := func(rights ...string) error {
			_, err := e.as("bob", append(rights, "create threads/fork ns/origin")...).Thread("ns", "origin").Fork(ctx, runtimev1.NewFork{})
			return err
		}
		Expect(fork()).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(`"bob" cannot create resource "threads" in API group "skein.dev" in the namespace "ns"`))))
		Expect(fork("create threads/ ns/")).To(MatchError(ContainSubstring(`cannot get resource "threads/messages" in API group "runtime.skein.dev"`)))
		Expect(fork("create threads/ ns/", "get threads/messages ns/origin")).To(MatchError(ContainSubstring(`cannot get resource "threads/files"`)))
		Expect(fork("create threads/ ns/", "get threads/messages ns/origin", "get threads/files ns/origin")).To(Succeed())
	})
})

var _ = Describe("POST runs/{id}/rerun", Label("RUN-12"), func() {
	It("forks before the step's answer, replaces its input and queues the run", func(ctx SpecContext) {
		e := newEnv()
		st, c := e.thread("origin")
		put := func(m store.Message, content string) {
			GinkgoHelper()
			m.RunID, m.Content, m.Status = "sess_1", &content, store.MessageCompleted
			Expect(e.svc.Store().Apply(ctx, st.ID(), nil, &store.AppendMessage{Message: &m})).To(Succeed())
		}
		run := func(status store.RunStatus) {
			GinkgoHelper()
			Expect(e.svc.Store().Apply(ctx, st.ID(), nil, &store.PutRun{Run: store.Run{ID: "sess_1", Agent: "earlier", Status: status}})).To(Succeed())
		}
		run(store.RunRunning)
		put(store.Message{ID: "u", Role: store.RoleUser}, "one")
		put(store.Message{ID: "a1", Role: store.RoleAssistant, ToolCalls: []store.ToolCall{{ID: "c", Name: "t"}}}, "")
		put(store.Message{ID: "r", Role: store.RoleTool, ToolCallID: "c"}, "1")
		put(store.Message{ID: "a2", Role: store.RoleAssistant}, "It is 1.")
		_, err := c.Rerun(ctx, "sess_1", runtimev1.NewRerun{Step: 1})
		Expect(err).To(Satisfy(apierrors.IsConflict))
		run(store.RunSucceeded)

		fork, err := c.Rerun(ctx, "sess_1", runtimev1.NewRerun{Step: 2, Input: ptr.To("7"), IdempotencyKey: "k"})
		Expect(err).NotTo(HaveOccurred())
		Expect(*fork).To(And(HaveField("MessageCount", int64(3)), HaveField("AgentID", "earlier"), HaveField("ForkPointIndex", HaveValue(BeEquivalentTo(2)))))
		again, err := c.Rerun(ctx, "sess_1", runtimev1.NewRerun{Step: 2, Input: ptr.To("7"), IdempotencyKey: "k"})
		Expect(err).NotTo(HaveOccurred())
		Expect(again.Name).To(Equal(fork.Name))
		Expect(e.svc.Store().Message(ctx, fork.ThreadID, "r")).To(HaveField("Content", HaveValue(Equal("7"))))
		Expect(st.Message(ctx, "r")).To(HaveField("Content", HaveValue(Equal("1"))), "the old one stays as it is")
		Expect(e.svc.Store().Inbox(ctx, fork.ThreadID)).To(ConsistOf(HaveField("Kind", store.InboxRerun)))

		for want, n := range map[string]runtimev1.NewRerun{
			"give one from 1 to 2, not 3":         {Step: 3},
			"set it to the step to take up again": {Step: -1},
			"it has 262145 bytes":                 {Step: 1, Input: ptr.To(strings.Repeat("x", runtimev1.MaxContentBytes+1))},
		} {
			_, err := c.Rerun(ctx, "sess_1", n)
			Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(want))))
		}
		_, err = c.Rerun(ctx, "sess_1", runtimev1.NewRerun{Step: 1, Name: "beyond", AgentID: "full"})
		Expect(err).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("used up its quota"))))
		Expect(e.kube.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "beyond"}, &skeinv1.Thread{})).To(Satisfy(apierrors.IsNotFound))
		_, err = c.Rerun(ctx, "sess_2", runtimev1.NewRerun{Step: 1})
		Expect(err).To(And(Satisfy(apierrors.IsNotFound), MatchError(ContainSubstring(`no run "sess_2"`))))
		_, err = e.as("bob", "create threads/runs ns/origin").Thread("ns", "origin").Rerun(ctx, "sess_1", runtimev1.NewRerun{Step: 1})
		Expect(err).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(`cannot create resource "threads" in API group "skein.dev"`))))
	})
})
