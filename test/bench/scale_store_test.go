package bench

import (
	"context"
	"fmt"
	"net/url"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/storetest/pgtest"
)

// What the store does for one thread, one firing or one search, with more of the others.
var _ = Describe("Scale of the store", Label("scale"), func() {
	AfterEach(func() { load() })

	for _, db := range plantables {
		It("ends firings among pending ones on "+db.name, func(ctx SpecContext) {
			g := grow(20, ends(ctx, db.open(ctx), 1_000), ends(ctx, db.open(ctx), 10_000))
			g.print("a firing, recorded, claimed and ended, "+db.name, 1_000, "; beside pending ones of other threads, half of them due")
			g = grow(20, takes(ctx, db.open(ctx), 1_000), takes(ctx, db.open(ctx), 10_000))
			g.print("the oldest firing, claimed and ended, "+db.name, 1_000, "; of so many that are due")
			for _, all := range []bool{true, false} {
				g = grow(5, looks(ctx, db.open(ctx), 100, all), looks(ctx, db.open(ctx), 1_000, all))
				g.print("a look for due firings, "+db.name, 100, map[bool]string{true: "; namespaces, each of which has five that are due", false: "; namespaces, in one of which one is due"}[all])
			}
		}, NodeTimeout(3*time.Minute))

		It("forks threads of many segments and files on "+db.name, func(ctx SpecContext) {
			s := db.open(ctx)
			g := grow(5, forks(ctx, s, chain(ctx, s, 10), 11), forks(ctx, s, chain(ctx, s, 100), 101))
			g.print("fork by depth, "+db.name, 10, "; segments, a row each")
			g = grow(5, forks(ctx, s, folder(ctx, s, 100), 1), forks(ctx, s, folder(ctx, s, 1_000), 1))
			g.print("fork by files, "+db.name, 100, "; a row each")
		}, NodeTimeout(3*time.Minute))

		It("purges threads beside what others have left to forks on "+db.name, func(ctx SpecContext) {
			g := grow(10, purges(ctx, db.open(ctx), 1_000), purges(ctx, db.open(ctx), 10_000))
			g.print("purge of a thread, "+db.name, 1_000, "; beside remnants of other threads that forks read")
		}, NodeTimeout(3*time.Minute))

		It("searches texts on "+db.name, func(ctx SpecContext) {
			few, many := texts(ctx, db.open(ctx), 10_000), texts(ctx, db.open(ctx), 100_000)
			for _, q := range []struct{ word, note string }{{"common", "; of which all match"}, {"rare", "; of which 10 match"}} {
				g := grow(1, finds(ctx, few, q.word), finds(ctx, many, q.word))
				g.print("text search, "+db.name, 10_000, q.note)
			}
		}, NodeTimeout(5*time.Minute))

		It("searches memories on "+db.name, func(ctx SpecContext) {
			s := db.open(ctx)
			few, many, beyond := remember(ctx, s, "few", 2_000), remember(ctx, s, "many", 20_000), remember(ctx, s, "beyond", 200_000)
			s.settled(ctx)
			g := grow(2, nearest(ctx, s, few), nearest(ctx, s, many))
			g.print("memory search, "+db.name, 2_000, "; vectors up to the bound: it compares the newest 20,000")
			g = grow(2, nearest(ctx, s, many), nearest(ctx, s, beyond))
			g.print("  above the bound, "+db.name, 20_000, "")
		}, NodeTimeout(5*time.Minute))

		It("reads statistics on "+db.name, func(ctx SpecContext) {
			few, many := populated(ctx, db.open(ctx), 10_000), populated(ctx, db.open(ctx), 100_000)
			g := grow(5, reads(ctx, few), reads(ctx, many))
			g.print("statistics, every 15 s, "+db.name, 10_000, "; threads, of which 100 have an item that waits")
			g = grow(20, counts(ctx, few), counts(ctx, many))
			g.print("  a step of a count, at most 15 ms of each 15 s, "+db.name, 10_000, "; SQLite counts rows, PostgreSQL estimates them, and both sum up file contents")
		}, NodeTimeout(5*time.Minute))
	}

	It("sweeps objects of the bucket", func(ctx SpecContext) {
		server, err := pgtest.Start(ctx, pgtest.Options{Settings: []string{"shared_preload_libraries=pg_stat_statements"}})
		Expect(err).NotTo(HaveOccurred(), "PostgreSQL's pg_stat_statements counts the statements of stores")
		DeferCleanup(func() { Expect(server.Stop()).To(Succeed()) })
		few, many := sweep(ctx, server, 1_000), sweep(ctx, server, 10_000)
		for i, what := range []string{"that files have", "that no file has"} {
			figure("sweep of an object "+what+", PostgreSQL", "%.3f statements with 1,000, %.3f with 10,000: %.2f times (goal 1.2); %s and %s for each: %.2f times; objects in the bucket",
				few[i].statements, many[i].statements, many[i].statements/few[i].statements, short(few[i].took), short(many[i].took), float64(many[i].took)/float64(few[i].took))
		}
	}, NodeTimeout(2*time.Minute))
})

