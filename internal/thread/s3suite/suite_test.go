// Package s3suite runs the suite for the contents of files on an S3 server, with replicas that share a PostgreSQL
// database.
package s3suite

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/pgtest"
	"github.com/skein-dev/skein/internal/thread/buckettest"
	"github.com/skein-dev/skein/internal/thread/s3test"
)

func TestS3(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "contents on S3")
}

var (
	database *pgtest.Server
	bucket   *s3test.Server
)

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	bucket, err = s3test.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(bucket.Stop()).To(Succeed()) })
	for name, value := range bucket.Env() {
		GinkgoT().Setenv(name, value)
	}
	database, err = pgtest.Start(ctx, pgtest.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(database.Stop()).To(Succeed()) })
})

// replicated is a database and a bucket for two replicas.
type replicated struct{ database, bucket string }

func (r replicated) Open(ctx context.Context, c clock.PassiveClock) (store.Store, error) {
	return sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: r.database, Clock: c})
}

func (replicated) Replicas() int { return 2 }

func (r replicated) BucketURL() string { return r.bucket }

var _ = buckettest.DescribeBucket("S3", func(ctx context.Context) buckettest.Backend {
	name, err := database.NewDatabase(ctx, "")
	Expect(err).NotTo(HaveOccurred())
	url, err := bucket.NewBucket()
	Expect(err).NotTo(HaveOccurred())
	return replicated{database: database.URL(name), bucket: url}
})
