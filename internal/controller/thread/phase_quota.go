package thread

import (
	"context"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
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

// followQuota updates the stored limits to the spec.
func (r *Reconciler) followQuota(ctx context.Context, s *scope) error {
	bytes, files := fileQuota(&s.object.Spec)
	u, err := r.Threads.Store().FileUsage(ctx, s.row.ID)
	if err != nil {
		return fmt.Errorf("read the thread's quota of files: %w", err)
	}
	if same(u.MaxBytes, bytes) && same(u.MaxFiles, files) {
		return nil
	}
	if err := r.Threads.Store().Apply(ctx, s.row.ID, nil, &store.SetFileQuota{Bytes: bytes, Files: files}); err != nil {
		return fmt.Errorf("update the thread's quota of files to the spec: %w", err)
	}
	return nil
}

func same(a, b *int64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
