package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
)

// sweptQuotas is a store that notes when quotas are swept, and fails at first.
type sweptQuotas struct {
	store.QuotaStore
	at []time.Time
}

func (s *sweptQuotas) SweepQuotas(context.Context) error {
	s.at = append(s.at, time.Now())
	if len(s.at) == 1 {
		return errors.New("the database is away")
	}
	return nil
}

func TestASweepOfQuotasThatFailsIsSoonRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &sweptQuotas{}
		ctx, stop := context.WithTimeout(t.Context(), 90*time.Minute)
		defer stop()
		began := time.Now()
		if err := (&quotaSweeper{store: st, clock: clock.RealClock{}, log: logr.Discard()}).Start(ctx); err != nil {
			t.Fatal(err)
		}
		var after []time.Duration
		for _, at := range st.at {
			after = append(after, at.Sub(began))
		}
		if len(after) != 3 || after[1] != quotaSweepAgain || after[2] != quotaSweepAgain+quotaSweepEvery {
			t.Errorf("swept after %v", after)
		}
	})
}
