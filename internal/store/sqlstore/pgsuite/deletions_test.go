package pgsuite

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
)

// countRows makes the database count the rows that each of its transactions writes in the tables of conversations.
const countRows = `
CREATE TABLE written (xid BIGINT NOT NULL, rows BIGINT NOT NULL);
CREATE FUNCTION count_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO written SELECT pg_current_xact_id()::text::bigint, count(*) FROM changed;
	RETURN NULL;
END $$;
DO $$
DECLARE name text;
BEGIN
	FOREACH name IN ARRAY ARRAY['message','log','inbox','inbox_key','run','kv','file','contents','effect_firing','message_block','message_segment',
			'relationship','idempotency','embedding','task_usage','thread_state','thread_head','child_task'] LOOP
		EXECUTE format('CREATE TRIGGER count_deleted AFTER DELETE ON %I REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_rows()', name);
		EXECUTE format('CREATE TRIGGER count_inserted AFTER INSERT ON %I REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_rows()', name);
		EXECUTE format('CREATE TRIGGER count_updated AFTER UPDATE ON %I REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_rows()', name);
	END LOOP;
END $$`

var _ = Describe("A transaction that removes a conversation", Label("THR-06", "THR-07", "THR-09", "MSG-11"), func() {
	const size, slice = 1000, 100

	It("writes few rows, however large the conversation is", func(ctx SpecContext) {
		was := messages.Slice
		messages.Slice = slice
		DeferCleanup(func() { messages.Slice = was })
		d := newDatabase(ctx)
		s, err := d.Open(nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })

		fill := func(id string, origin string) {
			GinkgoHelper()
			var first []store.Op
			if origin != "" {
				first = append(first, &store.Fork{Origin: origin, Newest: true})
			}
			_, _, err := s.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a"}, first...)
			Expect(err).NotTo(HaveOccurred())
			var ops []store.Op
			for i := range size {
				name := fmt.Sprintf("%s-%d", id, i)
				ops = append(ops, text(name),
					&store.PutEmbedding{MessageID: name, Content: name, Agent: "a", Space: "s", Vector: []float32{1}},
					&store.PutValue{Key: name, Value: []byte(`1`)},
					&store.PutFile{File: store.File{Path: "/" + name, Digest: name, Size: 1}, Object: "o-" + name, Uploaded: 1 << 60},
					&store.Enqueue{Item: store.InboxItem{Key: name, Kind: store.InboxResume}})
			}
			Expect(s.Apply(ctx, id, nil, ops...)).To(Succeed())
		}
		fill("destroyed", "")
		fill("truncated", "")
		fill("purged", "")
		fill("fork", "purged")
		fill("second", "truncated")
		fill("expired", "")
		Expect(s.Apply(ctx, "fork", nil, text("one more"))).To(Succeed())
		Expect(s.Apply(ctx, "expired", nil, &store.Dequeue{Seqs: seqs(ctx, s, "expired")}, &store.SetIdleExpiry{Expiry: 1})).To(Succeed())

		db, err := pgx.Connect(ctx, d.url)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		_, err = db.Exec(ctx, countRows)
		Expect(err).NotTo(HaveOccurred())

		most := func() (rows int64) {
			GinkgoHelper()
			Expect(db.QueryRow(ctx, `SELECT COALESCE(max(n), 0) FROM (SELECT sum(rows) AS n FROM written GROUP BY xid) x`).Scan(&rows)).To(Succeed())
			_, err := db.Exec(ctx, `TRUNCATE written`)
			Expect(err).NotTo(HaveOccurred())
			return rows
		}
		// A slice removes a message with its vector and writes two log entries. The rest is constant.
		const few = 6*slice + 100
		Expect(s.Apply(ctx, "destroyed", nil, &store.Dequeue{Seqs: seqs(ctx, s, "destroyed")})).To(Succeed())
		most()
		Expect(s.Apply(ctx, "destroyed", nil, &store.Destroy{Reason: store.DestroyedExplicit})).To(Succeed())
		Expect(most()).To(And(BeNumerically(">", slice), BeNumerically("<", few)), "destroy")
		op := &store.Destroy{Reason: store.DestroyedExpired, IfExpired: true}
		Eventually(ctx, func() bool {
			Expect(s.Apply(ctx, "expired", nil, op)).To(Succeed())
			return op.Done
		}).Should(BeTrue())
		Expect(most()).To(And(BeNumerically(">", slice), BeNumerically("<", few)), "expiry")
		Expect(s.Apply(ctx, "truncated", nil, &store.Truncate{Index: 2})).To(Succeed())
		Expect(most()).To(And(BeNumerically(">", slice), BeNumerically("<", few)), "truncate, with a fork that reads the messages")
		Expect(s.Apply(ctx, "fork", nil, &store.Truncate{Index: 2})).To(Succeed())
		Expect(most()).To(And(BeNumerically(">", slice), BeNumerically("<", few)), "truncate of inherited messages")
		freed, err := s.PurgeThread(ctx, "purged")
		Expect(err).NotTo(HaveOccurred())
		Expect(freed).To(BeEmpty(), "the fork has the files")
		Expect(most()).To(And(BeNumerically(">", slice), BeNumerically("<", few)), "purge")
		freed, err = s.PurgeThread(ctx, "fork")
		Expect(err).NotTo(HaveOccurred())
		Expect(freed).To(HaveLen(2 * size))
		Expect(most()).To(And(BeNumerically(">", slice), BeNumerically("<", few)), "purge with files")
	})
})

// seqs returns what waits in the inbox of a thread.
func seqs(ctx context.Context, s store.Store, id string) (seqs []int64) {
	GinkgoHelper()
	items, err := s.Inbox(ctx, id)
	Expect(err).NotTo(HaveOccurred())
	for _, item := range items {
		seqs = append(seqs, item.Seq)
	}
	return seqs
}
