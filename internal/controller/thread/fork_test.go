package thread_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/store"
	domain "github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("The thread controller, of a Thread with spec.forkFrom", Label("REL-02"), func() {
	var (
		e *Env
		r *thread.Reconciler
	)
	BeforeEach(func(ctx SpecContext) {
		e, r, _ = newController(ctx)
		e.ReadyAgent(ctx, "a")
	})
	create := func(ctx context.Context, name string, edit ...func(*skeinv1.Thread)) *skeinv1.Thread {
		GinkgoHelper()
		t := newThread(ctx, e, name, edit...)
		Reconcile(ctx, r, t)
		return Get(ctx, e, t)
	}
	of := func(name string, index ...int64) func(*skeinv1.Thread) {
		return func(t *skeinv1.Thread) {
			t.Spec.ForkFrom = &skeinv1.ForkFrom{ThreadRef: skeinv1.LocalRef{Name: name}}
			if len(index) > 0 {
				t.Spec.ForkFrom.MessageIndex = ptr.To(index[0])
			}
		}
	}
	say := func(ctx context.Context, t *skeinv1.Thread, n int) {
		GinkgoHelper()
		st, err := e.Threads.Open(ctx, t.ThreadID())
		Expect(err).NotTo(HaveOccurred())
		for i := range n {
			_, err := st.Inject(ctx, domain.NewMessage{ID: fmt.Sprintf("%s-%d", t.Name, i), Content: ptr.To(fmt.Sprint(i))})
			Expect(err).NotTo(HaveOccurred())
		}
	}
	again := func(ctx context.Context, t *skeinv1.Thread) *skeinv1.Thread {
		GinkgoHelper()
		for range 2 { // changes of the status are gathered, and their writes limited
			e.Clock.Step(time.Minute)
			Reconcile(ctx, r, t)
		}
		return Get(ctx, e, t)
	}
	beNotReady := func(reason, message string) OmegaMatcher {
		return WithTransform(func(t *skeinv1.Thread) *metav1.Condition {
			return meta.FindStatusCondition(t.Status.Conditions, skeinv1.ConditionReady)
		}, HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", reason), HaveField("Message", ContainSubstring(message)))))
	}
	stalled := func(t *skeinv1.Thread) bool {
		return meta.IsStatusConditionTrue(t.Status.Conditions, skeinv1.ConditionStalled)
	}

	It("stores a fork, and shows it at both ends", Label("REL-01", "THR-14"), func(ctx SpecContext) {
		origin := create(ctx, "origin", func(t *skeinv1.Thread) { t.Spec.Title, t.Spec.UserID = "Plan", "ada" })
		say(ctx, origin, 5)
		fork := create(ctx, "fork", of("origin", 2))
		Expect(fork.Status).To(And(HaveField("OriginThreadID", string(origin.UID)), HaveField("ForkPointIndex", HaveValue(BeEquivalentTo(2))),
			HaveField("Messages", int64(3)), HaveField("RelationshipCount", int64(1)),
			HaveField("Relationships", ConsistOf(And(HaveField("ThreadID", string(origin.UID)), HaveField("ThreadName", "origin"), HaveField("Type", "fork"),
				HaveField("Role", "child"), HaveField("MessageIndex", HaveValue(BeEquivalentTo(2))), HaveField("CreatedAt", Not(BeZero())))))))
		row, err := e.Store.Thread(ctx, string(fork.UID))
		Expect(err).NotTo(HaveOccurred())
		Expect(row).To(HaveValue(And(HaveField("Title", "Forked: Plan"), HaveField("UserID", "ada"), HaveField("Agent", "a"))))
		Expect(again(ctx, fork).Status.Conditions).To(ContainElement(And(HaveField("Type", skeinv1.ConditionReady), HaveField("Status", metav1.ConditionTrue))))
		Expect(again(ctx, origin).Status.Relationships).To(ConsistOf(And(HaveField("ThreadName", "fork"), HaveField("Role", "parent"))))

		newest := create(ctx, "newest", of("fork"))
		Expect(newest.Status.Messages).To(Equal(int64(3)))
		byID := create(ctx, "by-id", func(t *skeinv1.Thread) {
			of("origin")(t)
			t.Spec.ForkFrom.MessageID = "origin-3"
		})
		Expect(byID.Status.ForkPointIndex).To(HaveValue(BeEquivalentTo(3)))

		Expect(e.Client.Delete(ctx, fork)).To(Succeed())
		Reconcile(ctx, r, fork)
		Expect(again(ctx, origin).Status.Relationships).To(ConsistOf(HaveField("ThreadName", "by-id")), "the other end has gone")
		after := again(ctx, newest)
		Expect(after.Status.Relationships).To(BeEmpty())
		Expect(after.Status.OriginThreadID).To(Equal(string(fork.UID)))
	})

	It("waits for the origin and for its message", func(ctx SpecContext) {
		fork := create(ctx, "fork", of("origin", 1))
		Expect(fork).To(beNotReady(skeinv1.ReasonReferenceNotFound, `Thread "origin", which spec.forkFrom names, does not exist`))
		Expect(fork.Status.Phase).To(Equal("Pending"))
		origin := newThread(ctx, e, "origin")
		Expect(again(ctx, fork)).To(beNotReady(skeinv1.ReasonReferenceNotReady, "it has no conversation yet"))
		Reconcile(ctx, r, origin)
		Expect(again(ctx, fork)).To(beNotReady(skeinv1.ReasonReferenceNotFound, "has no messages"))
		say(ctx, origin, 1)
		fork = again(ctx, fork)
		Expect(fork).To(beNotReady(skeinv1.ReasonReferenceNotFound, "has messages with the indexes 0 to 0 and none with the index 1"))
		Expect(stalled(fork)).To(BeFalse(), "the origin may get that message")
		Expect(e.Threads.Store().Apply(ctx, origin.ThreadID(), nil, &store.Terminate{Reason: skeinv1.ReasonTerminatedByRequest})).To(Succeed())
		fork = again(ctx, fork)
		Expect(fork).To(beNotReady(skeinv1.ReasonInvalidSpec, "was terminated and has messages with the indexes 0 to 0"))
		Expect(stalled(fork)).To(BeTrue())
		Expect(create(ctx, "ended", of("origin", 0)).Status.Messages).To(Equal(int64(1)), "a thread that has ended can be forked")
	})

	It("forks at the requested message after removals before it, or says that it cannot", func(ctx SpecContext) {
		origin := create(ctx, "origin")
		say(ctx, origin, 5)
		st, err := e.Threads.Open(ctx, origin.ThreadID())
		Expect(err).NotTo(HaveOccurred())
		// asked is the object that POST fork makes before a change of the origin.
		asked := func(ctx context.Context, name, message string, change func()) *skeinv1.Thread {
			GinkgoHelper()
			at, err := e.Threads.ForkPoint(ctx, origin.ThreadID(), domain.ForkOf{MessageID: message})
			Expect(err).NotTo(HaveOccurred())
			change()
			return create(ctx, name, of("origin", at.Index), func(t *skeinv1.Thread) {
				t.Annotations = map[string]string{skeinv1.AnnotationForkPoint: fmt.Sprintf("%s/%d", origin.ThreadID(), at.Seq)}
			})
		}
		fork := asked(ctx, "after-a-deletion", "origin-3", func() { Expect(st.Apply(ctx, &store.DeleteMessage{ID: "origin-1"})).To(Succeed()) })
		Expect(fork.Status.ForkPointIndex).To(HaveValue(BeEquivalentTo(2)))
		ms, err := e.Store.Messages(ctx, fork.ThreadID(), store.MessageQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(ms.Messages).To(HaveExactElements(HaveField("ID", "origin-0"), HaveField("ID", "origin-2"), HaveField("ID", "origin-3")))

		fork = asked(ctx, "after-a-cut", "origin-4", func() {
			Expect(st.Truncate(ctx, domain.Truncation{MessageID: "origin-2"})).Error().NotTo(HaveOccurred())
			for i := range 3 {
				Expect(st.Inject(ctx, domain.NewMessage{ID: fmt.Sprint("other-", i), Content: ptr.To("other")})).Error().NotTo(HaveOccurred())
			}
		})
		Expect(fork).To(beNotReady(skeinv1.ReasonForkPointLost, "the message at which it was to be forked has been removed"))
		Expect(stalled(fork)).To(BeTrue())

		fork = asked(ctx, "of-another", "other-0", func() {
			Expect(e.Client.Delete(ctx, origin)).To(Succeed())
			Reconcile(ctx, r, origin)
			say(ctx, create(ctx, "origin"), 9) // in its place
		})
		Expect(fork).To(beNotReady(skeinv1.ReasonForkPointLost, "the thread that was to be forked has been deleted"))
		Expect(stalled(fork)).To(BeTrue())

		wrong := create(ctx, "wrong", of("origin", 0), func(t *skeinv1.Thread) { t.Annotations = map[string]string{skeinv1.AnnotationForkPoint: "x"} })
		Expect(wrong).To(beNotReady(skeinv1.ReasonInvalidSpec, "delete this Thread and create it without the annotation"))
	})

	It("reports a fork that would have its messages from too many threads, and what to do", func(ctx SpecContext) {
		origin := create(ctx, "origin")
		say(ctx, origin, 1)
		r = newReconciler(e, func(o *thread.Options) {
			o.Threads = domain.NewService(domain.Options{Store: unforkable{e.Store}, Clock: e.Clock})
		})
		const what = "from at most 1000 threads, in at most 10000 parts. Fork at an earlier message, fork one of the earlier threads, or export"
		declared := create(ctx, "declared", of("origin", 0))
		Expect(declared).To(beNotReady(skeinv1.ReasonInvalidSpec, what))
		Expect(stalled(declared)).To(BeTrue())
		asked := create(ctx, "asked", of("origin", 0), func(t *skeinv1.Thread) {
			t.Annotations = map[string]string{skeinv1.AnnotationForkPoint: origin.ThreadID() + "/1"}
		})
		Expect(asked).To(beNotReady(skeinv1.ReasonForkPointLost, what))
		Expect(stalled(asked)).To(BeTrue())
	})

	It("reports forks that form a circle", func(ctx SpecContext) {
		create(ctx, "x", of("y"))
		create(ctx, "y", of("z"))
		z := create(ctx, "z", of("x"))
		Expect(z).To(beNotReady(skeinv1.ReasonInvalidSpec, "(z from x from y from z)"))
		Expect(stalled(z)).To(BeTrue())
		Expect(create(ctx, "w", of("z"))).To(beNotReady(skeinv1.ReasonInvalidSpec, "(z from x from y from z)"))
	})

	It("does not fork a Thread that is being deleted", func(ctx SpecContext) {
		origin := create(ctx, "origin")
		say(ctx, origin, 1)
		Expect(e.Client.Delete(ctx, origin)).To(Succeed())
		Expect(create(ctx, "fork", of("origin"))).To(beNotReady(skeinv1.ReasonReferenceNotFound, "is being deleted"))
	})

	It("does not fork a Thread that is being purged, before the cache shows its deletion", func(ctx SpecContext) {
		origin := create(ctx, "origin")
		say(ctx, origin, 1)
		Expect(e.Store.MarkDeleted(ctx, string(origin.UID), origin.ThreadID())).To(Succeed())
		Expect(e.Store.Apply(ctx, origin.ThreadID(), nil, &store.Destroy{})).To(Succeed()) // so it is until its rows are removed
		Expect(create(ctx, "fork", of("origin"))).To(beNotReady(skeinv1.ReasonReferenceNotFound, "is being deleted"))
	})

	It("makes forks of forks a hundred deep, each at the cost of one", func(ctx SpecContext) {
		origin := create(ctx, "d0")
		say(ctx, origin, 10)
		for i := 1; i <= 100; i++ {
			fork := create(ctx, fmt.Sprint("d", i), of(fmt.Sprint("d", i-1), 4))
			Expect(fork.Status.Messages).To(Equal(int64(5)))
			Expect(fork.Status.RelationshipCount).To(Equal(int64(1)))
		}
		Expect(e.Store.Thread(ctx, string(create(ctx, "end", of("d100")).UID))).To(HaveValue(HaveField("Title", "Forked(101): Untitled")))
	})
})

// unforkable is a store whose forks have their messages from too many threads.
type unforkable struct{ store.Store }

func (s unforkable) CreateThread(ctx context.Context, t store.Thread, ops ...store.Op) (*store.Thread, bool, error) {
	for _, op := range ops {
		if _, fork := op.(*store.Fork); fork {
			return nil, false, fmt.Errorf("1001 threads: %w", store.ErrForkSources)
		}
	}
	return s.Store.CreateThread(ctx, t, ops...)
}
