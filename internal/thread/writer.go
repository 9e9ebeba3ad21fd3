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

// ErrReleased means that the writer was released and cannot be used any more.
var ErrReleased = errors.New("the writer was released")

const (
	// minWriterTTL and maxWriterTTL limit the duration of a writer's lease.
	minWriterTTL = time.Second
	maxWriterTTL = time.Hour
	ownerBytes   = 16
)

// Writer is the exclusive right to write to a thread (THR-12). While it holds, no run of the thread starts and there is
// no other writer. It ends with Release, or when its lease has expired and another holder takes the thread. Its writes
// then fail with store.ErrFenced and change nothing. Each write is on disk when it returns, so a release has nothing to
// flush. It is safe for concurrent use.
type Writer struct {
	svc      *Service
	fence    store.Fence
	released atomic.Bool
}

// Acquire takes the thread's lease for ttl. It fails with store.ErrLeaseHeld while another holder has it, also a run.
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

// WriterOf returns the writer of a thread that a token names. It does not check whether the writer still holds the
// lease.
func (s *Service) WriterOf(threadID, token string) (*Writer, error) {
	owner, epoch, ok := strings.Cut(token, ".")
	n, err := strconv.ParseInt(epoch, 10, 64)
	if raw, bad := hex.DecodeString(owner); !ok || err != nil || bad != nil || len(raw) != ownerBytes {
		return nil, invalid("Skein-Lease", "it is not a token that POST lease returned")
	}
	return &Writer{svc: s, fence: store.Fence{ThreadID: threadID, Owner: store.ExternalOwner + owner, Epoch: n}}, nil
}

// Token identifies this writer to clients that may write in its name. It is a secret.
func (w *Writer) Token() string {
	return strings.TrimPrefix(w.fence.Owner, store.ExternalOwner) + "." + strconv.FormatInt(w.fence.Epoch, 10)
}

// Epoch returns the lease's epoch, which grows with each holder of the thread.
func (w *Writer) Epoch() int64 { return w.fence.Epoch }

// Fence returns the fence that its writes are bound to.
func (w *Writer) Fence() *store.Fence {
	f := w.fence
	return &f
}

// State returns the thread, bound to this writer. It fails with ErrReleased after the release.
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

// Renew makes the lease expire ttl from now. It fails with store.ErrFenced when another holder has taken the thread.
func (w *Writer) Renew(ctx context.Context, ttl time.Duration) error {
	if err := checkTTL(ttl); err != nil {
		return err
	}
	if w.released.Load() {
		return ErrReleased
	}
	return w.svc.store.Renew(ctx, w.Fence(), ttl)
}

// Release releases the lease. Repeating it, or calling it after another holder has taken the thread, is no error.
func (w *Writer) Release(ctx context.Context) error {
	w.released.Store(true)
	err := w.svc.store.Release(ctx, w.Fence())
	if errors.Is(err, store.ErrNotFound) { // purged
		return nil
	}
	return err
}
