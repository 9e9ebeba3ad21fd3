package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
)

// TestMain also runs the process that the crash tests kill.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDirEnv); dir != "" {
		fmt.Fprintln(os.Stderr, crashChild(dir, os.Getenv(crashRoundEnv)))
		os.Exit(1) // it should have been killed
	}
	os.Exit(m.Run())
}

func crashChild(dir, round string) error {
	ctx := context.Background()
	s, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: dir})
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(round, 10, 64)
	if err != nil {
		return err
	}
	return storetest.WriteUntilKilled(ctx, s, seed, os.Stdout)
}

func TestSQLStore(t *testing.T) {
	sqlstore.SetBlockSeqs(8)
	sqlstore.SetSlice(12)
	sqlstore.SetForkBounds(40, 200)
	sqlstore.SetRanked(20)
	sqlstore.SetCountedAtOnce(7)
	RegisterFailHandler(Fail)
	RunSpecs(t, "sqlstore")
}

// folder is a SQLite database in a temporary folder. It begins as a copy of a database that the migrations made, which
// saves most of the time of the suite.
type folder struct{ dir string }

func newFolder() storetest.Backend { return folder{scratch.Folder(GinkgoT())} }

func (f folder) Open(c clock.PassiveClock) (store.Store, error) {
	return sqlitetest.Open(context.Background(), sqlstore.SQLiteOptions{Dir: f.dir, Clock: c})
}

// Exclusive returns true, because the folder is locked.
func (folder) Exclusive() bool { return true }

func (f folder) SQL() (*sql.DB, error) { return sql.Open("sqlite", filepath.Join(f.dir, "skein.db")) }

var _ = storetest.DescribeStore("SQLite", newFolder)
