package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeMemory(e *env) {
	threadOf := func(ctx context.Context, namespace, user string) string {
		GinkgoHelper()
		e.made++
		t := store.Thread{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", e.made), Namespace: namespace, Name: fmt.Sprint("thread-", e.made), Agent: "helper", UserID: user}
		_, _, err := e.store.CreateThread(ctx, t)
		Expect(err).NotTo(HaveOccurred())
		return t.ID
	}
	// embed stores a vector for a message.
	embed := func(ctx context.Context, thread string, m *store.Message, angle float64) bool {
		GinkgoHelper()
		op := &store.PutEmbedding{MessageID: m.ID, Content: *m.Content, Agent: "helper", Space: "s", Vector: []float32{float32(3 * math.Cos(angle)), float32(3 * math.Sin(angle))}}
		e.apply(ctx, thread, op)
		return op.Kept
	}
	query := func(o store.NearestQuery) store.NearestQuery {
		q := store.NearestQuery{Namespace: "default", Agent: "helper", Space: "s", Vector: []float32{7, 0}, Since: o.Since, Until: o.Until, Limit: o.Limit, UserID: o.UserID}
		if o.Space != "" {
			q.Space = o.Space
		}
		if o.Agent != "" {
			q.Agent = o.Agent
		}
		if o.Namespace != "" {
			q.Namespace = o.Namespace
		}
		if o.Vector != nil {
			q.Vector = o.Vector
		}
		return q
	}
	found := func(ctx context.Context, o store.NearestQuery) []string {
		GinkgoHelper()
		hits, err := e.store.Nearest(ctx, query(o))
		Expect(err).NotTo(HaveOccurred())
		out := []string{}
		for _, h := range hits {
			out = append(out, fmt.Sprintf("%s %.2f", *h.Message.Content, h.Score))
		}
		return out
	}
	Describe("memory", Label("RUN-08"), func() {
		It("returns the messages with the nearest vectors, nearest first, across threads", func(ctx SpecContext) {
			a, b := threadOf(ctx, "default", ""), threadOf(ctx, "default", "")
			was := e.info(ctx, a)
			for i, angle := range []float64{0.5, 3, 0.1, 1.5, 0.2} {
				id := []string{a, b}[i%2]
				e.clock.Step(time.Second)
				Expect(embed(ctx, id, e.say(ctx, id, fmt.Sprint("m", i)), angle)).To(BeTrue())
			}
			Expect(e.info(ctx, a).Version).To(Equal(was.Version+3), "a vector does not change the thread")
			Expect(found(ctx, store.NearestQuery{Limit: 3})).To(Equal([]string{"m2 1.00", "m4 0.98", "m0 0.88"}))
			Expect(found(ctx, store.NearestQuery{})).To(HaveLen(5))
			Expect(found(ctx, store.NearestQuery{Since: e.now() - time.Second.Microseconds()})).To(Equal([]string{"m4 0.98", "m3 0.07"}))
			Expect(found(ctx, store.NearestQuery{Until: e.now() - 3*time.Second.Microseconds()})).To(Equal([]string{"m0 0.88"}))
			hits, err := e.store.Nearest(ctx, query(store.NearestQuery{Limit: 1}))
			Expect(err).NotTo(HaveOccurred())
			Expect(hits[0]).To(And(HaveField("ThreadID", a), HaveField("Name", "thread-1"), HaveField("Message.Role", store.RoleUser)))
			e.reopen()
			Expect(found(ctx, store.NearestQuery{Limit: 1})).To(Equal([]string{"m2 1.00"}))
		})

		It("keeps namespaces, agents, users, spaces and vector lengths apart", func(ctx SpecContext) {
			for _, place := range [][2]string{{"default", ""}, {"default", "ada"}, {"default", "bob"}, {"other", "ada"}} {
				id := threadOf(ctx, place[0], place[1])
				Expect(embed(ctx, id, e.say(ctx, id, place[0]+"/"+place[1]), 0)).To(BeTrue())
			}
			Expect(found(ctx, store.NearestQuery{})).To(Equal([]string{"default/ 1.00"}))
			Expect(found(ctx, store.NearestQuery{UserID: "ada"})).To(Equal([]string{"default/ada 1.00"}))
			Expect(found(ctx, store.NearestQuery{Namespace: "other", UserID: "ada"})).To(Equal([]string{"other/ada 1.00"}))
			Expect(found(ctx, store.NearestQuery{Agent: "another"})).To(BeEmpty())
			Expect(found(ctx, store.NearestQuery{Space: "s2"})).To(BeEmpty())
			Expect(found(ctx, store.NearestQuery{Vector: []float32{1, 0, 0}})).To(BeEmpty())
			Expect(found(ctx, store.NearestQuery{Vector: []float32{0, 0}})).To(BeEmpty())
		})

		It("keeps the last vector of each message, and none of an earlier text", Label("RUN-07"), func(ctx SpecContext) {
			id := threadOf(ctx, "default", "")
			m := e.say(ctx, id, "one")
			Expect(embed(ctx, id, m, 1)).To(BeTrue())
			Expect(embed(ctx, id, m, 0)).To(BeTrue())
			Expect(found(ctx, store.NearestQuery{})).To(Equal([]string{"one 1.00"}))
			Expect(embed(ctx, id, &store.Message{ID: m.ID, Content: ptr("what it said before")}, 0)).To(BeFalse())
			Expect(embed(ctx, id, &store.Message{ID: "gone", Content: ptr("one")}, 0)).To(BeFalse())
			op := &store.PutEmbedding{MessageID: m.ID, Content: "one", Agent: "helper", Space: "s", Vector: []float32{0, 0}}
			e.apply(ctx, id, op)
			Expect(op.Kept).To(BeFalse())
			op = &store.PutEmbedding{MessageID: m.ID, Content: "one", Agent: "helper", Space: "s2", Vector: []float32{0, 1, 1}}
			e.apply(ctx, id, op)
			Expect(found(ctx, store.NearestQuery{})).To(BeEmpty(), "it has a vector of another model now")
			Expect(found(ctx, store.NearestQuery{Space: "s2", Vector: []float32{0, 5, 5}})).To(Equal([]string{"one 1.00"}))
		})

		It("forgets messages that are edited, silenced, deleted, truncated, destroyed or purged", func(ctx SpecContext) {
			id := threadOf(ctx, "default", "")
			var ms []*store.Message
			for _, text := range []string{"kept", "edited", "silenced", "deleted", "tagged", "cut"} {
				m := e.say(ctx, id, text)
				Expect(embed(ctx, id, m, 0)).To(BeTrue())
				ms = append(ms, m)
			}
			e.apply(ctx, id, &store.UpdateMessage{ID: ms[1].ID, Content: ptr("new text")}, &store.UpdateMessage{ID: ms[2].ID, Silent: ptr(true)},
				&store.DeleteMessage{ID: ms[3].ID}, &store.UpdateMessage{ID: ms[4].ID, Metadata: map[string]any{"k": "v"}})
			Expect(found(ctx, store.NearestQuery{})).To(ConsistOf("kept 1.00", "tagged 1.00", "cut 1.00"))
			Expect(embed(ctx, id, &store.Message{ID: ms[2].ID, Content: ms[2].Content}, 0)).To(BeFalse(), "it is silent")
			e.apply(ctx, id, &store.Truncate{MessageID: ms[4].ID})
			Expect(found(ctx, store.NearestQuery{})).To(ConsistOf("kept 1.00", "tagged 1.00"))
			e.apply(ctx, id, &store.Destroy{Reason: store.DestroyedExplicit})
			Expect(found(ctx, store.NearestQuery{})).To(BeEmpty())

			Expect(embed(ctx, id, e.say(ctx, id, "again"), 0)).To(BeTrue())
			e.apply(ctx, id, &store.Retain{})
			Expect(found(ctx, store.NearestQuery{})).To(BeEmpty(), "no object grants access to it any more")
			e.apply(ctx, id, &store.Adopt{ObjectUID: "uid", Name: "adopted", Agent: "helper"})
			Expect(found(ctx, store.NearestQuery{})).To(Equal([]string{"again 1.00"}))
			_, err := e.store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(found(ctx, store.NearestQuery{})).To(BeEmpty())
		})

		It("does not return messages that only forks of a deleted thread keep", func(ctx SpecContext) {
			id := threadOf(ctx, "default", "")
			m := e.say(ctx, id, "shared")
			Expect(embed(ctx, id, m, 0)).To(BeTrue())
			fork := "00000000-0000-4000-9000-000000000001"
			_, _, err := e.store.CreateThread(ctx, store.Thread{ID: fork, Namespace: "default", Name: "fork", Agent: "helper"}, &store.Fork{Origin: id, Index: 0})
			Expect(err).NotTo(HaveOccurred())
			Expect(found(ctx, store.NearestQuery{})).To(Equal([]string{"shared 1.00"}), "once, under the thread that it comes from")
			e.apply(ctx, fork, &store.UpdateMessage{ID: m.ID, Content: ptr("the fork's own text")})
			Expect(found(ctx, store.NearestQuery{})).To(Equal([]string{"shared 1.00"}))
			_, err = e.store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(found(ctx, store.NearestQuery{})).To(BeEmpty())
		})
	})
}

func describeTaskUsage(e *env) {
	Describe("usage records", Label("RUN-07"), func() {
		It("cover each run, and each task once, and the sums include both", func(ctx SpecContext) {
			id, other := e.thread(ctx), e.thread(ctx)
			for _, run := range []string{"r1", "r2"} {
				e.clock.Step(time.Second)
				r := store.Run{ID: run, Agent: "helper", Status: store.RunRunning, StartedAt: e.now(), Steps: 2}
				e.apply(ctx, id, &store.PutRun{Run: r})
				r.Status, r.Usage = store.RunSucceeded, json.RawMessage(`{"inputTokens":10,"outputTokens":3,"cachedTokens":4,"cost":0.5,"models":["m","n"]}`)
				r.EndedAt = r.StartedAt + 2_000_000
				e.apply(ctx, id, &store.PutRun{Run: r})
			}
			e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r3", Agent: "helper", Status: store.RunRunning}})
			e.clock.Step(time.Minute)
			was := e.info(ctx, id)
			op := &store.AddTaskUsage{RunID: "r1", Task: "title", Agent: "helper", Usage: store.RunUsage{InputTokens: 100, OutputTokens: 5, Cost: 0.25, Models: []string{"small"}}}
			e.apply(ctx, id, op)
			Expect(op.Added).To(BeTrue())
			e.apply(ctx, id, op)
			Expect(op.Added).To(BeFalse(), "it is there")
			Expect(e.info(ctx, id)).To(Equal(was), "usage does not change the thread")

			records, err := e.store.UsageRecords(ctx, id, 0, 0)
			Expect(err).NotTo(HaveOccurred())
			run := store.RunUsage{InputTokens: 10, OutputTokens: 3, CachedTokens: 4, Cost: 0.5, Models: []string{"m", "n"}}
			first := epoch.Add(time.Second).UnixMicro()
			Expect(records).To(Equal([]store.UsageRecord{
				{RunID: "r1", Task: "title", Agent: "helper", Usage: op.Usage, StartedAt: e.now(), EndedAt: e.now()},
				{RunID: "r2", Agent: "helper", Status: store.RunSucceeded, Turns: 2, Usage: run, StartedAt: first + 1_000_000, EndedAt: first + 3_000_000},
				{RunID: "r1", Agent: "helper", Status: store.RunSucceeded, Turns: 2, Usage: run, StartedAt: first, EndedAt: first + 2_000_000},
			}))
			Expect(e.store.UsageRecords(ctx, id, 1, 1)).To(Equal(records[1:2]))
			Expect(e.store.UsageRecords(ctx, other, 0, 0)).To(BeEmpty())
			sum, err := e.store.Usage(ctx, store.UsageQuery{ThreadID: id})
			Expect(err).NotTo(HaveOccurred())
			Expect(*sum).To(Equal(store.UsageSum{Runs: 2, Turns: 4, InputTokens: 120, OutputTokens: 11, CacheReadTokens: 8, Cost: 1.25, DurationMs: 4000, Threads: 1}))
			_, err = e.store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.UsageRecords(ctx, id, 0, 0)).To(BeEmpty())
			sum, err = e.store.Usage(ctx, store.UsageQuery{Namespace: "default"})
			Expect(err).NotTo(HaveOccurred())
			Expect(sum.InputTokens).To(BeEquivalentTo(120), "the totals keep the usage of a purged thread")
		})

		It("of a title are stored with it, and only an untitled thread accepts one", func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, &store.UpdateThread{Title: ptr("Late orders of May"), OnlyUntitled: true})
			e.apply(ctx, id, &store.UpdateThread{Title: ptr("Something else"), OnlyUntitled: true})
			Expect(e.info(ctx, id).Title).To(Equal("Late orders of May"))
		})
	})
}
