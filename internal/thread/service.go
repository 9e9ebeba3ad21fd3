// Package thread is the domain: what a thread can do, over a store and a bucket. It does not depend on Kubernetes, HTTP
// or models. A Service creates, opens and purges threads. A State is one thread and has the calls of ThreadState (the
// THR, MSG, FIL and KVS rows).
package thread

import (
	"context"

	"gocloud.dev/blob"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/store"
)

// Options are the options of a Service. Store and Blobs are required, the rest have defaults.
type Options struct {
	Store store.Store
	// Blobs holds the contents of files; see OpenBucket.
	Blobs *blob.Bucket
	// Clock is the source of time; the real clock when nil.
	Clock clock.Clock
	// MaxQueued is how many user messages may wait in one thread (MSG-07): 5 when 0, no limit when negative.
	MaxQueued int
	// MaxMessageBytes limits a message with all its parts: 1 MiB when 0.
	MaxMessageBytes int
	// MaxValueBytes limits one value of the key-value store: 1 MiB when 0.
	MaxValueBytes int
	// MaxFileBytes limits one file: 8 GiB when 0.
	MaxFileBytes int64
	// FileQuota is the quota of threads without their own (FIL-08).
	FileQuota store.FileQuota
}

// Service is the domain over one store. It is safe for concurrent use.
type Service struct {
	store  store.Store
	clock  clock.Clock
	limits limits
	blobs  *contents
	env    EnvOptions
	quota  store.FileQuota

	namespaceUID NamespaceUID // nil: not known

	thumbnails *thumbnails
}

type limits struct {
	queued       int
	messageBytes int
	valueBytes   int
	fileBytes    int64
}

// NewService returns the domain over a store and a bucket.
func NewService(o Options) *Service {
	if o.Clock == nil {
		o.Clock = ownclock.Clock{}
	}
	s := &Service{
		store: o.Store,
		clock: o.Clock,
		quota: o.FileQuota,

		thumbnails: newThumbnails(),
		limits: limits{
			queued:       orDefault(o.MaxQueued, 5),
			messageBytes: orDefault(o.MaxMessageBytes, 1<<20),
			valueBytes:   orDefault(o.MaxValueBytes, 1<<20),
			fileBytes:    orDefault(o.MaxFileBytes, 8<<30),
		},
	}
	s.blobs = &contents{bucket: o.Blobs, store: o.Store, now: s.now}
	return s
}

func orDefault[T int | int64](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// Store returns the underlying store.
func (s *Service) Store() store.Store { return s.store }

// Open returns a thread for writes from outside a run, or store.ErrNotFound.
func (s *Service) Open(ctx context.Context, id string) (*State, error) {
	if _, err := s.store.Position(ctx, id); err != nil {
		return nil, err
	}
	return &State{svc: s, id: id}, nil
}

// StateOf returns a thread that the caller has just read, for writes from outside a run. Open reads it once more, which on PostgreSQL takes
// another round trip.
func (s *Service) StateOf(t *store.Thread) *State { return &State{svc: s, id: t.ID} }

// now returns microseconds since 1970.
func (s *Service) now() int64 { return s.clock.Now().UnixMicro() }
