package apiserver

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
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
		Expect(list.Skipped).To(ConsistOf(runtimev1.SkippedFirings{Due: 3, Until: 9, Count: 7, Reason: "Suspended"}))
		list, err = c.Firings(ctx, "team", "daily", client.FiringPage{Before: 2})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Firings).To(ConsistOf(And(HaveField("Due", int64(1)), HaveField("Error", "no tea"), HaveField("Log", "tried"), HaveField("Attempts", 1))))
		_, err = c.Firings(ctx, "team", "none", client.FiringPage{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
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
