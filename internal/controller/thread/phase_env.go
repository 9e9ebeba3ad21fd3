package thread

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// firstEnv sets the variables of a new thread: those of its spec, and the names that it does not inherit.
func (r *Reconciler) firstEnv(ctx context.Context, s *scope, n *thread.NewThread) (err error) {
	if r.Env == nil {
		return nil
	}
	if n.Env, err = r.Env.ThreadEnv(ctx, s.object); err != nil {
		return envProblem(err)
	}
	if n.ParentID != "" {
		n.ScopedEnv, err = r.Env.ScopedEnv(ctx, n.Namespace, n.Agent)
	}
	return err
}

// updateEnv updates a thread's variables to its spec and to the objects that the spec refers to (ENV-05). It updates the
// names that are not inherited to its agent (ENV-04).
func (r *Reconciler) updateEnv(ctx context.Context, s *scope) (bool, error) {
	if r.Env == nil || s.problem != nil || s.row == nil || s.row.TerminatedAt != 0 {
		return false, nil
	}
	if s.row.ParentID != "" {
		scoped, err := r.Env.ScopedEnv(ctx, s.row.Namespace, s.row.Agent)
		if err != nil {
			return false, err
		}
		if !slices.Equal(scoped, s.row.ScopedEnv) {
			if err := r.Threads.Store().Apply(ctx, s.row.ID, nil, &store.ScopeEnv{Names: scoped}); err != nil {
				return false, fmt.Errorf("note which variables are not inherited: %w", err)
			}
		}
	}
	if len(s.object.Spec.Env) == 0 && s.specApplied() {
		return false, nil
	}
	spec, err := r.Env.ThreadEnv(ctx, s.object)
	if err != nil {
		return false, recordProblem(s, envProblem(err))
	}
	if err := r.Threads.ApplySpecEnv(ctx, s.row, spec); err != nil {
		return false, fmt.Errorf("update the variables to the spec: %w", err)
	}
	return false, nil
}

// envProblem turns an error that the user must correct into a problem of the thread.
func envProblem(err error) error {
	var notReady *definition.NotReadyError
	if errors.As(err, &notReady) {
		return &problem{notReady.Reason, notReady.Message}
	}
	return err
}
