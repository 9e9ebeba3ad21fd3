package pgsuite

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A variable of a thread", Label("ENV-04"), func() {
	variable := func(value string) store.EnvVar {
		return store.EnvVar{Name: "TOKEN", Type: store.EnvSecret, Value: []byte(value), KeyID: 7, Origin: store.EnvSet}
	}

	DescribeTable("reaches a grandchild that is created at the same time", func(ctx SpecContext, op store.Op, matcher OmegaMatcher) {
		d := newDatabase(ctx)
		var replicas [2]store.Store
		for i := range replicas {
			s, err := d.Open(nil)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
			replicas[i] = s
		}
		create := func(ctx context.Context, id, parent string, ops ...store.Op) error {
			_, _, err := replicas[0].CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a", ParentID: parent, Reference: id}, ops...)
			return err
		}
		Expect(create(ctx, "grandparent", "", &store.SetEnv{Vars: []store.EnvVar{variable("old")}})).To(Succeed())
		Expect(create(ctx, "parent", "grandparent")).To(Succeed())

		inherited, goOn, created, changed := make(chan struct{}), make(chan struct{}), make(chan error, 1), make(chan error, 1)
		go func() {
			created <- create(ctx, "child", "parent", &store.ImportConversation{
				Record: store.ImportRecord{Manifest: json.RawMessage(`{}`)},
				Lines: func(func(store.ImportLine, error) bool) {
					close(inherited)
					<-goOn
				},
			})
		}()
		Eventually(ctx, inherited).Should(BeClosed())
		go func() { changed <- replicas[1].Apply(ctx, "grandparent", nil, op) }()
		db, err := pgx.Connect(ctx, d.url)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		Eventually(ctx, func() (waiting int) {
			Expect(db.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)).To(Succeed())
			return waiting
		}).Should(Equal(1), "it waits for the parent")
		close(goOn)
		Expect(<-created).To(Succeed())
		Expect(<-changed).To(Succeed())
		Expect(replicas[1].Env(ctx, "parent")).To(matcher)
		Expect(replicas[1].Env(ctx, "child")).To(matcher)
	},
		Entry("with its new value", &store.SetEnv{Vars: []store.EnvVar{variable("new")}}, ConsistOf(HaveField("Value", []byte("new")))),
		Entry("when it is removed", &store.UnsetEnv{Names: []string{"TOKEN"}}, BeEmpty()))
})
