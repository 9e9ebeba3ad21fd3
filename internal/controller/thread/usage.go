package thread

import (
	"context"
	"fmt"
	"strconv"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// computeUsage sets what the thread's runs used (RUN-07). It does not read the usage of a thread that has never run.
func (r *Reconciler) computeUsage(ctx context.Context, s *scope, run *store.Run) error {
	if s.row == nil || run == nil {
		return nil
	}
	u, err := r.Threads.Store().Usage(ctx, store.UsageQuery{ThreadID: s.row.ID})
	if err != nil {
		return fmt.Errorf("sum what the thread used: %w", err)
	}
	if u.Runs == 0 {
		return nil
	}
	s.object.Status.Usage = &skeinv1.UsageStatus{
		Runs: u.Runs, Turns: u.Turns, InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CacheReadTokens: u.CacheReadTokens,
	}
	if u.Cost > 0 {
		// Billionths, the precision of the costs of model calls. Further digits are rounding errors of sums.
		s.object.Status.Usage.Cost = strconv.FormatFloat(u.Cost, 'f', 9, 64)
	}
	return nil
}
