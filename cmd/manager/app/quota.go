package app

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
)

// fileQuota returns the default quota of files of a thread (FIL-08).
func (o *Options) fileQuota() (q store.FileQuota, err error) {
	if o.FileQuotaFiles < 0 {
		return q, fmt.Errorf("--file-quota-files=%d: give 0 for no bound, or a positive number", o.FileQuotaFiles)
	}
	q.Files = o.FileQuotaFiles
	if o.FileQuotaBytes == "" {
		return q, nil
	}
	n, err := resource.ParseQuantity(o.FileQuotaBytes)
	if err != nil || n.Sign() < 0 {
		return q, fmt.Errorf("--file-quota-bytes=%s: give an amount of bytes such as 500Mi, or 0 for no bound", o.FileQuotaBytes)
	}
	q.Bytes = n.Value()
	return q, nil
}

// watchQuotas holds namespaces to their quotas (K8S-11): what ThreadQuotas say, and else the flag.
func (o *Options) watchQuotas(ctx context.Context, mgr ctrl.Manager, data *data) (*kube.Quotas, error) {
	defaults, err := kube.ParseQuotas(o.NamespaceQuota)
	if err != nil {
		return nil, err
	}
	quotas := kube.NewQuotas(defaults)
	if err := quotas.Watch(ctx, mgr.GetCache()); err != nil {
		return nil, err
	}
	data.store.LimitNamespaces(quotas.Limits)
	return quotas, nil
}

// quotaSweepEvery is the interval of the sweeps of what quotas no longer count. The first one is at the start: it also counts what an update
// has left to be counted.
const (
	quotaSweepEvery = time.Hour
	quotaSweepAgain = 10 * time.Second // after an error
)

// quotaSweeper removes what quotas no longer count.
type quotaSweeper struct {
	store store.QuotaStore
	clock clock.WithTicker
	log   logr.Logger
}

// Start sweeps until ctx ends. A sweep that fails is soon repeated: what an update has left to be counted is not held to a quota until then.
func (s *quotaSweeper) Start(ctx context.Context) error {
	for {
		pause := quotaSweepEvery
		if err := s.store.SweepQuotas(ctx); err != nil {
			if ctx.Err() == nil {
				s.log.Error(err, "cannot bring up to date what quotas count; a sweep in a few seconds tries again")
			}
			pause = quotaSweepAgain
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.clock.After(pause):
		}
	}
}

// NeedLeaderElection returns true: one replica is enough.
func (*quotaSweeper) NeedLeaderElection() bool { return true }
