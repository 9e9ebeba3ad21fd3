package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("GET firings", Label("EFF-07"), func() {
	It("answers with what an effect fired and what it did not, in pages", func(ctx SpecContext) {
		e := newEnv()
		firings := e.svc.Store()
		s := store.EffectSchedule{EffectID: "effect-daily", Cursor: 9}
		Expect(firings.RecordDue(ctx, store.DueRecord{
			Schedule: s,
			Firings: []store.Firing{
				{EffectID: "effect-daily", Due: 1, Namespace: "team", Origin: store.OriginSchedule},
				{EffectID: "effect-daily", Due: 2, Namespace: "team", Origin: store.OriginCatchUp},
			},
			Skips: []store.EffectSkip{{EffectID: "effect-daily", Due: 3, Until: 9, Count: 7, Reason: "Suspended"}},
		})).To(Succeed())
		claimed, err := firings.ClaimFirings(ctx, "w", time.Minute, map[string]int{"team": 1})
		Expect(err).NotTo(HaveOccurred())
		Expect(firings.FinishFiring(ctx, store.FiringEnd{Key: claimed[0].Key(), Epoch: 1, Status: store.FiringFailed, Error: "no tea", Log: "tried"})).To(Succeed())
		c, err := client.New(e.config)
		Expect(err).NotTo(HaveOccurred())
		list, err := c.Firings(ctx, "team", "daily", client.FiringPage{Limit: 1})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Firings).To(ConsistOf(And(HaveField("Due", int64(2)), HaveField("Status", "pending"), HaveField("Origin", "catch-up"))))
		Expect(list.HasMore).To(BeTrue())
		Expect(list.Next).To(And(HaveLen(10), HaveEach(BeNumerically(">", 0))))
		Expect(list.Skipped).To(ConsistOf(runtimev1.SkippedFirings{Due: 3, Until: 9, Count: 7, Reason: "Suspended"}))
		list, err = c.Firings(ctx, "team", "daily", client.FiringPage{Before: 2})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Firings).To(ConsistOf(And(HaveField("Due", int64(1)), HaveField("Error", "no tea"), HaveField("Log", "tried"), HaveField("Attempts", 1))))
		Expect(list.Next).To(BeEmpty(), "only the first page has them")
		_, err = c.Firings(ctx, "team", "none", client.FiringPage{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
	})

	It("has the same origin for what fired at its own time, whether that is one of a schedule or the only one", func(ctx SpecContext) {
		e := newEnv()
		Expect(e.svc.Store().RecordFiring(ctx, store.Firing{EffectID: "effect-daily", Due: 1, Namespace: "team"})).To(BeTrue())
		Expect(e.svc.Store().RecordDue(ctx, store.DueRecord{
			Schedule: store.EffectSchedule{EffectID: "effect-daily"}, Firings: []store.Firing{{EffectID: "effect-daily", Due: 2, Namespace: "team", Origin: store.OriginSchedule}},
		})).To(Succeed())
		c, err := client.New(e.config)
		Expect(err).NotTo(HaveOccurred())
		list, err := c.Firings(ctx, "team", "daily", client.FiringPage{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Firings).To(HaveExactElements(HaveField("Origin", "schedule"), HaveField("Origin", "schedule")))
	})

	It("names the Thread that a template has made", func(ctx SpecContext) {
		e := newEnv()
		firings := e.svc.Store()
		template := json.RawMessage(`{"spec":{"agentRef":{"name":"analyst"},"message":"go"}}`)
		firing := func(due int64, status store.FiringStatus, target json.RawMessage) store.Firing {
			return store.Firing{EffectID: "effect-daily", Name: "daily", Due: due, Namespace: "team", Status: status, Target: target, Origin: store.OriginManual}
		}
		minute := time.Minute.Microseconds()
		all := []store.Firing{firing(minute, store.FiringRunning, template), firing(minute+1, store.FiringRunning, template), firing(2*minute, store.FiringRunning, template),
			firing(3*minute, store.FiringPending, json.RawMessage(`{"tool":{"name":"rates"}}`))}
		Expect(firings.RecordDue(ctx, store.DueRecord{Schedule: store.EffectSchedule{EffectID: "effect-daily"}, Firings: all})).To(Succeed())
		Expect(firings.StartRunning(ctx, all[0].Key())).To(Succeed())
		Expect(firings.StartRunning(ctx, all[1].Key())).To(Succeed())
		_, err := firings.ClaimFirings(ctx, "w", time.Minute, map[string]int{"team": 1})
		Expect(err).NotTo(HaveOccurred())
		c, err := client.New(e.config)
		Expect(err).NotTo(HaveOccurred())
		list, err := c.Firings(ctx, "team", "daily", client.FiringPage{})
		Expect(err).NotTo(HaveOccurred())
		var names []string
		for _, f := range list.Firings {
			names = append(names, f.Thread)
		}
		Expect(names).To(Equal([]string{"", "", "daily-60000001", "daily-1"}))
	})

	It("loses none of many threads of one due time between its pages", func(ctx SpecContext) {
		e := newEnv()
		record := store.DueRecord{Schedule: store.EffectSchedule{EffectID: "effect-daily", Cursor: 2}}
		var want []string
		for due := int64(2); due >= 1; due-- {
			for i := range 50 {
				f := store.Firing{EffectID: "effect-daily", Due: due, ThreadID: fmt.Sprintf("thread-%02d", i), Namespace: "team", Origin: store.OriginSchedule}
				record.Firings = append(record.Firings, f)
				want = append(want, fmt.Sprint(due, " ", f.ThreadID))
			}
		}
		record.Firings = append(record.Firings, store.Firing{EffectID: "effect-daily", Due: 1, Namespace: "team", Origin: store.OriginSchedule})
		want = slices.Insert(want, 50, "1 ")
		Expect(e.svc.Store().RecordDue(ctx, record)).To(Succeed())
		c, err := client.New(e.config)
		Expect(err).NotTo(HaveOccurred())
		var got []string
		for page := (client.FiringPage{Limit: 7}); ; {
			list, err := c.Firings(ctx, "team", "daily", page)
			Expect(err).NotTo(HaveOccurred())
			for _, f := range list.Firings {
				got = append(got, fmt.Sprint(f.Due, " ", f.ThreadID))
			}
			Expect(list.HasMore).To(Equal(list.Continue != ""))
			if page.Continue = list.Continue; !list.HasMore {
				break
			}
			Expect(list.Firings).To(HaveLen(7))
		}
		Expect(got).To(Equal(want))
		for _, wrong := range []client.FiringPage{{Continue: "soon"}, {Continue: "1.t", Before: 5}} {
			_, err := c.Firings(ctx, "team", "daily", wrong)
			Expect(err).To(MatchError(ContainSubstring("continue")))
			Expect(apierrors.IsInvalid(err)).To(BeTrue())
		}
	})
})

// keepsNone is a store whose history loses a firing as soon as it is canceled.
type keepsNone struct{ store.Store }

func (k keepsNone) CancelFirings(ctx context.Context, reason string, keys ...store.FiringKey) (int, error) {
	n, err := k.Store.CancelFirings(ctx, reason, keys...)
	for _, key := range keys {
		err = errors.Join(err, k.PruneFirings(ctx, key.EffectID, store.HistoryLimits{}))
	}
	return n, err
}

var _ = Describe("POST firings/{name}/cancel", Label("EFF-08"), func() {
	const one, other = "5c4fe7a4-7a7c-4c7b-9e0e-000000000001", "5c4fe7a4-7a7c-4c7b-9e0e-000000000002"
	minute := time.Minute.Microseconds()
	var e *testEnv
	var c *client.Client
	var firings store.FiringStore

	BeforeEach(func(ctx SpecContext) {
		e = newEnv()
		firings = e.svc.Store()
		firing := func(due int64, threadID string, status store.FiringStatus) store.Firing {
			return store.Firing{EffectID: "effect-daily", Name: "daily", Due: due * minute, ThreadID: threadID, Namespace: "team", Status: status, Origin: store.OriginSchedule}
		}
		Expect(firings.RecordDue(ctx, store.DueRecord{Schedule: store.EffectSchedule{EffectID: "effect-daily", Fingerprint: "f", Cursor: 4 * minute}, Firings: []store.Firing{
			firing(1, "", store.FiringPending), firing(2, "", store.FiringQueued), firing(3, "", store.FiringRunning),
			firing(4, one, store.FiringPending), firing(4, other, store.FiringPending),
		}})).To(Succeed())
		var err error
		c, err = client.New(e.config)
		Expect(err).NotTo(HaveOccurred())
	})

	statuses := func(ctx SpecContext) (all []string) {
		GinkgoHelper()
		list, err := c.Firings(ctx, "team", "daily", client.FiringPage{})
		Expect(err).NotTo(HaveOccurred())
		for _, f := range list.Firings {
			all = append(all, f.Status)
		}
		return all
	}
	cancel := func(ctx SpecContext, due int64, threadID string) (*runtimev1.Firing, error) {
		return c.CancelFiring(ctx, "team", "daily", runtimev1.CancelFiring{Due: due, ThreadID: threadID})
	}

	It("cancels one firing, and leaves the others and the schedule alone", func(ctx SpecContext) {
		before, err := firings.EffectSchedule(ctx, "effect-daily")
		Expect(err).NotTo(HaveOccurred())
		Expect(cancel(ctx, 2*minute, "")).To(HaveValue(And(HaveField("Due", 2*minute), HaveField("Status", "canceled"), HaveField("Error", "canceled by hand"), HaveField("EndedAt", BeNumerically(">", 0)))))
		Expect(statuses(ctx)).To(Equal([]string{"pending", "pending", "running", "canceled", "pending"}))
		Expect(cancel(ctx, 4*minute, "T-"+other)).To(HaveValue(HaveField("ThreadID", other)))
		Expect(cancel(ctx, 3*minute, "")).To(HaveValue(HaveField("Status", "canceled")))
		Expect(statuses(ctx)).To(Equal([]string{"pending", "canceled", "canceled", "canceled", "pending"}))
		Expect(firings.EffectSchedule(ctx, "effect-daily")).To(Equal(before))
	})

	It("answers with the canceled firing, also when the history loses it at once", func(ctx SpecContext) {
		e = newEnv(func(o *Options) {
			o.Threads = thread.NewService(thread.Options{Store: keepsNone{o.Threads.Store()}})
		})
		Expect(e.svc.Store().RecordDue(ctx, store.DueRecord{Schedule: store.EffectSchedule{EffectID: "effect-daily"}, Firings: []store.Firing{
			{EffectID: "effect-daily", Name: "daily", Due: minute, Namespace: "team", Status: store.FiringQueued, Origin: store.OriginSchedule},
		}})).To(Succeed())
		var err error
		c, err = client.New(e.config)
		Expect(err).NotTo(HaveOccurred())
		Expect(cancel(ctx, minute, "")).To(HaveValue(And(HaveField("Due", minute), HaveField("Status", "canceled"), HaveField("Error", "canceled by hand"), HaveField("EndedAt", BeNumerically(">", 0)))))
		Expect(statuses(ctx)).To(BeEmpty())
	})

	It("takes the claim from the replica that runs it, and shows nothing that code wrote", func(ctx SpecContext) {
		claimed, err := firings.ClaimFirings(ctx, "w", time.Minute, map[string]int{"team": 3})
		Expect(err).NotTo(HaveOccurred())
		Expect(claimed).To(HaveLen(3))
		due := claimed[0].Key()
		Expect(firings.FinishFiring(ctx, store.FiringEnd{Key: due, Epoch: 1, Status: store.FiringPending, Error: "no tea", Log: "tried"})).To(Succeed())
		claimed, err = firings.ClaimFirings(ctx, "w", time.Minute, map[string]int{"team": 3})
		Expect(err).NotTo(HaveOccurred())
		Expect(claimed).To(ConsistOf(And(HaveField("EffectID", due.EffectID), HaveField("Due", due.Due), HaveField("Epoch", int64(2)))))
		Expect(cancel(ctx, due.Due, due.ThreadID)).To(HaveValue(And(HaveField("Log", ""), HaveField("Error", "canceled by hand"))))
		Expect(firings.RenewFirings(ctx, time.Minute, []store.FiringClaim{{Key: due, Epoch: 2}})).To(ConsistOf(due))
		Expect(firings.FinishFiring(ctx, store.FiringEnd{Key: due, Epoch: 2, Status: store.FiringSucceeded})).To(MatchError(store.ErrFiringLost))
	})

	It("says what is wrong with a firing that is not there, has ended, or is one of several", func(ctx SpecContext) {
		_, err := c.CancelFiring(ctx, "team", "none", runtimev1.CancelFiring{Due: minute})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		for _, threadID := range []string{"", one} {
			_, err = cancel(ctx, 5*minute, threadID)
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring("has no firing of 1970-01-01T00:05:00Z")))
		}
		_, err = cancel(ctx, minute, one)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "it fired for no thread: %v", err)
		_, err = cancel(ctx, 0, "")
		Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring("due"))))
		_, err = cancel(ctx, 4*minute, "")
		Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring("threadId"))))
		Expect(statuses(ctx)).To(Equal([]string{"pending", "pending", "running", "queued", "pending"}), "nothing was canceled")

		Expect(cancel(ctx, minute, "")).To(HaveValue(HaveField("Status", "canceled")))
		ended, err := firings.Firing(ctx, store.FiringKey{EffectID: "effect-daily", Due: minute})
		Expect(err).NotTo(HaveOccurred())
		_, err = cancel(ctx, minute, "")
		Expect(err).To(And(Satisfy(apierrors.IsConflict), MatchError(ContainSubstring("the firing daily/1970-01-01T00:01:00Z has ended already: canceled"))))
		Expect(firings.Firing(ctx, ended.Key())).To(Equal(ended))
	})
})