// swept is what the sweep of one object costs.
type swept struct {
	statements float64
	took       time.Duration
}

// sweep sweeps n objects that files have, and n others, in pages as the manager does, and returns what each of them costs.
func sweep(ctx context.Context, server *pgtest.Server, n int) (out [2]swept) {
	GinkgoHelper()
	const page = 500
	name, err := server.NewDatabase(ctx, "")
	Expect(err).NotTo(HaveOccurred())
	r := &replicas{server: server, name: name}
	user := name + "_store"
	r.exec(ctx, "CREATE ROLE "+user+" SUPERUSER LOGIN")
	u, err := url.Parse(server.URL(name))
	Expect(err).NotTo(HaveOccurred())
	u.User = url.User(user)
	s := plantAt(ctx, u.String())
	id := newThread(ctx, s, "one")
	put := &store.PutFile{File: store.File{Path: "/f", MimeType: "text/plain", Digest: "d", Size: 1}, Object: "kept-", Uploaded: time.Now().UnixMicro()}
	Expect(s.Apply(ctx, id, nil, put)).To(Succeed())
	s.copies(ctx, "contents", "o.digest = 'd'", n, map[string]string{"digest": "o.digest || s.i", "object": "o.object || s.i"})
	s.settled(ctx)
	for i, prefix := range []string{"kept-", "left-"} {
		before := r.statements(ctx)[user]
		took := timed(func() {
			for from := 1; from <= n; from += page {
				var objects []string
				for k := range page {
					objects = append(objects, fmt.Sprint(prefix, from+k))
				}
				Expect(s.SweepObjects(ctx, objects, 0)).To(BeEmpty())
			}
		})
		statements := r.statements(ctx)[user] - before
		Expect(statements).To(BeNumerically(">", 0))
		out[i] = swept{float64(statements) / float64(n), took / time.Duration(n)}
	}
	return out
}

// firing returns a firing of a thread.
func firing(namespace, effect string, due int, at int64) store.Firing {
	return store.Firing{EffectID: effect, Due: int64(due), ThreadID: fmt.Sprintf("thread-%s-%d", effect, due), Namespace: namespace, Name: effect, Effect: "e", AvailableAt: at}
}

// pending records firings of n threads, which are available from a time on.
func pending(ctx context.Context, s store.Store, namespace, effect string, n int, at int64) {
	GinkgoHelper()
	d := store.DueRecord{Schedule: store.EffectSchedule{EffectID: effect, Namespace: namespace, Name: effect}}
	for due := range n {
		d.Firings = append(d.Firings, firing(namespace, effect, due, at))
	}
	Expect(s.RecordDue(ctx, d)).To(Succeed())
}

