package thread_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
	domain "github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("The thread controller", func() {
	var (
		e *Env
		r *thread.Reconciler
	)
	BeforeEach(func(ctx SpecContext) { e, r, _ = newController(ctx) })

	Describe("for a name of an earlier thread whose finalizer was removed", Label("THR-09", "IDS-01"), func() {
		forced := func(ctx context.Context, name string) string {
			GinkgoHelper()
			t := newThread(ctx, e, name)
			Reconcile(ctx, r, t)
			putRun(ctx, e, t, store.Run{ID: "r", Status: store.RunRunning})
			Get(ctx, e, t)
			t.Finalizers = nil
			Expect(e.Client.Update(ctx, t)).To(Succeed())
			Expect(e.Client.Delete(ctx, t)).To(Succeed())
			return string(t.UID)
		}
		present := func(ctx context.Context, name string) []string {
			GinkgoHelper()
			rows, err := e.Store.FindThreads(ctx, store.FindQuery{Namespace: Namespace, Name: name, Present: true})
			Expect(err).NotTo(HaveOccurred())
			ids := []string{}
			for _, row := range rows {
				ids = append(ids, row.ID)
			}
			return ids
		}

		It("retains the data of the earlier thread, which is stopped and not found by its name", func(ctx SpecContext) {
			e.ReadyAgent(ctx, "a")
			before := forced(ctx, "name")
			elsewhere, _, err := e.Store.CreateThread(ctx, store.Thread{ID: "elsewhere", Namespace: "other", Name: "name", Agent: "a"})
			Expect(err).NotTo(HaveOccurred())
			t := newThread(ctx, e, "name")
			Reconcile(ctx, r, t)
			Expect(ready(Get(ctx, e, t))).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
			Expect(present(ctx, "name")).To(HaveExactElements(string(t.UID)))
			Expect(e.Store.Thread(ctx, before)).To(And(HaveField("RetainedAt", Not(BeZero())), HaveField("Name", "name")))
			Expect(e.Store.Run(ctx, before, "")).To(HaveField("Status", store.RunStopped))
			Expect(e.Engine.Aborted).To(ContainElement(before))
			Expect(e.Store.Thread(ctx, elsewhere.ID)).To(HaveField("RetainedAt", BeZero()), "one of another namespace has another name")
			Reconcile(ctx, r, t)
			Expect(e.Store.Thread(ctx, string(t.UID))).To(HaveField("RetainedAt", BeZero()))
		})

		It("tells the waiting parent of the earlier thread that it gets no result", Label("SUB-03"), func(ctx SpecContext) {
			e.ReadyAgent(ctx, "a")
			parent := newThread(ctx, e, "parent")
			Reconcile(ctx, r, parent)
			_, _, err := e.Store.CreateThread(ctx, store.Thread{
				ID: "left-behind", Namespace: Namespace, Name: "name", Agent: "a", ParentID: string(parent.UID), RootID: string(parent.UID), Depth: 1, Reference: "worker-1",
				Child: &store.Child{Name: "worker", Blocking: true, ToolCallID: "call_1"},
			})
			Expect(err).NotTo(HaveOccurred())
			Reconcile(ctx, r, newThread(ctx, e, "name"))
			Expect(e.Store.Thread(ctx, "left-behind")).To(HaveField("RetainedAt", Not(BeZero())))
			Expect(e.Store.Inbox(ctx, string(parent.UID))).To(ContainElement(HaveField("Payload", And(ContainSubstring("call_1"), ContainSubstring("terminated")))))
		})

		It("does so for a Thread that adopts data too", func(ctx SpecContext) {
			e.ReadyAgent(ctx, "a")
			kept := forced(ctx, "kept")
			Expect(e.Store.Apply(ctx, kept, nil, &store.Retain{})).To(Succeed())
			before := forced(ctx, "name")
			t := newThread(ctx, e, "name", func(t *skeinv1.Thread) { t.Spec.ThreadID = kept })
			Reconcile(ctx, r, t)
			Expect(present(ctx, "name")).To(HaveExactElements(kept))
			Expect(e.Store.Thread(ctx, before)).To(HaveField("RetainedAt", Not(BeZero())))
		})

		It("does nothing from a stale copy of the earlier object", func(ctx SpecContext) {
			e.ReadyAgent(ctx, "a")
			old := newThread(ctx, e, "name")
			old.Finalizers = []string{skeinv1.Finalizer}
			cached := *old.DeepCopy()
			Expect(e.Client.Delete(ctx, Get(ctx, e, old))).To(Succeed())
			next := newThread(ctx, e, "name")
			Reconcile(ctx, r, next)
			stale := interceptor.NewClient(e.Client, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if t, ok := o.(*skeinv1.Thread); ok && key.Name == "name" {
					cached.DeepCopyInto(t)
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			}})
			behind := newReconciler(e, func(o *thread.Options) { o.Client = stale })
			_, err := behind.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(next)})
			Expect(err).NotTo(HaveOccurred())
			Expect(present(ctx, "name")).To(HaveExactElements(string(next.UID)))
			Expect(e.Store.Thread(ctx, string(next.UID))).To(HaveField("RetainedAt", BeZero()))
			Expect(e.Store.Thread(ctx, string(old.UID))).Error().To(MatchError(store.ErrNotFound))
		})
	})

	It("says that an orphaned child waits for its parent", Label("THR-09", "SUB-08"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		alone := func(s *skeinv1.Subagent) { s.OwnerReferences = nil } // --cascade=orphan took it away
		s, t := newChild(ctx, e, &skeinv1.Thread{ObjectMeta: Meta("parent")}, alone)
		Reconcile(ctx, r, t)
		ready := func() *metav1.Condition {
			return meta.FindStatusCondition(Get(ctx, e, t).Status.Conditions, skeinv1.ConditionReady)
		}
		Expect(ready()).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotFound),
			HaveField("Message", `the parent Thread "parent" does not exist in namespace "demo": create it, or delete Subagent "s"`))))

		parent := newThread(ctx, e, "parent")
		Reconcile(ctx, r, parent)
		Get(ctx, e, s)
		s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner(parent.Name, string(parent.UID))}
		Expect(e.Client.Update(ctx, s)).To(Succeed())
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, t)
		Expect(ready()).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
		Expect(e.Store.Thread(ctx, string(t.UID))).To(HaveField("ParentID", string(parent.UID)))
	})

	It("says that the parent of an orphaned child was deleted, and that a namesake does not help", Label("THR-09", "SUB-08"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		const deleted = "0b0e8f0e-0000-4000-8000-00000000f0e1"
		left := func(s *skeinv1.Subagent) {
			s.OwnerReferences = nil
			s.Labels = map[string]string{skeinv1.LabelThreadID: deleted}
		}
		s, t := newChild(ctx, e, &skeinv1.Thread{ObjectMeta: Meta("parent")}, left)
		s.Status.Entry = &skeinv1.ChildStatus{ThreadID: t.ThreadID()}
		Expect(e.Client.Status().Update(ctx, s)).To(Succeed())
		says := func(reason, message string) {
			GinkgoHelper()
			Reconcile(ctx, r, t)
			Expect(meta.FindStatusCondition(Get(ctx, e, t).Status.Conditions, skeinv1.ConditionReady)).To(HaveValue(And(
				HaveField("Reason", reason), HaveField("Message", ContainSubstring(message)))))
		}
		const message = `the parent Thread "parent" was deleted before this Thread was set up: delete Subagent "s"`
		says(skeinv1.ReasonReferenceNotFound, message)
		parent := newThread(ctx, e, "parent")
		says(skeinv1.ReasonReferenceNotFound, message)
		Expect(e.Client.Delete(ctx, Get(ctx, e, parent))).To(Succeed())
		newThread(ctx, e, "parent", func(t *skeinv1.Thread) { t.Spec.ThreadID = deleted })
		says(skeinv1.ReasonProgressing, "not tied to its parent Thread yet")
	})

	It("makes no thread a child of one in another namespace", Label("SUB-01", "ENV-04", "FIL-07"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		const foreign = "0b0e8f0e-0000-4000-8000-00000000f0e1"
		_, _, err := e.Store.CreateThread(ctx, store.Thread{ID: foreign, Namespace: "other", Name: "theirs", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		st, err := e.Threads.Open(ctx, foreign)
		Expect(err).NotTo(HaveOccurred())
		_, err = st.WriteFile(ctx, "/secret", strings.NewReader("a,b"), domain.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		before, err := e.Store.Thread(ctx, foreign)
		Expect(err).NotTo(HaveOccurred())
		none := func(t *skeinv1.Thread, message string) {
			GinkgoHelper()
			for range 2 {
				Reconcile(ctx, r, t)
			}
			Expect(ready(Get(ctx, e, t))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotFound), HaveField("Message", message))))
			_, err := e.Store.Thread(ctx, string(t.UID))
			Expect(err).To(MatchError(store.ErrNotFound))
			Expect(e.Store.Thread(ctx, foreign)).To(Equal(before), "nothing is said to it either")
		}

		// No admission policy checks this owner reference.
		claimed := &skeinv1.Thread{ObjectMeta: Meta("theirs")}
		claimed.UID = foreign
		s, t := newChild(ctx, e, claimed, func(s *skeinv1.Subagent) { s.Spec.Attachments = []string{"/secret"} })
		none(t, `Subagent "s" has an owner reference to a Thread "theirs" that namespace "demo" does not have: delete the Subagent. `+
			`Create one without owner references, and name a Thread of this namespace in its spec.parentRef`)
		Expect(e.Client.Delete(ctx, s)).To(Succeed())
		Expect(e.Client.Delete(ctx, Get(ctx, e, t), client.GracePeriodSeconds(0))).To(Succeed())
		Reconcile(ctx, r, t)

		// An owner in the namespace that names data which is not its own.
		parent := newThread(ctx, e, "parent", func(t *skeinv1.Thread) { t.Spec.ThreadID = foreign })
		Reconcile(ctx, r, parent)
		Expect(ready(Get(ctx, e, parent))).To(HaveValue(HaveField("Reason", skeinv1.ReasonThreadNotRetained)))
		Expect(parent.Status.ThreadID).To(BeEmpty(), "schedules fire for the thread in the status")
		_, t = newChild(ctx, e, parent, func(s *skeinv1.Subagent) { s.Spec.TaskRef = "none" })
		none(t, `the parent Thread "parent" is not stored: it is being made, or it was deleted`)
	})

	It("stores a child under its parent, with the files that it is handed", Label("SUB-01", "FIL-07"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, e, "parent")
		Reconcile(ctx, r, parent)
		st, err := e.Threads.Open(ctx, string(parent.UID))
		Expect(err).NotTo(HaveOccurred())
		_, err = st.WriteFile(ctx, "/orders.csv", strings.NewReader("a,b"), domain.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		e.Writes()
		_, t := newChild(ctx, e, parent, func(s *skeinv1.Subagent) { s.Spec.Attachments = []string{"/orders.csv"} })
		Reconcile(ctx, r, t)
		Expect(e.Writes()).To(Equal(map[string]int{"create Subagent": 1, "create Thread": 1}), "a child costs no write for its finalizer, nor one for a status that its first run will change")
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, t)
		Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
		row, err := e.Store.Thread(ctx, string(t.UID))
		Expect(err).NotTo(HaveOccurred())
		Expect(*row).To(And(HaveField("ParentID", string(parent.UID)), HaveField("RootID", string(parent.UID)), HaveField("Depth", 1), HaveField("Reference", "s"),
			HaveField("Child", HaveValue(And(HaveField("Blocking", true), HaveField("ToolCallID", "call_1"), HaveField("Name", "helper"))))))
		Expect(Get(ctx, e, t).Status.Parent).To(Equal("parent"))
		own, err := e.Threads.Open(ctx, string(t.UID))
		Expect(err).NotTo(HaveOccurred())
		files, err := e.Store.Files(ctx, own.ID(), "/", true)
		Expect(err).NotTo(HaveOccurred())
		Expect(files).To(ContainElement(HaveField("Size", int64(3))))
	})

	It("answers a waiting parent whose child cannot be made", func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, e, "parent")
		Reconcile(ctx, r, parent)
		_, t := newChild(ctx, e, parent, func(s *skeinv1.Subagent) { s.Spec.Attachments = []string{"/none.csv"} })
		Reconcile(ctx, r, t)
		Expect(ready(Get(ctx, e, t))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonChildRefused), HaveField("Message", Not(ContainSubstring("/none.csv"))))), "a model may have given the path")
		own, err := e.Threads.Open(ctx, string(parent.UID))
		Expect(err).NotTo(HaveOccurred())
		_, err = own.WriteFile(ctx, "/none.csv", strings.NewReader("too late"), domain.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		Reconcile(ctx, r, t)
		_, err = e.Store.Thread(ctx, string(t.UID))
		Expect(err).To(MatchError(store.ErrNotFound), "the parent knows that there is none")
		Expect(childResults(ctx, e, parent)).To(HaveExactElements(And(HaveField("Status", "failed"), HaveField("ToolCallID", "call_1"), HaveField("Content", ContainSubstring("/none.csv")))))
	})

	It("gives a child the task that is kept for it, and no other", Label("K8S-07", "SUB-06"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, e, "parent")
		Reconcile(ctx, r, parent)
		digest, err := e.Store.ReserveChild(ctx, store.ChildTask{ID: "task", ParentID: string(parent.UID), Reference: "parent-child", Namespace: parent.Namespace, Kind: "helper", Agent: "a",
			Task: []byte(`{"message":"add","arguments":{"n":1}}`)}, nil)
		Expect(err).NotTo(HaveOccurred())
		_, t := newChild(ctx, e, parent, func(s *skeinv1.Subagent) {
			s.Name, s.Spec.Message, s.Spec.TaskRef, s.Spec.TaskDigest = "parent-child", "", "task", digest
		})
		Reconcile(ctx, r, t)
		Expect(e.Store.Thread(ctx, string(t.UID))).To(HaveField("Arguments", MatchJSON(`{"n":1}`)))
		Expect(e.Store.Inbox(ctx, string(t.UID))).To(ContainElement(HaveField("Payload", ContainSubstring(`"content":"add"`))))
		for name, edit := range map[string]func(*skeinv1.Subagent){
			"of-another": func(s *skeinv1.Subagent) { s.Spec.TaskRef, s.Spec.TaskDigest = "task", digest },
			"of-none":    func(s *skeinv1.Subagent) { s.Spec.TaskRef, s.Spec.TaskDigest = "none", digest },
		} {
			_, t := newChild(ctx, e, parent, edit, func(s *skeinv1.Subagent) { s.Name = name })
			Reconcile(ctx, r, t)
			Expect(ready(Get(ctx, e, t))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonChildRefused), HaveField("Message", ContainSubstring("delete the Subagent")))), name)
		}
	})

	It("tells the parent of a deleted child, also of a completed one, and marks its Subagent", Label("SUB-08"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, e, "parent")
		Reconcile(ctx, r, parent)
		s, t := newChild(ctx, e, parent)
		Reconcile(ctx, r, t)
		completed := "completed" // of its last session: it lives on, and may have got a message since
		Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.UpdateThread{RegistryStatus: &completed})).To(Succeed())
		Expect(e.Client.Delete(ctx, t)).To(Succeed())
		Reconcile(ctx, r, t)
		Expect(e.Store.Inbox(ctx, string(parent.UID))).To(ContainElement(HaveField("Payload", And(ContainSubstring("call_1"), ContainSubstring("terminated")))))
		Expect(e.Store.MarkedDeleted(ctx, string(s.UID))).To(BeTrue())
	})

	It("asks once about calls that wait for children which do not exist", Label("SUB-08"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, e, "parent")
		Reconcile(ctx, r, parent)
		run := store.Run{ID: "sess_1", ThreadID: string(parent.UID), Status: store.RunRunning, StartedAt: e.Clock.Now().UnixMicro()}
		Expect(e.Store.Apply(ctx, string(parent.UID), nil, &store.PutRun{Run: run})).To(Succeed())
		Reconcile(ctx, r, parent)
		Expect(e.Engine.Answered).To(BeEmpty(), "it may still come to wait")
		run.Status = store.RunWaiting
		Expect(e.Store.Apply(ctx, string(parent.UID), nil, &store.PutRun{Run: run})).To(Succeed())
		Reconcile(ctx, r, parent)
		Reconcile(ctx, r, parent)
		Expect(e.Engine.Answered).To(Equal([]string{string(parent.UID)}))
	})

	It("terminates a child whose parent was terminated while it was being made", Label("SUB-08"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, e, "parent")
		Reconcile(ctx, r, parent)
		_, t := newChild(ctx, e, parent)
		Expect(e.Store.Apply(ctx, string(parent.UID), nil, &store.Terminate{})).To(Succeed())
		Reconcile(ctx, r, t)
		Expect(e.Engine.Terminated).To(HaveKeyWithValue(string(t.UID), skeinv1.ReasonParentTerminated))
		Expect(Get(ctx, e, t).Status.Phase).To(Equal("Terminated"))
	})

	It("mirrors the children in the status: unfinished first, then the newest, bounded in number and bytes, with counts", Label("SUB-01", "K8S-07"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, e, "parent")
		Reconcile(ctx, r, parent)
		states := []string{"completed", "failed", "terminated", "halfway", ""}
		total := skeinv1.MaxStatusChildren + 30
		for i := range total {
			s := newSubagent(ctx, e, parent, fmt.Sprintf("s-%03d", i), func(s *skeinv1.Subagent) {
				s.Spec.Title, s.Spec.Description = strings.Repeat("t", 500), strings.Repeat("d", 4096)
				s.CreationTimestamp = metav1.NewTime(Start.Add(time.Duration(i) * time.Second))
			})
			if state := states[i%5]; state != "" {
				s.Status.Entry = &skeinv1.ChildStatus{Reference: s.Name, Name: "helper", Title: s.Spec.Title, Description: s.Spec.Description, Status: state}
				Expect(e.Client.Status().Update(ctx, s)).To(Succeed())
			}
		}
		for i, owners := range [][]metav1.OwnerReference{nil, {objects.ThreadOwner("parent", "11111111-2222-4333-8444-555555555555")}} {
			e.Create(ctx, &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: parent.Namespace, Name: fmt.Sprint("of-an-earlier-one-", i), OwnerReferences: owners},
				Spec: skeinv1.SubagentSpec{ParentRef: skeinv1.LocalRef{Name: "parent"}, Name: "helper"}})
		}
		e.Clock.Step(time.Minute)
		result := Reconcile(ctx, r, parent)
		e.Clock.Step(result.RequeueAfter)
		Reconcile(ctx, r, parent)
		status := Get(ctx, e, parent).Status
		Expect(status.ChildCount).To(BeEquivalentTo(total))
		Expect(status.ChildCounts).To(HaveValue(Equal(skeinv1.ChildCounts{Completed: 16, Failed: 16, Terminated: 16, Running: 16, Pending: 16})))
		size, err := json.Marshal(status.Children)
		Expect(err).NotTo(HaveOccurred())
		Expect(len(size)).To(And(BeNumerically("<=", skeinv1.MaxStatusChildrenBytes+skeinv1.MaxStatusChildren), BeNumerically(">", skeinv1.MaxStatusChildrenBytes/2)))
		Expect(status.Children[0]).To(And(HaveField("Reference", "s-079"), HaveField("Status", "pending")))
		Expect(status.Children[1]).To(And(HaveField("Reference", "s-078"), HaveField("Status", "halfway"), HaveField("Title", HaveLen(skeinv1.MaxStatusChildText))))
		Expect(len(status.Children)).To(And(BeNumerically(">", 20), BeNumerically("<=", skeinv1.MaxStatusChildren)))
		for _, c := range status.Children {
			Expect(c.Status).To(BeElementOf("pending", "halfway"), "those that have finished come later")
		}
	})
})
