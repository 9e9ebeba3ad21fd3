package storetest

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeWebhooks(e *env) {
	Describe("deliveries of webhooks", Label("EVT-05"), func() {
		list := func(ctx SpecContext, q store.DeliveryQuery) []store.Delivery {
			GinkgoHelper()
			q.Namespace = "ns"
			found, err := e.store.Deliveries(ctx, q)
			Expect(err).NotTo(HaveOccurred())
			return found
		}
		claim := func(ctx SpecContext, owner string, busy map[string]int) []store.Delivery {
			GinkgoHelper()
			claimed, err := e.store.ClaimDeliveries(ctx, owner, time.Minute, store.DeliveryCapacity{Free: 10, Each: 2, Busy: busy})
			Expect(err).NotTo(HaveOccurred())
			return claimed
		}
		// telling creates a thread whose webhooks are told of its runs, with a run that has ended for each id.
		telling := func(ctx SpecContext, runs ...string) string {
			GinkgoHelper()
			thread := e.threadIn(ctx, "ns")
			Expect(e.store.SetWebhooks(ctx, []store.Webhook{
				{ID: "all", Namespace: "ns", Name: "all", Events: []string{store.WebhookRunEnded, store.WebhookApprovalWanted, store.WebhookEffectFailed}},
				{ID: "other-agent", Namespace: "ns", Name: "other", Events: []string{store.WebhookRunEnded}, Agents: []string{"helper-2", "x"}},
				{ID: "elsewhere", Namespace: "elsewhere", Name: "all", Events: []string{store.WebhookRunEnded}},
			})).To(Succeed())
			for _, id := range runs {
				e.apply(ctx, thread, &store.PutRun{Run: store.Run{ID: id, Agent: "helper", Status: store.RunRunning}})
				e.apply(ctx, thread, &store.PutRun{Run: store.Run{ID: id, Agent: "helper", Status: store.RunFailed, Reason: "ModelFailed", Message: "no"}})
			}
			return thread
		}

		It("are written with what they tell of, once, for those who want them", func(ctx SpecContext) {
			id := telling(ctx)
			run := store.Run{ID: "r", Agent: "helper", Status: store.RunRunning}
			e.apply(ctx, id, &store.PutRun{Run: run})
			Expect(list(ctx, store.DeliveryQuery{})).To(BeEmpty())
			run.Status, run.Reason = store.RunFailed, "ModelFailed"
			Expect(e.store.Apply(ctx, id, nil, &store.PutRun{Run: run}, &store.RemoveFile{Path: "/none"})).NotTo(Succeed())
			Expect(list(ctx, store.DeliveryQuery{})).To(BeEmpty(), "the transaction failed")
			e.apply(ctx, id, &store.PutRun{Run: run})
			e.apply(ctx, id, &store.PutRun{Run: run})
			e.apply(ctx, id, &store.AppendEvent{Event: store.Event{Type: store.EventApprovalRequested, RunID: "r", MessageID: "m", Data: json.RawMessage(`{"name":"pay"}`)}})
			_, err := e.store.RecordFiring(ctx, store.Firing{EffectID: "e", Due: 1, ThreadID: id, Namespace: "ns", Name: "remind-1", Effect: "remind"})
			Expect(err).NotTo(HaveOccurred())
			claimed, err := e.store.ClaimFirings(ctx, "a", time.Minute, map[string]int{"ns": 1})
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.FinishFiring(ctx, store.FiringEnd{Key: claimed[0].Key(), Epoch: claimed[0].Epoch, Status: store.FiringFailed, Error: "no bank"})).To(Succeed())
			got := list(ctx, store.DeliveryQuery{})
			Expect(got).To(HaveLen(3))
			data := map[string]string{}
			for _, d := range got {
				Expect(d).To(And(HaveField("WebhookID", "all"), HaveField("ThreadID", id), HaveField("ThreadName", "thread-1"), HaveField("Agent", "helper"), HaveField("Status", store.DeliveryPending)))
				data[d.Event] = string(d.Data)
			}
			Expect(data[store.WebhookRunEnded]).To(ContainSubstring(`"reason":"ModelFailed"`))
			Expect(data[store.WebhookApprovalWanted]).To(MatchJSON(`{"name":"pay","runId":"r","messageId":"m"}`))
			Expect(data[store.WebhookEffectFailed]).To(And(ContainSubstring(`"error":"no bank"`), ContainSubstring(`"scheduledEffect":"remind-1"`)))
		})

		It("are written for the webhooks that there are when something happens", func(ctx SpecContext) {
			thread := e.threadIn(ctx, "ns")
			ends := func(run string) {
				GinkgoHelper()
				e.apply(ctx, thread, &store.PutRun{Run: store.Run{ID: run, Agent: "helper", Status: store.RunRunning}})
				e.apply(ctx, thread, &store.PutRun{Run: store.Run{ID: run, Agent: "helper", Status: store.RunSucceeded}})
			}
			ends("before")
			Expect(list(ctx, store.DeliveryQuery{})).To(BeEmpty())
			Expect(e.store.SetWebhooks(ctx, []store.Webhook{{ID: "all", Namespace: "ns", Name: "all", Events: []string{store.WebhookRunEnded}}})).To(Succeed())
			ends("while there is one")
			Expect(list(ctx, store.DeliveryQuery{})).To(ConsistOf(HaveField("Event", store.WebhookRunEnded)))
			Expect(e.store.SetWebhooks(ctx, nil)).To(Succeed())
			ends("after")
			Expect(list(ctx, store.DeliveryQuery{})).To(BeEmpty(), "those of a webhook that is gone are removed")
		})

		It("are claimed by one of twenty, a few of each webhook, and by another when the claim expires", func(ctx SpecContext) {
			telling(ctx, "r1", "r2", "r3")
			var mu sync.Mutex
			var claimers sync.WaitGroup
			got := map[string]int{}
			for range 20 {
				claimers.Go(func() {
					defer GinkgoRecover()
					for _, d := range claim(ctx, "a", nil) {
						mu.Lock()
						got[d.ID]++
						mu.Unlock()
					}
				})
			}
			claimers.Wait()
			Expect(got).To(HaveLen(3))
			for id, n := range got {
				Expect(n).To(Equal(1), id)
			}
			wait, pending, err := e.store.NextDelivery(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(pending).To(BeTrue())
			Expect(wait).To(Equal(time.Minute))
			e.clock.Step(time.Minute)
			Expect(claim(ctx, "b", map[string]int{"all": 2})).To(BeEmpty(), "two are under way")
			again := claim(ctx, "b", nil)
			Expect(again).To(HaveLen(2))
			lost := store.DeliveryEnd{ID: again[0].ID, Epoch: again[0].Epoch - 1, Status: store.DeliveryDelivered}
			Expect(e.store.FinishDelivery(ctx, lost)).To(MatchError(store.ErrDeliveryLost))
			Expect(again[0].Attempts).To(Equal(2))
			var told atomic.Bool
			stop := e.store.Subscribe(func(n store.Notification) {
				if n.Changed&store.ChangedDelivery != 0 {
					told.Store(true)
				}
			})
			defer stop()
			Expect(e.store.ReleaseDeliveries(ctx, "b")).To(Succeed())
			Eventually(told.Load).Should(BeTrue(), "others may take them at once")
			Expect(claim(ctx, "c", nil)[0].Attempts).To(Equal(2), "the attempt did not count")
		})

		It("are claimed of each namespace in turn, however many webhooks and deliveries one has", Label("K8S-12"), func(ctx SpecContext) {
			crowded, calm := e.threadIn(ctx, "crowded"), e.threadIn(ctx, "calm")
			all := []store.Webhook{{ID: "calm", Namespace: "calm", Name: "calm", Events: []string{store.WebhookRunEnded}}}
			for i := range 5 {
				id := fmt.Sprint("crowded-", i)
				all = append(all, store.Webhook{ID: id, Namespace: "crowded", Name: id, Events: []string{store.WebhookRunEnded}})
			}
			Expect(e.store.SetWebhooks(ctx, all)).To(Succeed())
			ended := func(thread string, runs int) {
				GinkgoHelper()
				for i := range runs {
					run := store.Run{ID: fmt.Sprint("r", i), Agent: "helper", Status: store.RunRunning}
					e.apply(ctx, thread, &store.PutRun{Run: run})
					run.Status = store.RunSucceeded
					e.apply(ctx, thread, &store.PutRun{Run: run})
				}
			}
			ended(crowded, 4)
			e.clock.Step(time.Second)
			ended(calm, 4)
			claimed := func(free, reserved int) (namespaces []string) {
				GinkgoHelper()
				got, err := e.store.ClaimDeliveries(ctx, "a", time.Minute, store.DeliveryCapacity{Free: free, Reserved: reserved, Each: 2})
				Expect(err).NotTo(HaveOccurred())
				for _, d := range got {
					namespaces = append(namespaces, d.Namespace)
				}
				return namespaces
			}
			Expect(claimed(4, 3)).To(Equal([]string{"crowded", "calm"}), "the last room is for namespaces of which nothing is under way")
			Expect(claimed(3, 3)).To(BeEmpty())
			Expect(claimed(1, 0)).To(Equal([]string{"crowded"}), "the oldest first, where as much is under way")
			Expect(claimed(1, 0)).To(Equal([]string{"calm"}), "which has fewer under way")
			Expect(claimed(100, 2)).To(HaveLen(12), "no more than two of each webhook, while there is room")
		})

		It("wait between attempts, are given up, redelivered and pruned", func(ctx SpecContext) {
			telling(ctx, "r")
			d := claim(ctx, "a", nil)[0]
			Expect(e.store.FinishDelivery(ctx, store.DeliveryEnd{ID: d.ID, Epoch: d.Epoch, Status: store.DeliveryPending, Error: "500", Code: 500, RetryAfter: time.Hour})).To(Succeed())
			Expect(claim(ctx, "a", nil)).To(BeEmpty())
			e.clock.Step(time.Hour)
			d = claim(ctx, "a", nil)[0]
			Expect(e.store.FinishDelivery(ctx, store.DeliveryEnd{ID: d.ID, Epoch: d.Epoch, Status: store.DeliveryDead, Error: "500", Code: 500})).To(Succeed())
			_, pending, err := e.store.NextDelivery(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(pending).To(BeFalse())
			Expect(list(ctx, store.DeliveryQuery{Status: store.DeliveryDead, Webhook: "all"})).To(ConsistOf(And(HaveField("Attempts", 2), HaveField("Code", 500), HaveField("EndedAt", e.now()))))
			_, err = e.store.Redeliver(ctx, "elsewhere", d.ID)
			Expect(err).To(MatchError(store.ErrNotFound), "it is of another namespace")
			again, err := e.store.Redeliver(ctx, "ns", d.ID)
			Expect(err).NotTo(HaveOccurred())
			Expect(again).To(And(HaveField("Status", store.DeliveryPending), HaveField("Attempts", 0)))
			d = claim(ctx, "a", nil)[0]
			Expect(e.store.FinishDelivery(ctx, store.DeliveryEnd{ID: d.ID, Epoch: d.Epoch, Status: store.DeliveryDelivered, Code: 204})).To(Succeed())
			e.clock.Step(time.Hour)
			Expect(e.store.PruneDeliveries(ctx, 2*time.Hour, 0)).To(BeZero())
			Expect(e.store.PruneDeliveries(ctx, 0, 2*time.Hour)).To(BeEquivalentTo(1))
		})

		It("are pruned while they wait for a webhook that is gone", func(ctx SpecContext) {
			telling(ctx, "r1", "r2", "r3")
			claim(ctx, "a", nil)
			// Another transaction that saw the webhook may write a delivery after the webhook was removed.
			db, err := e.backend.SQL()
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(db.Close)
			left, err := db.ExecContext(ctx, `UPDATE webhook_delivery SET webhook = 'removed' WHERE id IN (SELECT id FROM webhook_delivery ORDER BY id LIMIT 2)`)
			Expect(err).NotTo(HaveOccurred())
			Expect(left.RowsAffected()).To(BeEquivalentTo(2))
			Expect(e.store.PruneDeliveries(ctx, 0, 0)).To(BeEquivalentTo(2))
			Expect(list(ctx, store.DeliveryQuery{})).To(ConsistOf(HaveField("WebhookID", "all")))
			Expect(e.store.PruneDeliveries(ctx, 0, 0)).To(BeZero())
		})

		It("count no attempt that sent nothing", func(ctx SpecContext) {
			telling(ctx, "r")
			for range 3 {
				d := claim(ctx, "a", nil)[0]
				Expect(d.Attempts).To(Equal(1))
				Expect(e.store.FinishDelivery(ctx, store.DeliveryEnd{ID: d.ID, Epoch: d.Epoch, Status: store.DeliveryPending, Error: "no key", RetryAfter: time.Minute, NotTried: true})).To(Succeed())
				Expect(list(ctx, store.DeliveryQuery{})).To(ConsistOf(And(HaveField("Attempts", 0), HaveField("Error", "no key"))))
				Expect(claim(ctx, "a", nil)).To(BeEmpty())
				e.clock.Step(time.Minute)
			}
		})

		It("are listed in pages, and go with their webhook", func(ctx SpecContext) {
			telling(ctx, "r1", "r2", "r3")
			first := list(ctx, store.DeliveryQuery{Limit: 2})
			Expect(first).To(HaveLen(2))
			rest := list(ctx, store.DeliveryQuery{Before: &store.DeliveryCursor{CreatedAt: first[1].CreatedAt, ID: first[1].ID}})
			Expect(rest).To(HaveLen(1))
			Expect(first).NotTo(ContainElement(HaveField("ID", rest[0].ID)))
			Expect(e.store.SetWebhooks(ctx, nil)).To(Succeed())
			Expect(list(ctx, store.DeliveryQuery{})).To(BeEmpty())
		})
	})
}
