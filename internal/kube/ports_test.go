package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
)

var parent = &store.Thread{ID: "11111111-2222-4333-8444-555555555555", Namespace: kubetest.Namespace, Name: "thread", RootID: "11111111-2222-4333-8444-555555555555"}

var _ = Describe("Children", func() {
	request := ports.ChildRequest{
		Cause: "call_1", RunID: "sess_1", Title: "Sum", Message: "add", Arguments: json.RawMessage(`{"a":1}`), Attachments: []string{"/a.csv"},
		Subagent: skeinv1.AgentSubagent{Name: "Helper_One", AgentRef: skeinv1.LocalRef{Name: "worker"}, Blocking: true, ParentCommunication: skeinv1.CommunicationImplicit},
	}

	It("are Subagents, owned and labelled, the same one for the same cause", Label("SUB-01", "K8S-03"), func(ctx SpecContext) {
		c := kubetest.Cluster(interceptor.Funcs{})
		db := childStore(ctx)
		port := kube.NewChildren(c, c, db)
		first, err := port.Create(ctx, parent, request)
		Expect(err).NotTo(HaveOccurred())
		again, err := port.Create(ctx, parent, request)
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(Equal(first))
		other := request
		other.Cause = "call_2"
		second, err := port.Create(ctx, parent, other)
		Expect(err).NotTo(HaveOccurred())
		Expect(second.Reference).NotTo(Equal(first.Reference))

		var s skeinv1.Subagent
		Expect(c.Get(ctx, client.ObjectKey{Namespace: kubetest.Namespace, Name: first.Reference}, &s)).To(Succeed())
		Expect(s.Name).To(HavePrefix("thread-helper-one-"))
		Expect(s.OwnerReferences).To(HaveExactElements(And(HaveField("Kind", "Thread"), HaveField("UID", BeEquivalentTo(parent.ID)),
			HaveField("Controller", HaveValue(BeTrue())), HaveField("BlockOwnerDeletion", HaveValue(BeTrue())))))
		Expect(s.Labels).To(And(HaveKeyWithValue(skeinv1.LabelManagedBy, "skein"), HaveKeyWithValue(skeinv1.LabelThreadID, parent.ID), HaveKeyWithValue(skeinv1.LabelThread, "thread")))
		Expect(s.Spec).To(And(HaveField("Message", ""), HaveField("Arguments", BeNil()), HaveField("Attachments", BeEmpty())), "what a model said stays out of the object")
		task, digest, err := db.ChildTask(ctx, s.Spec.TaskRef)
		Expect(err).NotTo(HaveOccurred())
		Expect(task).To(HaveValue(And(HaveField("ParentID", parent.ID), HaveField("Reference", s.Name), HaveField("Kind", "Helper_One"), HaveField("Agent", "worker"),
			HaveField("Task", MatchJSON(`{"message":"add","arguments":{"a":1},"attachments":["/a.csv"]}`)))))
		Expect(s.Spec.TaskDigest).To(Equal(digest))
		Expect(port.Exists(ctx, parent, first.Reference)).To(BeTrue())
		Expect(port.Exists(ctx, parent, "none")).To(BeFalse())
		for reason, exists := range map[string]bool{skeinv1.ReasonChildRefused: true, skeinv1.ReasonTerminated: false} {
			meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: skeinv1.ConditionTerminated, Status: metav1.ConditionTrue, Reason: reason})
			Expect(c.Status().Update(ctx, &s)).To(Succeed())
			Expect(port.Exists(ctx, parent, first.Reference)).To(Equal(exists), reason)
		}
		Expect(s.Spec.ToolCallID).To(Equal("call_1"))
		Expect(first).To(HaveValue(And(HaveField("Status", kube.ChildPending), HaveField("Title", "Sum"), HaveField("ThreadName", s.Name))))
		Expect(port.List(ctx, parent)).To(ConsistOf(HaveField("Reference", first.Reference), HaveField("Reference", second.Reference)))
		stranger := &store.Thread{Namespace: kubetest.Namespace, Name: "other"}
		Expect(port.List(ctx, stranger)).To(BeEmpty())
		Expect(port.Entry(ctx, parent, first.Reference)).To(Equal(first))
		Expect(port.Entry(ctx, parent, "none")).Error().To(MatchError(store.ErrNotFound))
		Expect(port.Entry(ctx, stranger, first.Reference)).Error().To(MatchError(store.ErrNotFound), "it is somebody else's")

		namesake := &store.Thread{ID: "11111111-2222-4333-8444-999999999999", Namespace: parent.Namespace, Name: parent.Name}
		Expect(port.List(ctx, namesake)).To(BeEmpty(), "one that has the name of another sees none of its children")
		Expect(port.Entry(ctx, namesake, first.Reference)).Error().To(MatchError(store.ErrNotFound))
		adopted := *parent
		adopted.ObjectUID = "11111111-2222-4333-8444-888888888888"
		Expect(port.List(ctx, &adopted)).To(BeEmpty(), "those that it had are to belong to its new object first")
		s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner(adopted.Name, adopted.ObjectUID)}
		Expect(c.Update(ctx, &s)).To(Succeed())
		Expect(port.List(ctx, &adopted)).To(ConsistOf(HaveField("Reference", first.Reference)))
	})

	It("are found among many that have ended without a look at those", Label("SUB-01"), func(ctx SpecContext) {
		child := func(name string, resumable bool, of, status string) *skeinv1.Subagent {
			s := &skeinv1.Subagent{ObjectMeta: kubetest.Meta(name), Spec: skeinv1.SubagentSpec{ParentRef: skeinv1.LocalRef{Name: of}, Name: "helper", Resumable: resumable},
				Status: skeinv1.SubagentStatus{Entry: &skeinv1.ChildStatus{Reference: name, Resumable: resumable, Status: status}}}
			s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner(of, parent.ID)}
			if status == kube.ChildTerminated {
				s.Status.Conditions = []metav1.Condition{{Type: skeinv1.ConditionTerminated, Status: metav1.ConditionTrue}}
			}
			return s
		}
		objs := []client.Object{
			child("rests", true, "thread", kube.ChildCompleted), child("works", true, "thread", kube.ChildRunning), child("new", true, "thread", kube.ChildPending),
			child("once", false, "thread", kube.ChildRunning), child("other", true, "somebody", kube.ChildRunning),
		}
		for i := range 1000 {
			objs = append(objs, child(fmt.Sprint("over-", i), i%2 == 0, "thread", kube.ChildTerminated))
		}
		looked := 0
		c := kubetest.Cluster(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, l, opts...)
			looked += len(l.(*skeinv1.SubagentList).Items)
			return err
		}}, objs...)
		found, err := kube.NewChildren(c, c, childStore(ctx)).Resumable(ctx, parent)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(ConsistOf(HaveField("Reference", "rests"), HaveField("Reference", "works"), HaveField("Reference", "new")))
		Expect(looked).To(Equal(3))
	})

	It("never take over a foreign Subagent of their name", func(ctx SpecContext) {
		port := newChildren(ctx)
		first, err := port.Create(ctx, parent, request)
		Expect(err).NotTo(HaveOccurred())
		foreign := &skeinv1.Subagent{ObjectMeta: kubetest.Meta(first.Reference), Spec: skeinv1.SubagentSpec{ParentRef: skeinv1.LocalRef{Name: "thread"}}}
		port = newChildren(ctx, foreign)
		_, err = port.Create(ctx, parent, request)
		Expect(err).To(MatchError(And(ContainSubstring("exists already"), ContainSubstring("rename"))))
	})

	It("are refused at a limit and by the cluster, and then take no place", Label("SUB-03"), func(ctx SpecContext) {
		db := childStore(ctx)
		c := kubetest.Cluster(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if o.(*skeinv1.Subagent).Spec.Title == "refused" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "subagents"}, o.GetName(), errors.New("exceeded quota: few"))
			}
			return c.Create(ctx, o, opts...)
		}})
		port := kube.NewChildren(c, c, db)
		one := request
		one.Limits = []store.ChildLimit{{Scope: store.ChildrenOfParent, Most: 1}}
		one.Title = "refused"
		_, err := port.Create(ctx, parent, one)
		Expect(err).To(MatchError(And(HavePrefix("the cluster refuses the subagent: "), ContainSubstring("exceeded quota"))))
		Expect(db.LivingChildren(ctx, parent.Namespace, parent.ID)).To(BeEmpty())
		one.Cause, one.Title = "call_2", "Sum"
		_, err = port.Create(ctx, parent, one)
		Expect(err).NotTo(HaveOccurred())
		one.Cause = "call_3"
		_, err = port.Create(ctx, parent, one)
		var over *store.ChildLimitError
		Expect(errors.As(err, &over)).To(BeTrue())
		Expect(port.List(ctx, parent)).To(HaveLen(1))
	})

	It("are not refused while a new ResourceQuota is not counted yet", Label("SUB-03"), func() {
		forbidden := func(why string) error {
			return fmt.Errorf("create: %w", apierrors.NewForbidden(schema.GroupResource{Group: "skein.dev", Resource: "subagents"}, "s", errors.New(why)))
		}
		Expect(kube.IsRefused(forbidden("status unknown for quota: few, resources: count/subagents.skein.dev"))).To(BeFalse())
		Expect(kube.IsRefused(forbidden("exceeded quota: few, requested: count/subagents.skein.dev=1, used: count/subagents.skein.dev=5, limited: count/subagents.skein.dev=5"))).To(BeTrue())
	})

	It("are refused by a webhook that answers with the status of another error, and taken for no other object", Label("SUB-03"), func(ctx SpecContext) {
		for _, reason := range []metav1.StatusReason{metav1.StatusReasonAlreadyExists, metav1.StatusReasonConflict, metav1.StatusReasonInternalError, ""} {
			answer := func(message string) error {
				return fmt.Errorf("create: %w", &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 409, Reason: reason, Message: message}})
			}
			message := `admission webhook "no.example.com" denied the request: no`
			Expect(kube.IsRefused(answer(message))).To(BeTrue(), string(reason))
			Expect(kube.IsRefused(answer(`failed calling webhook "no.example.com": timeout`))).To(BeFalse(), string(reason))
			db := childStore(ctx)
			c := kubetest.Cluster(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return answer(message)
			}})
			_, err := kube.NewChildren(c, c, db).Create(ctx, parent, request)
			Expect(err).To(MatchError(And(HavePrefix("the cluster refuses the subagent: "), ContainSubstring("denied the request: no"))), string(reason))
			Expect(db.LivingChildren(ctx, parent.Namespace, parent.ID)).To(BeEmpty(), "it takes no place")
		}
	})

	It("have names that fit labels, also under a parent with a long name", func(ctx SpecContext) {
		long := *parent
		long.Name = strings.Repeat("n", 200)
		s, err := newChildren(ctx).Create(ctx, &long, request)
		Expect(err).NotTo(HaveOccurred())
		Expect(validation.IsValidLabelValue(s.Reference)).To(BeEmpty())
		Expect(validation.IsDNS1123Subdomain(s.Reference)).To(BeEmpty())
		Expect(objects.RuntimeLabels(&long)).NotTo(HaveKey(skeinv1.LabelThread))
	})
})

