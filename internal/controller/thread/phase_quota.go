package thread

import (
	"context"
	"fmt"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// fileQuota returns the limits that a spec sets for the thread's files. nil leaves a limit to the manager (FIL-08).
func fileQuota(spec *skeinv1.ThreadSpec) (bytes, files *int64) {
	q := spec.FileQuota
	if q == nil {
		return nil, nil
	}
	if q.Bytes != nil {
		n := q.Bytes.Value()
		bytes = &n
	}
	return bytes, q.Files
}

// updateQuota updates the stored limits to the spec.
func (r *Reconciler) updateQuota(ctx context.Context, s *scope) error {
	bytes, files := fileQuota(&s.object.Spec)
	u, err := r.Threads.Store().FileUsage(ctx, s.row.ID)
	if err != nil {
		return fmt.Errorf("read the thread's quota of files: %w", err)
	}
	if isSameLimit(u.MaxBytes, bytes) && isSameLimit(u.MaxFiles, files) {
		return nil
	}
	if err := r.Threads.Store().Apply(ctx, s.row.ID, nil, &store.SetFileQuota{Bytes: bytes, Files: files}); err != nil {
		return fmt.Errorf("update the thread's quota of files to the spec: %w", err)
	}
	return nil
}

// isSameLimit reports whether two limits are equal. nil means no limit.
func isSameLimit(a, b *int64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// quotaRetry is how often a thread that found no room in the quotas of its namespace is tried again.
const quotaRetry = 5 * time.Second

// noRoom records that the namespace has no room for a thread (K8S-11). The thread is stored once there is some. A child for
// which a call of its parent waits is refused instead, so that the parent is told.
func (r *Reconciler) noRoom(s *scope, n *thread.NewThread, full *store.NamespaceQuotaError) {
	if n.Child != nil && n.Child.ToolCallID != "" {
		s.problem, s.refused, s.why = &problem{skeinv1.ReasonChildRefused, full.Error()}, n, full.Error()
		return
	}
	s.problem, s.retry = &problem{skeinv1.ReasonQuotaExceeded, full.Error()}, quotaRetry
}