// ends is a firing from its record to its end. Half of the n others are due in another namespace, and half later in its own.
func ends(ctx context.Context, s *planted, n int) event {
	GinkgoHelper()
	pending(ctx, s, "busy", "due", n/2, 0)
	pending(ctx, s, "bench", "later", n/2, time.Now().Add(24*time.Hour).UnixMicro())
	s.settled(ctx)
	due := 0
	return always(func() {
		due++
		f := firing("bench", "one", due, 0)
		Expect(s.RecordFiring(ctx, f)).To(BeTrue())
		for seen := 0; seen < 2; { // PostgreSQL's clock is read again now and then
			found, err := s.DueFirings(ctx, "", 64)
			Expect(err).NotTo(HaveOccurred())
			seen = len(found.Due)
		}
		finish(ctx, s, map[string]int{"bench": 1}, f.EffectID)
	})
}

// looks is a look for firings that are due, as one that ends while others wait begins it. Each of n namespaces has five, of which all are due, or
// none but one of one namespace.
func looks(ctx context.Context, s *planted, n int, all bool) event {
	GinkgoHelper()
	at := time.Now().Add(24 * time.Hour).UnixMicro()
	if all {
		at = 0
	}
	for i := range n {
		name := fmt.Sprint("n-", i)
		pending(ctx, s, name, name, 5, at)
	}
	pending(ctx, s, "due", "due", 1, 0)
	s.settled(ctx)
	from := ""
	return always(func() {
		for found := 0; found == 0; { // PostgreSQL's clock is read again now and then
			d, err := s.DueFirings(ctx, from, 64)
			Expect(err).NotTo(HaveOccurred())
			from, found = d.From, len(d.Due)
		}
	})
}

// takes is the end of the oldest of n firings. As many are due afterwards, behind the others.
func takes(ctx context.Context, s *planted, n int) event {
	GinkgoHelper()
	pending(ctx, s, "busy", "due", n, 0)
	s.settled(ctx)
	return always(func() { finish(ctx, s, map[string]int{"busy": 1}, "due") })
}

// finish claims one firing, and records its end.
func finish(ctx context.Context, s store.Store, shares map[string]int, effect string) {
	GinkgoHelper()
	claimed, err := s.ClaimFirings(ctx, "bench", time.Hour, shares)
	Expect(err).NotTo(HaveOccurred())
	Expect(claimed).To(HaveLen(1))
	Expect(claimed[0].EffectID).To(Equal(effect))
	Expect(s.FinishFiring(ctx, store.FiringEnd{Key: claimed[0].Key(), Namespace: claimed[0].Namespace, Epoch: claimed[0].Epoch, Status: store.FiringSucceeded})).To(Succeed())
}

// forked is how many forks there are, for their names.
var forked int

// forkOf makes a fork of all that a thread has.
func forkOf(ctx context.Context, s store.Store, origin string, messages int64) string {
	GinkgoHelper()
	forked++
	op := &store.Fork{Origin: origin, Newest: true}
	f, _, err := s.CreateThread(ctx, store.Thread{ID: fmt.Sprint("fork-", forked), Namespace: "bench", Agent: "a"}, op)
	Expect(err).NotTo(HaveOccurred())
	Expect(op.Messages).To(Equal(messages))
	return f.ID
}

func forks(ctx context.Context, s store.Store, origin string, messages int64) event {
	return always(func() { forkOf(ctx, s, origin, messages) })
}

// chain makes a thread that has inherited from so many threads, a message of each, and has one of its own.
func chain(ctx context.Context, s store.Store, depth int) string {
	GinkgoHelper()
	id := newThread(ctx, s, fmt.Sprint("chain-", depth))
	say(ctx, s, id, "first")
	for i := range depth {
		id = forkOf(ctx, s, id, int64(i+1))
		say(ctx, s, id, "next")
	}
	return id
}