func childStore(ctx context.Context) store.Store {
	GinkgoHelper()
	db, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: scratch.Folder(GinkgoT())})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(db.Close)
	return db
}

func newChildren(ctx context.Context, objs ...client.Object) *kube.Children {
	GinkgoHelper()
	c := kubetest.Cluster(interceptor.Funcs{}, objs...)
	return kube.NewChildren(c, c, childStore(ctx))
}

var _ = Describe("Threads", Label("REL-03"), func() {
	t := &store.Thread{ID: "66666666-2222-4333-8444-555555555555", Namespace: kubetest.Namespace, Agent: "worker", UserID: "ada", TaskID: "7", Title: "secret title"}

	It("are objects that adopt what is stored, the same one for the same cause", func(ctx SpecContext) {
		c := kubetest.Cluster(interceptor.Funcs{})
		port := kube.NewThreads(c, c)
		made := *t
		made.Name = port.Name(parent, "call_1")
		Expect(made.Name).To(And(HavePrefix("thread-handoff-"), Equal(port.Name(parent, "call_1")), Not(Equal(port.Name(parent, "call_2")))))
		Expect(port.Declare(ctx, &made, "call_1")).To(Succeed())
		Expect(port.Declare(ctx, &made, "call_1")).To(Succeed())
		var o skeinv1.Thread
		Expect(c.Get(ctx, client.ObjectKey{Namespace: kubetest.Namespace, Name: made.Name}, &o)).To(Succeed())
		Expect(o.Spec).To(Equal(skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "worker"}, UserID: "ada", TaskID: "7", ThreadID: t.ID}), "nothing that was said")
		Expect(o.OwnerReferences).To(BeEmpty(), "it outlives the old thread")
	})

	It("never take over a foreign Thread of their name", func(ctx SpecContext) {
		foreign := &skeinv1.Thread{ObjectMeta: kubetest.Meta("x")}
		made := *t
		made.Name = "x"
		c := kubetest.Cluster(interceptor.Funcs{}, foreign)
		Expect(kube.NewThreads(c, c).Declare(ctx, &made, "call_1")).To(MatchError(ContainSubstring("rename")))
	})
})

