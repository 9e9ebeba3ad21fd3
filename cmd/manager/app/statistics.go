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
	// countFor is how long a measurement goes on with a count. So counting takes a thousandth of the time, whatever there is to count, and
	// the count of a large store takes as many measurements as it needs.
	countFor = measureEvery / 1000
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

	count   store.Count // the one that goes on; nil between two
	counted time.Time   // when the last one began
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
	err := errors.Join(s.measureStore(ctx), s.measurePools(ctx), s.goOnCounting(ctx))
	if err != nil && ctx.Err() == nil {
		s.log.Error(err, "Cannot measure what is stored; the next measurement tries again")
	}
}

// goOnCounting does the next steps of the count, or of a new one when that is due.
func (s *statistics) goOnCounting(ctx context.Context) error {
	began := s.clock.Now()
	if s.count == nil {
		if began.Sub(s.counted) < countEvery {
			return nil
		}
		s.count, s.counted = s.store.Count(), began
	}
	for s.clock.Since(began) < countFor {
		done, err := s.count.Step(ctx)
		if err != nil {
			return err
		}
		if done {
			metrics.Rows(s.count.Rows())
			metrics.Contents(s.count.ContentsBytes())
			s.count = nil
			return nil
		}
	}
	return nil
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
