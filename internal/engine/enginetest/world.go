// Package enginetest has the environment in which tests and benchmarks run an engine: a real store on disk, the thread
// service over it, and the engine's ports in memory.
package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"gocloud.dev/blob"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// Namespace of everything in a World.
const Namespace = "test"

// World is everything that an engine needs. Its definitions, children and effects outlive each engine, as objects of the API
// server do.
type World struct {
	Store       store.Store
	Threads     *thread.Service
	Definitions *Definitions
	Children    *Children
	Effects     *Effects
	Objects     *ThreadObjects
	Sandboxes   ports.Sandboxes
	Models      model.Factory
	// Network is what tools connect through. If it is nil they reach public addresses only.
	Network *outbound.Network
	Logger  logr.Logger

	dir    string
	bucket *blob.Bucket

	mu      sync.Mutex
	engines int
}

// New returns a world with its store in a folder. Close it.
func New(dir string) (*World, error) {
	s, err := sqlitetest.Open(context.Background(), sqlstore.SQLiteOptions{Dir: filepath.Join(dir, "store")})
	if err != nil {
		return nil, err
	}
	return NewOn(s, dir)
}

// NewOn returns a world on a store, with the contents of files in a folder. Close closes the store, too.
func NewOn(s store.Store, dir string) (*World, error) {
	bucket, err := thread.OpenBucket(context.Background(), "file://"+filepath.Join(dir, "blobs"))
	if err != nil {
		return nil, err
	}
	w := &World{
		Store: s, Definitions: NewDefinitions(), Sandboxes: NoSandboxes{}, Models: providers.NewFactory(nil),
		Logger: logr.Discard(), dir: dir, bucket: bucket,
	}
	w.Threads = thread.NewService(thread.Options{Store: s, Blobs: bucket})
	w.Children = &Children{world: w, entries: map[string][]*child{}}
	w.Effects = &Effects{}
	w.Objects = &ThreadObjects{world: w}
	return w, nil
}

// LoseContents deletes the contents of all files, as damage of the bucket does.
func (w *World) LoseContents(ctx context.Context) error {
	for objects := w.bucket.List(nil); ; {
		o, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.bucket.Delete(ctx, o.Key); err != nil {
			return err
		}
	}
}

// Close closes the store and the bucket.
func (w *World) Close() error {
	err := w.Store.Close()
	if blobErr := w.bucket.Close(); err == nil {
		err = blobErr
	}
	return err
}

// Options returns options of an engine in this world, with an owner of its own. The term of its leases is long enough that a
// busy machine renews them in time. Gate.Expire frees the leases of an engine that was cut off.
func (w *World) Options() engine.Options {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.engines++
	return engine.Options{
		Threads: w.Threads, Definitions: w.Definitions, Children: w.Children, ThreadObjects: w.Objects, Effects: w.Effects, Sandboxes: w.Sandboxes,
		Models: w.Models, Network: w.Network, Owner: fmt.Sprintf("engine-%d", w.engines), Logger: w.Logger,
		LeaseTTL: time.Minute, SweepInterval: 200 * time.Millisecond,
	}
}

// Over returns a thread service over another store, for example one that fails.
func (w *World) Over(s store.Store) *thread.Service {
	return thread.NewService(thread.Options{Store: s, Blobs: w.bucket})
}

// Thread creates a thread of an agent and returns its id.
func (w *World) Thread(ctx context.Context, agent string, change ...func(*thread.NewThread)) (string, error) {
	id := uuid.NewString()
	n := thread.NewThread{Thread: store.Thread{ID: id, Namespace: Namespace, Name: "t-" + id[:8], Agent: agent}}
	for _, c := range change {
		c(&n)
	}
	_, _, err := w.Threads.Create(ctx, n)
	return n.ID, err
}

// Send queues a user message.
func (w *World) Send(ctx context.Context, threadID, text string) error {
	st, err := w.Threads.Open(ctx, threadID)
	if err != nil {
		return err
	}
	_, err = st.Queue(ctx, thread.NewMessage{Content: &text})
	return err
}

// Messages returns the messages of a thread, in order, without those about the life of children.
func (w *World) Messages(ctx context.Context, threadID string) ([]store.Message, error) {
	said, _, err := w.split(ctx, threadID)
	return said, err
}

// ChildLife returns the kinds of the messages about the life of a thread's children, in order (MSG-09).
func (w *World) ChildLife(ctx context.Context, threadID string) (kinds []string, err error) {
	_, life, err := w.split(ctx, threadID)
	for _, m := range life {
		kinds = append(kinds, fmt.Sprint(m.Metadata[thread.MetadataStatusKind]))
	}
	return kinds, err
}

func (w *World) split(ctx context.Context, threadID string) (said, life []store.Message, err error) {
	page, err := w.Store.Messages(ctx, threadID, store.MessageQuery{Order: "asc", Limit: 10000, IncludeSilent: true})
	if err != nil {
		return nil, nil, err
	}
	for _, m := range page.Messages {
		if thread.IsChildStatus(&m) {
			life = append(life, m)
		} else {
			said = append(said, m)
		}
	}
	return said, life, nil
}

// Runs returns a thread's runs, oldest first.
func (w *World) Runs(ctx context.Context, threadID string) ([]store.Run, error) {
	runs, err := w.Store.Runs(ctx, threadID, 1000, 0)
	for i, j := 0, len(runs)-1; i < j; i, j = i+1, j-1 {
		runs[i], runs[j] = runs[j], runs[i]
	}
	return runs, err
}

// Resting reports whether a thread has nothing to do: its newest run has ended, and its inbox is empty.
func (w *World) Resting(ctx context.Context, threadID string) (bool, error) {
	items, err := w.Store.Inbox(ctx, threadID)
	if err != nil || len(items) > 0 {
		return false, err
	}
	runs, err := w.Store.Runs(ctx, threadID, 1, 0)
	if err != nil {
		return false, err
	}
	return len(runs) == 1 && runs[0].Status.Ended(), nil
}

// NoSandboxes provides no sandboxes, for tests that run no code.
type NoSandboxes struct{}

// Acquire implements ports.Sandboxes.
func (NoSandboxes) Acquire(context.Context, *store.Thread, string) (sandbox.Sandbox, func(), error) {
	return nil, nil, fmt.Errorf("there are no sandboxes in this test")
}

// Discard implements ports.Sandboxes.
func (NoSandboxes) Discard(context.Context, *store.Thread, sandbox.Sandbox) {}

// JSON returns a value as JSON, for arguments. It panics if that fails.
func JSON(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
