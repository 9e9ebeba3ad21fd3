package app

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/metrics"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// measureEvery is the interval at which what waits is measured, and countEvery the one at which rows are counted.
	measureEvery = 15 * time.Second
	countEvery   = 10 * time.Minute
	// measureTime bounds one measurement.
	measureTime = time.Minute
)

// statistics keeps the metrics of what waits, and of how much there is. It runs in the leader, so that a scrape costs nothing and
// nothing is reported twice.
type statistics struct {
	store store.StatisticsStore
	cache cache.Cache
	clock clock.WithTicker
	log   logr.Logger

	counted time.Time // when the rows were counted
}

// NeedLeaderElection returns true: one replica is enough.
func (*statistics) NeedLeaderElection() bool { return true }

// Start measures until ctx ends.
func (s *statistics) Start(ctx context.Context) error {
	defer metrics.ForgetStored()
	informer, err := s.cache.GetInformer(ctx, &skeinv1.Thread{})
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { countThread(obj, 1) },
		UpdateFunc: func(before, after any) {
			countThread(before, -1)
			countThread(after, 1)
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			countThread(obj, -1)
		},
	})
	if err != nil {
		return err
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }()
	s.measure(ctx)
	return every(ctx, s.clock, measureEvery, s.measure)
}

// countThread counts a Thread object.
func countThread(obj any, by float64) {
	t, ok := obj.(*skeinv1.Thread)
	if !ok {
		return
	}
	reason := ""
	if c := meta.FindStatusCondition(t.Status.Conditions, skeinv1.ConditionReady); c == nil {
		reason = skeinv1.ReasonPending
	} else if c.Status != metav1.ConditionTrue {
		reason = c.Reason
	}
	metrics.Threads(t.Namespace, reason, by)
}

func (s *statistics) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, measureTime)
	defer cancel()
	err := errors.Join(s.measureStore(ctx), s.measurePools(ctx))
	if s.clock.Since(s.counted) >= countEvery {
		rows, failed := s.store.TableRows(ctx)
		contents, failedToo := s.store.ContentsBytes(ctx)
		if failed = errors.Join(failed, failedToo); failed == nil {
			metrics.Rows(rows)
			metrics.Contents(contents)
			s.counted = s.clock.Now()
		}
		err = errors.Join(err, failed)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Error(err, "Cannot measure what is stored; the next measurement tries again")
	}
}

func (s *statistics) measureStore(ctx context.Context) error {
	found, err := s.store.Statistics(ctx)
	if err != nil {
		return err
	}
	oldest := 0.0
	if found.OldestItem != 0 {
		oldest = max(float64(found.Now-found.OldestItem)/1e6, 0)
	}
	metrics.Stored(found.InboxItems, oldest, found.Bytes)
	return nil
}

func (s *statistics) measurePools(ctx context.Context) error {
	var pools skeinv1.SandboxPoolList
	if err := s.cache.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	metrics.Pools()
	for i := range pools.Items {
		p := &pools.Items[i]
		metrics.Pool(p.Namespace, p.Name, map[string]int32{
			"desired": p.Status.DesiredWarm, "warm": p.Status.Warm, "claimed": p.Status.Claimed, "starting": p.Status.Starting, "failing": p.Status.Failing,
		})
	}
	return nil
}
