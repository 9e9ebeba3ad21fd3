package thread

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// ErrReleased says that the writer was released and cannot be used any more.
var ErrReleased = errors.New("the writer has given the thread back")

const (
	// minWriterTTL and maxWriterTTL bound the term of a writer's lease.
	minWriterTTL = time.Second
	maxWriterTTL = time.Hour
	ownerBytes   = 16
)

// Writer is the exclusive right to write a thread as the one who works on it (THR-12): no run of the
// thread starts, and no other writer, while it holds. It ends with Release, or when its term is over and
// somebody else takes the thread; its writes then fail with store.ErrFenced and change nothing. Each write is
// on disk when it returns, so that a release has nothing to flush. Safe for concurrent use.
type Writer struct {
	svc      *Service
	fence    store.Fence
	released atomic.Bool
}

// Acquire takes the thread for a term. store.ErrLeaseHeld while somebody else has it, a run included.
func (s *Service) Acquire(ctx context.Context, threadID string, ttl time.Duration) (*Writer, error) {
	if err := checkTTL(ttl); err != nil {
		return nil, err
	}
	secret := make([]byte, ownerBytes)
	_, _ = rand.Read(secret) // never fails
	f, err := s.store.Acquire(ctx, threadID, store.ExternalOwner+hex.EncodeToString(secret), ttl)
	if err != nil {
		return nil, err
	}
	return &Writer{svc: s, fence: *f}, nil
}

func checkTTL(ttl time.Duration) error {
	if ttl < minWriterTTL || ttl > maxWriterTTL {
		return invalid("ttlSeconds", "give %d to %d seconds", int(minWriterTTL.Seconds()), int(maxWriterTTL.Seconds()))
	}
	return nil
}

// WriterOf gives the writer of a thread that a token names. Whether it still holds shows when it is used.
func (s *Service) WriterOf(threadID, token string) (*Writer, error) {
	owner, epoch, ok := strings.Cut(token, ".")
	n, err := strconv.ParseInt(epoch, 10, 64)
	if raw, bad := hex.DecodeString(owner); !ok || err != nil || bad != nil || len(raw) != ownerBytes {
		return nil, invalid("Skein-Lease", "it is not a token that POST lease has given")
	}
	return &Writer{svc: s, fence: store.Fence{ThreadID: threadID, Owner: store.ExternalOwner + owner, Epoch: n}}, nil
}

// Token names this writer to others who may write in its name. It is a secret.
func (w *Writer) Token() string {
	return strings.TrimPrefix(w.fence.Owner, store.ExternalOwner) + "." + strconv.FormatInt(w.fence.Epoch, 10)
}

// Epoch grows with each holder of the thread.
func (w *Writer) Epoch() int64 { return w.fence.Epoch }

// Fence that its writes are bound to.
func (w *Writer) Fence() *store.Fence {
	f := w.fence
	return &f
}

// State gives the thread, bound to this writer. ErrReleased after its release.
func (w *Writer) State(ctx context.Context) (*State, error) {
	if w.released.Load() {
		return nil, ErrReleased
	}
	st, err := w.svc.Open(ctx, w.fence.ThreadID)
	if err != nil {
		return nil, err
	}
	return st.WithFence(w.Fence()), nil
}

// Renew makes the term end that much later than now. store.ErrFenced when somebody else has taken the thread.
func (w *Writer) Renew(ctx context.Context, ttl time.Duration) error {
	if err := checkTTL(ttl); err != nil {
		return err
	}
	if w.released.Load() {
		return ErrReleased
	}
	return w.svc.store.Renew(ctx, w.Fence(), ttl)
}

// Release gives the thread back. Again, and after somebody else has taken it, is no error.
func (w *Writer) Release(ctx context.Context) error {
	w.released.Store(true)
	err := w.svc.store.Release(ctx, w.Fence())
	if errors.Is(err, store.ErrNotFound) { // purged
		return nil
	}
	return err
}