var _ = Describe("Effects", func() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

	It("are ScheduledEffects with an exact due time, listed and removed while they are pending", Label("EFF-01", "EFF-02"), func(ctx SpecContext) {
		c := kubetest.Cluster(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			o.SetUID("uid-" + "1")
			if o.GetName() != "" && strings.Contains(o.GetName(), "later") {
				o.SetUID("uid-2")
			}
			return c.Create(ctx, o, opts...)
		}})
		db, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: scratch.Folder(GinkgoT())})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		port := kube.NewEffects(c, c, db, testingclock.NewFakePassiveClock(now), kube.NewEffectQuota(0, 0))
		_, err = port.Schedule(ctx, parent, ports.EffectRequest{Cause: "c0", Name: "acme/remind_me"})
		Expect(err).To(MatchError(HavePrefix(`there is no Effect "acme.remind-me" in namespace`)))
		for _, name := range []string{"acme.remind-me", "later"} {
			Expect(c.Create(ctx, &skeinv1.Effect{ObjectMeta: metav1.ObjectMeta{Namespace: parent.Namespace, Name: name}})).To(Succeed())
		}
		_, err = port.Schedule(ctx, parent, ports.EffectRequest{Cause: "c0", Name: "none"})
		var unknown *definition.UnknownError
		Expect(errors.As(err, &unknown)).To(BeTrue())
		Expect(err).To(MatchError(HaveSuffix("create it first; existing Effects: acme.remind-me, later")))
		_, err = port.Schedule(ctx, parent, ports.EffectRequest{Cause: "c0", Name: "later", Args: json.RawMessage(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)})
		var invalid *thread.InvalidError
		Expect(errors.As(err, &invalid)).To(BeTrue())
		Expect(invalid).To(HaveValue(And(HaveField("Field", "args"), HaveField("Message", HavePrefix("the arguments have 1048584 bytes, more than the limit of 1048576")))))
		for _, delay := range []time.Duration{-1, 365*24*time.Hour + 1} {
			_, err = port.Schedule(ctx, parent, ports.EffectRequest{Cause: "c0", Name: "later", Delay: delay})
			Expect(errors.As(err, &invalid)).To(BeTrue())
			Expect(invalid).To(HaveValue(And(HaveField("Field", "delay"), HaveField("Message", "it must be the delay in milliseconds: a number from 0, which is now, to a year"))))
		}
		id, err := port.Schedule(ctx, parent, ports.EffectRequest{Cause: "c1", Name: "acme/remind_me", Args: json.RawMessage(`{"x":1}`), Delay: 1500 * time.Millisecond, HookDepth: 3})
		Expect(err).NotTo(HaveOccurred())
		Expect(id).To(Equal("uid-1"))
		again, err := port.Schedule(ctx, parent, ports.EffectRequest{Cause: "c1", Name: "acme/remind_me", Delay: time.Hour})
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(Equal(id), "a repeat of the call schedules nothing more")
		later, err := port.Schedule(ctx, parent, ports.EffectRequest{Cause: "c2", Name: "later", Delay: time.Hour})
		Expect(err).NotTo(HaveOccurred())

		list, err := port.List(ctx, parent, "")
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveExactElements(
			And(HaveField("ID", id), HaveField("Name", "acme/remind_me"), HaveField("Args", MatchJSON(`{"x":1}`)), HaveField("ScheduledAt", now.Add(1500*time.Millisecond).UnixMicro())),
			And(HaveField("ID", later), HaveField("Args", MatchJSON(`{}`)))))
		Expect(port.List(ctx, parent, "acme/remind-me")).To(HaveLen(1), "- and _ are the same")
		Expect(port.List(ctx, parent, "none")).To(BeEmpty())

		Expect(port.Remove(ctx, parent, later)).To(BeTrue())
		Expect(port.Remove(ctx, parent, later)).To(BeFalse())
		var s skeinv1.ScheduledEffect
		Expect(c.Get(ctx, client.ObjectKey{Namespace: kubetest.Namespace, Name: nameOf(ctx, c, id)}, &s)).To(Succeed())
		Expect(s.Spec.HookDepth).To(Equal(int32(3)))
		Expect(s.Spec.Args).To(BeNil(), "what code said stays out of the object")
		Expect(s.Spec.ArgsRef).NotTo(BeEmpty())
		s.Status.Phase = kube.EffectFired
		Expect(c.Status().Update(ctx, &s)).To(Succeed())
		Expect(port.List(ctx, parent, "")).To(BeEmpty(), "what has fired is pending no more")
		Expect(port.Remove(ctx, parent, id)).To(BeFalse())
	})

	It("with schedules are listed with their next time, and removed whether they have fired or not", Label("EFF-01", "EFF-03"), func(ctx SpecContext) {
		made := metav1.NewTime(now.Add(-time.Hour).Truncate(time.Second))
		declared := func(name, thread string, change ...func(*skeinv1.ScheduledEffect)) *skeinv1.ScheduledEffect {
			s := &skeinv1.ScheduledEffect{ObjectMeta: kubetest.Meta(name), Spec: skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: thread}, Effect: "remind", Schedules: []string{"30 * * * *"}}}
			s.UID, s.CreationTimestamp = types.UID("uid-"+name), made
			for _, c := range change {
				c(s)
			}
			return s
		}
		status := func(phase string, next int64) func(*skeinv1.ScheduledEffect) {
			return func(s *skeinv1.ScheduledEffect) {
				s.Status.Phase, s.Status.ScheduledAt, s.Status.Active = phase, next, 1
			}
		}
		soon := now.Add(10 * time.Minute).UnixMicro()
		c := kubetest.Cluster(interceptor.Funcs{},
			declared("new", parent.Name), declared("active", parent.Name, status("Active", soon)), declared("paused", parent.Name, status("Paused", soon+1)),
			declared("limited", parent.Name, status("LimitReached", soon+2)),
			declared("over", parent.Name, status("Finished", 0)), declared("broken", parent.Name, func(s *skeinv1.ScheduledEffect) { s.Spec.Schedules = []string{"61 * * * *"} }),
			declared("others", "other", status("Active", soon)),
			declared("everyones", "", status("Active", soon), func(s *skeinv1.ScheduledEffect) {
				s.Spec.ThreadRef, s.Spec.ThreadSelector = nil, &metav1.LabelSelector{}
			}),
		)
		db, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: scratch.Folder(GinkgoT())})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		port := kube.NewEffects(c, c, db, testingclock.NewFakePassiveClock(now), kube.NewEffectQuota(0, 0))
		list, err := port.List(ctx, parent, "remind")
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveExactElements(
			And(HaveField("ID", "uid-active"), HaveField("ScheduledAt", soon), HaveField("CreatedAt", made.UnixMicro())),
			HaveField("ID", "uid-paused"),
			HaveField("ID", "uid-limited"),
			And(HaveField("ID", "uid-new"), HaveField("ScheduledAt", now.Truncate(time.Hour).Add(30*time.Minute).UnixMicro()), HaveField("Name", "remind"))))

		Expect(db.RecordDue(ctx, store.DueRecord{Schedule: store.EffectSchedule{EffectID: "uid-active", Cursor: 1}, Firings: []store.Firing{{EffectID: "uid-active", Due: 1}}})).To(Succeed())
		Expect(db.ClaimFirings(ctx, "w", time.Minute, map[string]int{"": 1})).To(HaveLen(1))
		Expect(port.Remove(ctx, parent, "uid-active")).To(BeTrue())
		Expect(db.EffectSchedule(ctx, "uid-active")).To(HaveField("Removed", true))
		for _, foreign := range []string{"uid-others", "uid-everyones", "uid-over", "uid-active"} {
			Expect(port.Remove(ctx, parent, foreign)).To(BeFalse(), foreign)
		}
		var left skeinv1.ScheduledEffectList
		Expect(c.List(ctx, &left)).To(Succeed())
		Expect(left.Items).To(HaveLen(7))
		Expect(left.Items).NotTo(ContainElement(HaveField("Name", "active")))
	})

	It("count a delay from the end of the second in which they were made, until the controller knows better", func() {
		made := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		s := &skeinv1.ScheduledEffect{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}, Spec: skeinv1.ScheduledEffectSpec{After: &metav1.Duration{Duration: 3 * time.Second}}}
		Expect(kube.DueTime(s)).To(Equal(made.Add(4 * time.Second)))
		s.Status.ScheduledAt = made.Add(3200 * time.Millisecond).UnixMicro()
		Expect(kube.DueTime(s).UnixMicro()).To(Equal(s.Status.ScheduledAt))
		at := skeinv1.NewTimestamp(made.Add(time.Minute))
		s.Spec = skeinv1.ScheduledEffectSpec{At: &at}
		Expect(kube.DueTime(s)).To(Equal(at.Time))
		s.Spec.At = &skeinv1.Timestamp{}
		Expect(kube.DueTime(s)).To(Equal(time.Time{}.Add(time.Microsecond)), "the zero time would be none")
	})
})

func nameOf(ctx context.Context, c client.Client, uid string) string {
	GinkgoHelper()
	var l skeinv1.ScheduledEffectList
	Expect(c.List(ctx, &l)).To(Succeed())
	for _, s := range l.Items {
		if string(s.UID) == uid {
			return s.Name
		}
	}
	Fail("no ScheduledEffect has the id " + uid)
	return ""
}
