// Package sqlstore implements the store contract with a SQL database: SQLite or PostgreSQL. It opens the database,
// carries out operations (apply.go), and puts the store together from the packages of the tables. What differs between
// databases is in sqlite.go, in postgres.go and in the migrations.
package sqlstore

import (
	"context"
	"errors"
	"sync"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/backup"
	"github.com/skein-dev/skein/internal/store/sqlstore/env"
	"github.com/skein-dev/skein/internal/store/sqlstore/eventlog"
	"github.com/skein-dev/skein/internal/store/sqlstore/files"
	"github.com/skein-dev/skein/internal/store/sqlstore/firings"
	"github.com/skein-dev/skein/internal/store/sqlstore/inbox"
	"github.com/skein-dev/skein/internal/store/sqlstore/leases"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
	"github.com/skein-dev/skein/internal/store/sqlstore/notify"
	"github.com/skein-dev/skein/internal/store/sqlstore/owners"
	"github.com/skein-dev/skein/internal/store/sqlstore/permits"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/quotas"
	"github.com/skein-dev/skein/internal/store/sqlstore/relations"
	"github.com/skein-dev/skein/internal/store/sqlstore/runs"
	"github.com/skein-dev/skein/internal/store/sqlstore/search"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/threads"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
	"github.com/skein-dev/skein/internal/store/sqlstore/values"
	"github.com/skein-dev/skein/internal/store/sqlstore/webhooks"
)

// The parts of a Store. Each holds the methods of its tables.
type (
	threadStore   = threads.Store
	messageStore  = messages.Store
	logStore      = eventlog.Store
	searchStore   = search.Store
	runStore      = runs.Store
	inboxStore    = inbox.Store
	fileStore     = files.Store
	valueStore    = values.Store
	envStore      = env.Store
	relationStore = relations.Store
	leaseStore    = leases.Store
	permitStore   = permits.Store
	firingStore   = firings.Store
	quotaStore    = quotas.Store
	backupStore   = backup.Store
	ownerStore    = owners.Store
	webhookStore  = webhooks.Store
)

// Store is a store.Store over a SQL database.
type Store struct {
	threadStore
	messageStore
	logStore
	searchStore
	runStore
	inboxStore
	fileStore
	valueStore
	envStore
	relationStore
	leaseStore
	permitStore
	firingStore
	quotaStore
	backupStore
	ownerStore
	webhookStore

	db          *txn.DB
	known       int64 // the newest schema of this release
	subscribers notify.Subscribers

	closing sync.Once
	closers []func() error // run by Close, in this order
}

var _ store.Store = (*Store)(nil)

func newStore(d *sqldb.Dialect, c clock.PassiveClock) (*Store, error) {
	known, err := knownSchema(d)
	if err != nil {
		return nil, err
	}
	db := txn.NewDB(d, c)
	return &Store{
		known:         known,
		db:            db,
		threadStore:   threads.Store{DB: db},
		messageStore:  messages.Store{DB: db},
		logStore:      eventlog.Store{DB: db},
		searchStore:   search.Store{DB: db},
		runStore:      runs.Store{DB: db},
		inboxStore:    inbox.Store{DB: db},
		fileStore:     files.Store{DB: db},
		valueStore:    values.Store{DB: db},
		envStore:      env.Store{DB: db},
		relationStore: relations.Store{DB: db},
		leaseStore:    leases.Store{DB: db},
		permitStore:   permits.Store{DB: db},
		firingStore:   firings.Store{DB: db},
		quotaStore:    quotas.Store{DB: db},
		backupStore:   backup.Store{DB: db},
		ownerStore:    owners.Store{DB: db},
		webhookStore:  webhooks.Store{DB: db},
	}, nil
}

// Subscribe implements store.Store.
func (s *Store) Subscribe(fn func(store.Notification)) (stop func()) {
	return s.subscribers.Subscribe(fn)
}

// SubscribeThread implements store.Store.
func (s *Store) SubscribeThread(threadID string, fn func(store.Notification)) (stop func()) {
	return s.subscribers.SubscribeThread(threadID, fn)
}

// Ping implements store.Store. It writes and reads a probe, and fails when a newer release has made the schema unusable for this one.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.db.Writer.Do(ctx, func(t *txn.Tx) error {
		_, err := t.Exec(t.Ctx, queries.WriteProbe, t.Now)
		return err
	}); err != nil {
		return err
	}
	var at, minimum int64
	if err := s.db.Readers.Row(ctx, queries.ReadProbe, nil, &at); err != nil {
		return err
	}
	if err := s.db.Readers.Row(ctx, queries.SchemaReader, nil, &minimum); err != nil {
		return err
	}
	if minimum > s.known {
		return outdated(minimum, minimum, s.known)
	}
	return nil
}

// Close implements store.Store. It waits for reads and writes in progress. Repeating it is no error.
func (s *Store) Close() (err error) {
	s.closing.Do(func() {
		err = errors.Join(s.db.Writer.Close(), s.db.Readers.Close())
		for _, end := range s.closers {
			err = errors.Join(err, end())
		}
	})
	return err
}
