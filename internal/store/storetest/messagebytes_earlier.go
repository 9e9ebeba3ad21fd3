package storetest

import (
	"context"
	"database/sql"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// earlierWriter writes to a database as an earlier release does, which does not count the bytes of messages.
type earlierWriter struct {
	ctx context.Context
	db  *sql.DB
}

func (w earlierWriter) exec(format string, args ...any) {
	GinkgoHelper()
	_, err := w.db.ExecContext(w.ctx, fmt.Sprintf(format, args...))
	Expect(err).NotTo(HaveOccurred(), format)
}

// thread makes a thread. The namespace of a remnant, which a fork reads, is empty.
func (w earlierWriter) thread(key int, namespace string) {
	GinkgoHelper()
	w.exec(`INSERT INTO thread (key, id, namespace, name, agent, user_id, task_id, title, created_at, parent_id, reference, root_id, depth, terminated_at, terminated_reason, registry_status)
		VALUES (%d, 'old-%d', '%s', 'n', 'a', '', '', '', 5, '', '', '', 0, 0, '', '')`, key, key, namespace)
}

func (w earlierWriter) message(key, seq int, content string) {
	GinkgoHelper()
	w.exec(`INSERT INTO message (thread, seq, id, role, silent, depth, status, created_at, run_id, content, rest)
		VALUES (%d, %d, 'm-%d-%d', 'user', 0, 0, 'completed', 5, '', '%s', '{"name":"ä"}')`, key, seq, key, seq, content)
}

// describeOldMessages checks that messages of an earlier release are counted, in the database itself.
func describeOldMessages(fresh func(ctx context.Context) Migrating) {
	It("counts the bytes of messages that an earlier release has written, and of those that it writes and removes meanwhile", Label("K8S-11", "K8S-10"), func(ctx SpecContext) {
		m := fresh(ctx)
		_, err := provider(m).UpTo(ctx, 45)
		Expect(err).NotTo(HaveOccurred())
		w := earlierWriter{ctx, m.DB}
		const threads = 70 // more than one transaction counts
		for key := 1; key <= threads; key++ {
			w.thread(key, "team")
			for _, seq := range []int{1, 511, 512, 3000} {
				w.message(key, seq, "text")
			}
		}
		w.thread(threads+1, "")
		w.message(threads+1, 7, "left")
		w.exec(`INSERT INTO message_segment (thread, lo, hi, source) VALUES (1, 0, 7, %d)`, threads+1)
		_, err = provider(m).Up(ctx)
		Expect(err).NotTo(HaveOccurred())

		By("writing as an earlier release does, which knows nothing of the count")
		w.message(1, 3001, "later")
		w.exec(`UPDATE message SET content = 'longer text' WHERE thread = 1 AND seq = 1`)
		w.exec(`UPDATE message SET content = NULL WHERE thread = 2 AND seq = 511`)
		w.exec(`DELETE FROM message WHERE thread = 3 AND seq > 511`)
		w.thread(threads+2, "team")
		w.message(threads+2, 1, "new")
		w.thread(threads+3, "")
		w.exec(`UPDATE message SET thread = %d WHERE thread = 6 AND seq > 1`, threads+3)
		w.exec(`DELETE FROM message WHERE thread IN (8, 9)`)
		w.exec(`DELETE FROM thread WHERE key = 8`)
		s, err := m.Open()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		check := func() {
			GinkgoHelper()
			var stored int64
			Expect(m.DB.QueryRowContext(ctx, storedBytes).Scan(&stored)).To(Succeed())
			use, err := s.QuotaUse(ctx, "team")
			Expect(err).NotTo(HaveOccurred())
			Expect(use[store.QuotaMessageBytes]).To(Equal(stored))
		}
		use, err := s.QuotaUse(ctx, "team")
		Expect(err).NotTo(HaveOccurred())
		Expect(use[store.QuotaMessageBytes]).To(BeNumerically(">=", 0), "most are not counted yet")
		Expect(s.SweepQuotas(ctx)).To(Succeed())
		check()
		w.exec(`DELETE FROM message WHERE thread = %d`, threads+1)
		w.exec(`UPDATE message SET content = 'x' WHERE thread < 20`)
		check()
		Expect(s.SweepQuotas(ctx)).To(Succeed())
		check()
		Expect(m.DB.QueryRowContext(ctx, `SELECT thread FROM message_usage_fill`).Scan(new(int64))).To(MatchError(sql.ErrNoRows), "nothing is left to count")
		Expect(m.DB.Close()).To(Succeed())
	})

	It("counts the messages of a restore that an earlier release has finished", Label("K8S-11", "K8S-10"), func(ctx SpecContext) {
		m := fresh(ctx)
		_, err := provider(m).Up(ctx)
		Expect(err).NotTo(HaveOccurred())
		w := earlierWriter{ctx, m.DB}
		for key := range 3 { // one has a fork of another one, which is gone
			w.thread(key+1, "restore/backup/team")
			w.message(key+1, 1, "text")
			w.message(key+1, 1000, "text")
		}
		w.thread(4, "restore/another/team")
		w.message(4, 1, "text")
		s, err := m.Open()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		has := func(messages int) {
			GinkgoHelper()
			Expect(s.SweepQuotas(ctx)).To(Succeed())
			Expect(s.QuotaUse(ctx, "team")).To(HaveKeyWithValue(store.QuotaMessageBytes, int64(messages*len(`text{"name":"ä"}`))))
		}
		has(0)

		By("showing the threads, and writing to them")
		w.exec(`UPDATE thread SET namespace = '' WHERE key = 3`)
		w.exec(`UPDATE thread SET namespace = 'team' WHERE key < 3`)
		w.message(1, 2, "text")
		w.message(1, 3000, "text")
		has(8)
		w.exec(`DELETE FROM message WHERE seq = 1`)
		has(5)
		w.exec(`UPDATE thread SET namespace = 'team' WHERE key = 4`)
		w.message(4, 2, "text")
		has(6)
		Expect(m.DB.Close()).To(Succeed())
	})
}
