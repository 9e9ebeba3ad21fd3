package pgsuite

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
)

var _ = Describe("The locks of threads and of namespaces with quotas", Label("K8S-11", "K8S-05"), func() {
	// open opens a store that has one writer, so that more transactions share a commit.
	open := func(ctx context.Context, url string) store.Store {
		GinkgoHelper()
		s, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: url, Writers: 1})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		s.LimitNamespaces(func(string) store.Quotas {
			much := store.QuotaLimit{Hard: 1 << 40}
			return store.Quotas{store.QuotaThreads: much, store.QuotaBytes: much, store.QuotaMessageBytes: much, store.QuotaRunningThreads: much}
		})
		return s
	}
	create := func(ctx context.Context, s store.Store, id, namespace string, ops ...store.Op) error {
		_, _, err := s.CreateThread(ctx, store.Thread{ID: id, Namespace: namespace, Agent: "a"}, ops...)
		return err
	}
	bounded := func(id string) *store.AppendMessage {
		op := text(id)
		op.Bounded = true
		return op
	}
	to := func(id, thread string) *store.AppendMessage {
		op := text(id)
		op.To = thread
		return op
	}

	DescribeTable("are taken in one order: no transaction that has locked a namespace waits for a thread", func(ctx SpecContext, held string, write func(ctx context.Context, s store.Store) error) {
		d := newDatabase(ctx)
		s := open(ctx, d.url)
		for _, id := range []string{"first", "last"} {
			Expect(create(ctx, s, id, "team", text("m"))).To(Succeed())
		}
		Expect(create(ctx, s, "reader", "team", &store.Fork{Origin: "first", Newest: true})).To(Succeed())

		db, err := pgx.Connect(ctx, d.url)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		other, err := db.Begin(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, err = other.Exec(ctx, `SELECT FROM thread_head WHERE thread = (SELECT key FROM thread WHERE id = $1) FOR UPDATE`, held)
		Expect(err).NotTo(HaveOccurred())
		done := make(chan error, 1)
		go func() { done <- write(ctx, s) }()
		Eventually(ctx, func() (waiting int) {
			Expect(other.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)).To(Succeed())
			return waiting
		}).Should(Equal(1), "it waits for the thread")
		locked, err := other.Exec(ctx, `SELECT FROM quota_namespace WHERE namespace = 'team' FOR UPDATE NOWAIT`)
		Expect(err).NotTo(HaveOccurred(), "it has not locked the namespace")
		Expect(locked.RowsAffected()).To(BeEquivalentTo(1))
		Expect(other.Commit(ctx)).To(Succeed())
		Expect(<-done).To(Succeed())
	},
		Entry("a new fork", "last", func(ctx context.Context, s store.Store) error {
			return create(ctx, s, "fork", "team", &store.Fork{Origin: "last", Newest: true})
		}),
		Entry("a message of a client, and one to another thread", "last", func(ctx context.Context, s store.Store) error {
			return s.Apply(ctx, "first", nil, bounded("1"), to("2", "last"))
		}),
		Entry("a file, and a message to another thread", "last", func(ctx context.Context, s store.Store) error {
			return s.Apply(ctx, "first", nil, &store.PutFile{File: store.File{Path: "/f", Digest: "d", Size: 1}, Object: "o", Uploaded: 1 << 60}, to("1", "last"))
		}),
		Entry("a message of a client, and a change of one that a fork reads", "reader", func(ctx context.Context, s store.Store) error {
			changed := "changed"
			return s.Apply(ctx, "first", nil, bounded("1"), &store.UpdateMessage{ID: "m", Content: &changed})
		}),
	)

	It("never make two transactions wait for each other, also when some share a commit", func(ctx SpecContext) {
		d := newDatabase(ctx)
		// The database would resolve such a wait after a second. Here it does not.
		url := d.url + "&deadlock_timeout=1h"
		replicas := []store.Store{open(ctx, url), open(ctx, url)}
		Expect(create(ctx, replicas[0], "a", "one")).To(Succeed())
		Expect(create(ctx, replicas[0], "b", "two")).To(Succeed())
		// Transactions come to this thread late. Its head is the last one in the order of heads.
		Expect(create(ctx, replicas[0], "z", "one", text("first"))).To(Succeed())
		const callers, rounds = 8, 20
		var wg sync.WaitGroup
		for r, s := range replicas {
			for c := range callers {
				wg.Go(func() {
					defer GinkgoRecover()
					for n := range rounds {
						id := fmt.Sprintf("%d-%d-%d", r, c, n)
						Expect(create(ctx, s, id, "one", &store.Fork{Origin: "z", Newest: true})).To(Succeed())
						Expect(s.Apply(ctx, "b", nil, bounded(id))).To(Succeed())
						Expect(s.Apply(ctx, "a", nil, bounded(id), to(id+"-to", "z"))).To(Succeed())
						Expect(s.Apply(ctx, "z", nil, bounded(id))).To(Succeed())
						claim := store.QuotaClaim{Namespace: []string{"one", "two"}[n%2], Resource: store.QuotaEffects, Name: id, Limit: store.QuotaLimit{Hard: 1}, Count: func([]string) int64 { return 0 }}
						Expect(s.ClaimQuota(ctx, claim)).To(Succeed())
						Expect(s.SweepQuotas(ctx)).To(Succeed()) // the claims have expired
						Expect(s.ReleaseQuota(ctx, claim.Namespace, claim.Resource, id)).To(Succeed())
					}
				})
			}
		}
		wg.Wait()
		for id, messages := range map[string]int64{"a": callers * rounds * 2, "b": callers * rounds * 2, "z": callers*rounds*4 + 1} {
			t, err := replicas[1].Thread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(t.Messages).To(Equal(messages), id)
		}
	})
})