// folder makes a thread of one message and n files.
func folder(ctx context.Context, s store.Store, n int) string {
	GinkgoHelper()
	id := newThread(ctx, s, fmt.Sprint("files-", n))
	say(ctx, s, id, "files")
	ops := make([]store.Op, n)
	for i := range ops {
		op := &store.PutFile{File: store.File{Path: fmt.Sprintf("/file-%d", i), MimeType: "text/plain", Digest: "d", Size: 1}}
		if i == 0 {
			op.Object, op.Uploaded = "objects/"+id, time.Now().UnixMicro()
		}
		ops[i] = op
	}
	Expect(s.Apply(ctx, id, nil, ops...)).To(Succeed())
	return id
}

// purges is the purge of a thread with a message, beside n remnants that a fork reads.
func purges(ctx context.Context, s *planted, n int) event {
	GinkgoHelper()
	origin := conversation(ctx, s, "origin", 2)
	fork := forkOf(ctx, s, origin, 2)
	Expect(s.Apply(ctx, origin, nil, &store.Truncate{Index: 0})).To(Succeed())
	s.copies(ctx, "thread", "o.namespace = ''", n-1, map[string]string{"key": fmt.Sprintf("o.key + %d + s.i", apart), "id": "o.id || '-' || s.i"})
	s.copies(ctx, "message_segment", fmt.Sprintf("o.source IN (SELECT key FROM thread WHERE namespace = '' AND key < %d)", apart), n-1,
		map[string]string{"lo": fmt.Sprintf("o.lo + %d + s.i", apart), "hi": fmt.Sprintf("o.lo + %d + s.i + 1", apart), "source": fmt.Sprintf("o.source + %d + s.i", apart)})
	s.settled(ctx)
	Expect(s.Thread(ctx, fork)).NotTo(BeNil())
	made, purged := 0, 0
	return event{
		prepare: func(calls int) {
			for range calls {
				made++
				conversation(ctx, s, fmt.Sprint("purged-", made), 1)
			}
		},
		do: func() {
			purged++
			_, err := s.PurgeThread(ctx, fmt.Sprint("purged-", purged))
			Expect(err).NotTo(HaveOccurred())
		},
	}
}

// rare is how many messages have the rare word.
const rare = 10

// texts plants n messages that have a word in common, in one thread of a namespace of its own, and a few with another word.
func texts(ctx context.Context, s *planted, n int) *planted {
	GinkgoHelper()
	id := newThread(ctx, s, "texts")
	const own = 1_000
	var ops []store.Op
	for i := range own {
		content := fmt.Sprintf("A common message that somebody has written, with number%d and the usual words of a conversation about orders and invoices.", i)
		if i < rare {
			content += " It is rare."
		}
		ops = append(ops, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: &content}})
	}
	Expect(s.Apply(ctx, id, nil, ops...)).To(Succeed())
	s.copies(ctx, "message", "o.content NOT LIKE '%rare%'", n/own, behind(map[string]string{"id": "o.id || '-' || s.i"}))
	s.settled(ctx)
	Expect(s.IndexMessages(ctx)).To(Succeed())
	return s
}

func finds(ctx context.Context, s store.Store, word string) event {
	return always(func() {
		hits, _, err := s.Search(ctx, store.SearchQuery{Text: word, Limit: rare})
		Expect(err).NotTo(HaveOccurred())
		Expect(hits).To(HaveLen(rare))
	})
}

// dimensions of the vectors here. The vectors of models have more, which costs as much for each that is compared, however many there are.
const dimensions = 64

func vector(i int) []float32 {
	v := make([]float32, dimensions)
	for d := range v {
		v[d] = float32((i*31+d*17)%101) - 50
	}
	return v
}

