package thread_test

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/thread/buckettest"
)

// folder is a data folder with its database and its contents.
type folder string

func (f folder) Open(ctx context.Context, c clock.PassiveClock) (store.Store, error) {
	return sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: string(f), Clock: c})
}

func (folder) Replicas() int { return 1 }

func (f folder) BucketURL() string { return "file://" + filepath.Join(string(f), "blobs") }

var _ = buckettest.DescribeBucket("a folder", func(context.Context) buckettest.Backend { return folder(GinkgoT().TempDir()) })
