// Package sqlitetest opens SQLite stores for tests that need hundreds of empty ones.
//
// Most of the cost of a new store is its schema. So a test program creates the schema once and copies it. The store
// itself is set up as in the manager. The suite of the store does so too; its tests of migrations, crashes and folders
// create theirs with sqlstore only.
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

// database is the file of a store in its folder. SQLite's other files are gone once it is closed.
const database = "skein.db"

// empty returns the database of a store in which nothing has been written yet.
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

// Open opens the store in a folder, and puts the schema there when it is missing.
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
