package app

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/thread"
)

func TestSweeperRemovesWhatNothingRefersTo(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir := t.TempDir()
	now := clocktesting.NewFakeClock(time.Now())
	st, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: dir, Clock: now})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = st.Close() }()
	// The state that a crash between writing bytes and writing their row leaves behind.
	orphan := filepath.Join(dir, "files", "blobs", "ab", strings.Repeat("0", 62))
	g.Expect(os.MkdirAll(filepath.Dir(orphan), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(orphan, []byte("left behind"), 0o600)).To(Succeed())
	bucket, err := thread.OpenBucket(ctx, "file://"+filepath.Join(dir, "files"))
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = bucket.Close() }()

	threads := thread.NewService(thread.Options{Store: st, Blobs: bucket, Clock: now})
	// What a fork does not read any more of a thread that was purged.
	origin := store.Thread{ID: "origin", Namespace: "n", Agent: "a"}
	_, _, err = st.CreateThread(ctx, origin, &store.AppendMessage{Message: &store.Message{ID: "m", Role: store.RoleUser}})
	g.Expect(err).NotTo(HaveOccurred())
	_, _, err = st.CreateThread(ctx, store.Thread{ID: "fork", Namespace: "n", Agent: "a"}, &store.Fork{Origin: origin.ID, Newest: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(threads.Purge(ctx, origin.ID)).To(Succeed())
	interrupted, interrupt := context.WithCancel(ctx)
	stop := st.Subscribe(func(store.Notification) { interrupt() })
	g.Expect(st.Apply(interrupted, "fork", nil, &store.Truncate{Index: -1})).To(Succeed())
	stop()

	s := &sweeper{threads: threads, clock: now, log: logr.Discard()}
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	g.Eventually(now.HasWaiters).Should(BeTrue())
	g.Expect(orphan).To(BeAnExistingFile())
	// One sweep records it, and another one much later removes it.
	g.Eventually(func() error {
		now.Step(25 * time.Hour)
		_, err := os.Stat(orphan)
		return err
	}).Should(MatchError(os.ErrNotExist))
	g.Expect(threads.SweepRemnants(ctx)).To(BeZero(), "the sweeper has removed it")
	cancel()
	g.Eventually(done).Should(Receive(BeNil()))
}