// remember plants n embedded messages of an agent. Those beyond the newest 20,000 are vectors only, which no search looks at.
func remember(ctx context.Context, s *planted, agent string, n int) string {
	GinkgoHelper()
	id := newThread(ctx, s, agent)
	const own, at = 2_000, 500
	for from := 0; from < own; from += at {
		var ops []store.Op
		for i := from; i < from+at; i++ {
			message, content := fmt.Sprintf("%s-%d", agent, i), fmt.Sprint("message ", i)
			ops = append(ops, &store.AppendMessage{Message: &store.Message{ID: message, Role: store.RoleUser, Content: &content}},
				&store.PutEmbedding{MessageID: message, Content: content, Agent: agent, Space: "s", Vector: vector(i)})
		}
		Expect(s.Apply(ctx, id, nil, ops...)).To(Succeed())
	}
	of := "o.thread = (SELECT key FROM thread WHERE id = '" + id + "')"
	if some := min(n, 20_000)/own - 1; some > 0 {
		s.copies(ctx, "message", of, some, behind(map[string]string{"id": "o.id || '-' || s.i"}))
	}
	if all := n/own - 1; all > 0 {
		s.copies(ctx, "embedding", of, all, behind(map[string]string{"created_at": "o.created_at - CAST(s.i AS BIGINT) * 1000000000"}))
	}
	return agent
}

func nearest(ctx context.Context, s store.Store, agent string) event {
	return always(func() {
		found, err := s.Nearest(ctx, store.NearestQuery{Namespace: "bench", Agent: agent, Space: "s", Vector: vector(1), Limit: 10})
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(HaveLen(10))
	})
}

// populated plants n threads, each with a message, a run and a value. An item waits for some of them.
func populated(ctx context.Context, s *planted, n int) *planted {
	GinkgoHelper()
	const waiting = 100
	many(ctx, s, "bench", waiting)
	for i := range waiting {
		Expect(s.Apply(ctx, threadID("bench", i), nil, &store.Enqueue{Item: store.InboxItem{Key: "k", Kind: store.InboxMessage}})).To(Succeed())
	}
	id := newThread(ctx, s, "like")
	say(ctx, s, id, "hello")
	Expect(s.Apply(ctx, id, nil, &store.PutValue{Key: "k", Value: []byte(`1`)}, &store.PutRun{Run: store.Run{ID: "run", ThreadID: id, Agent: "a", Status: store.RunSucceeded}})).To(Succeed())
	put := &store.PutFile{File: store.File{Path: "/f", MimeType: "text/plain", Digest: "d", Size: 1}, Object: "o", Uploaded: time.Now().UnixMicro()}
	Expect(s.Apply(ctx, id, nil, put)).To(Succeed())
	key := fmt.Sprintf("o.thread + %d + s.i", apart)
	of := "o.thread = (SELECT key FROM thread WHERE id = 'like')"
	s.copies(ctx, "thread", "o.id = 'like'", n, map[string]string{"key": fmt.Sprintf("o.key + %d + s.i", apart), "id": "o.id || '-' || s.i", "root_id": "o.id || '-' || s.i"})
	for _, table := range []string{"thread_head", "log", "run", "kv", "file"} {
		s.copies(ctx, table, of, n, map[string]string{"thread": key})
	}
	s.copies(ctx, "message", of, n, map[string]string{"key": "", "thread": key})
	s.copies(ctx, "contents", "o.digest = 'd'", n, map[string]string{"digest": "o.digest || s.i", "object": "o.object || s.i"})
	s.settled(ctx)
	return s
}

func reads(ctx context.Context, s store.Store) event {
	return always(func() {
		found, err := s.Statistics(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(found.InboxItems).To(BeEquivalentTo(100))
	})
}

// counts does a step of a count, which begins anew after its last one.
func counts(ctx context.Context, s store.Store) event {
	count := s.Count()
	return always(func() {
		done, err := count.Step(ctx)
		Expect(err).NotTo(HaveOccurred())
		if done {
			Expect(count.Rows()["thread"]).To(BeNumerically(">=", 10_000))
			Expect(count.ContentsBytes()).To(BeNumerically(">=", 10_000))
			count = s.Count()
		}
	})
}
