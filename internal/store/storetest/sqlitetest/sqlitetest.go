// Package sqlitetest opens SQLite stores for tests whose subject is something else: hundreds of them, each empty.
//
// Bringing the schema up is most of what a new store costs. So it is brought up once in a test program and copied from there; the
// store is the manager's, set up no differently. Tests of the store make theirs with sqlstore alone.
package sqlitetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/store/sqlstore"
)

// database is the file of a store in its folder; SQLite's other files are gone once it is closed.
const database = "skein.db"

// empty is the database of a store in which nothing has been written yet.
var empty = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp(scratch.Root(), "skein-schema-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := sqlstore.OpenSQLite(context.Background(), sqlstore.SQLiteOptions{Dir: dir})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, database))
})

// Open opens the store in a folder, with the schema in place when there is none yet.
func Open(ctx context.Context, o sqlstore.SQLiteOptions) (*sqlstore.Store, error) {
	file := filepath.Join(o.Dir, database)
	if _, err := os.Stat(file); os.IsNotExist(err) {
		schema, err := empty()
		if err != nil {
			return nil, fmt.Errorf("bring up the schema for tests: %w", err)
		}
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, schema, 0o600); err != nil {
			return nil, err
		}
	}
	return sqlstore.OpenSQLite(ctx, o)
}
