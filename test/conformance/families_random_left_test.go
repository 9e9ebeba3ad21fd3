package conformance

import (
	"context"
	"database/sql"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/test/harness"
)

// cutSQLite keeps a manager from writing to its database until the manager says that it cannot work.
func cutSQLite(ctx context.Context, m *harness.Manager) {
	GinkgoHelper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(m.Dir, "skein.db")+"?_pragma=busy_timeout(60000)")
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(db.Close()).To(Succeed()) }()
	conn, err := db.Conn(ctx)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(conn.Close()).To(Succeed()) }()
	_, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, func() (bool, error) { return m.Ready(ctx) }).Should(BeFalse())
	_, err = conn.ExecContext(ctx, "ROLLBACK")
	Expect(err).NotTo(HaveOccurred())
}

// sandboxes returns the processes of sandboxes that managers with this folder for temporary files, which no others have, have started.
func sandboxes(temporary string) []string {
	GinkgoHelper()
	all, err := harness.Inheritors("TMPDIR=" + temporary)
	Expect(err).NotTo(HaveOccurred())
	return slices.DeleteFunc(all, func(command string) bool { return strings.Contains(command, "--kubeconfig=") }) // those are the managers
}

// emptyBucket looks whether the contents of files that a store refers to are gone, with those that kills have left in the bucket: two sweeps,
// a day apart, remove them. No manager may run.
func emptyBucket(ctx context.Context, dir string, open func(*testingclock.FakeClock) store.Store) {
	GinkgoHelper()
	clock := testingclock.NewFakeClock(time.Now())
	st := open(clock)
	defer func() { Expect(st.Close()).To(Succeed()) }()
	bucket, err := thread.OpenBucket(ctx, "file://"+dir)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(bucket.Close()).To(Succeed()) }()
	left := func() (files []string) {
		Expect(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				files = append(files, path)
			}
			return err
		})).To(Succeed())
		return files
	}
	AddReportEntry("contents of files that kills have left", len(left()))
	threads := thread.NewService(thread.Options{Store: st, Blobs: bucket, Clock: clock})
	for range 2 {
		_, err := threads.Sweep(ctx)
		Expect(err).NotTo(HaveOccurred())
		clock.Step(25 * time.Hour)
	}
	Expect(left()).To(BeEmpty())
}
