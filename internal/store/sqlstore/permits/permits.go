// Package permits bounds the calls of models over all replicas.
package permits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

const (
	// million is the unit of levels: they are stored in millionths, so that the refill of a microsecond is a whole
	// number.
	million = 1_000_000
	// longestRefill limits the time that one refill counts, so that no product overflows.
	longestRefill = int64(time.Hour / time.Microsecond)
	// longestDebt limits, in minutes, how long tokens already used delay the next call. Otherwise a debt from before
	// the limit was lowered would last for days, and no provider looks back that far.
	longestDebt = 5
)

// TakePermit implements store.PermitStore.
func (s Store) TakePermit(ctx context.Context, r store.PermitRequest) (out store.PermitAnswer, err error) {
	if r.ID == "" || r.TTL <= 0 {
		return out, errors.New("a permit needs an id and a positive ttl")
	}
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		out = store.PermitAnswer{}
		level, err := lockLimit(t, r)
		if err != nil {
			return err
		}
		if err := t.Write(t.Ctx, queries.SweepPermit, r.Namespace, r.Model, t.Now); err != nil {
			return err
		}
		if err := t.Write(t.Ctx, queries.AskPermit, r.Namespace, r.Model, r.ID, t.Now, t.Now+r.TTL.Microseconds()); err != nil {
			return err
		}
		var asked, held, ahead, busy int64
		if err := t.Row(t.Ctx, queries.Permit, []any{r.Namespace, r.Model, r.ID}, &asked, &held); err != nil {
			return err
		}
		if held == 1 {
			out.Granted = true // granted before; the answer was lost
			return nil
		}
		if err := t.Row(t.Ctx, queries.Ahead, []any{r.Namespace, r.Model, asked, asked, r.ID}, &ahead); err != nil {
			return err
		}
		if err := t.Row(t.Ctx, queries.GrantedPermits, []any{r.Namespace, r.Model}, &busy); err != nil {
			return err
		}
		if out.Wait = level.wait(r, ahead); out.Wait > 0 || (r.Concurrent > 0 && busy+ahead >= r.Concurrent) {
			return setLimit(t, r, level)
		}
		out.Granted = true
		if r.Requests > 0 {
			level.requests -= million
		}
		if err := setLimit(t, r, level); err != nil {
			return err
		}
		return t.Write(t.Ctx, queries.GrantPermit, r.Namespace, r.Model, r.ID)
	}, permitWriter(r.Namespace, r.Model))
	if err != nil {
		return store.PermitAnswer{}, fmt.Errorf("permit of model %s/%s: %w", r.Namespace, r.Model, err)
	}
	return out, nil
}

// permitWriter returns the key that gathers a model's transactions at one writer, so that they do not wait for each
// other in the database.
func permitWriter(namespace, model string) string { return "model/" + namespace + "/" + model }

// level is what is left of a model's limits, in millionths.
type level struct{ requests, tokens, at int64 }

// lockLimit returns the present level. It locks the model's row until the transaction ends.
func lockLimit(t *txn.Tx, r store.PermitRequest) (l level, err error) {
	err = t.Row(t.Ctx, queries.LockLimit, []any{r.Namespace, r.Model}, &l.requests, &l.tokens, &l.at)
	if errors.Is(err, store.ErrNotFound) {
		if err = t.Write(t.Ctx, queries.LimitRow, r.Namespace, r.Model, r.Requests*million, r.Tokens*million, t.Now); err != nil {
			return l, err
		}
		err = t.Row(t.Ctx, queries.LockLimit, []any{r.Namespace, r.Model}, &l.requests, &l.tokens, &l.at)
	}
	if err != nil {
		return l, err
	}
	passed := min(max(t.Now-l.at, 0), longestRefill)
	l.requests = min(l.requests+passed*r.Requests/60, r.Requests*million)
	l.tokens = min(max(l.tokens+passed*r.Tokens/60, -longestDebt*r.Tokens*million), r.Tokens*million)
	l.at = max(l.at, t.Now)
	// Usage without a limit is not counted, so that a limit that is set later starts without debt.
	if r.Requests <= 0 {
		l.requests = 0
	}
	if r.Tokens <= 0 {
		l.tokens = 0
	}
	return l, nil
}

func setLimit(t *txn.Tx, r store.PermitRequest, l level) error {
	return t.Write(t.Ctx, queries.SetLimit, l.requests, l.tokens, l.at, r.Namespace, r.Model)
}

// wait returns how long it takes until a call behind ahead others may begin; 0 when it may begin now.
func (l level) wait(r store.PermitRequest, ahead int64) time.Duration {
	var micros int64
	if need := (ahead + 1) * million; r.Requests > 0 && l.requests < need {
		micros = (need-l.requests)*60/r.Requests + 1
	}
	if r.Tokens > 0 && l.tokens <= 0 {
		micros = max(micros, -l.tokens/r.Tokens*60+1)
	}
	return time.Duration(micros) * time.Microsecond
}

// RenewPermit implements store.PermitStore.
func (s Store) RenewPermit(ctx context.Context, namespace, model, id string, ttl time.Duration) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		n, err := t.Exec(t.Ctx, queries.RenewPermit, t.Now+ttl.Microseconds(), namespace, model, id)
		if err == nil && n == 0 {
			return fmt.Errorf("permit of model %s/%s: %w", namespace, model, store.ErrNotFound)
		}
		return err
	}, permitWriter(namespace, model))
}

// ReturnPermit implements store.PermitStore.
func (s Store) ReturnPermit(ctx context.Context, namespace, model, id string, tokens int64) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		if tokens > 0 {
			if err := t.Write(t.Ctx, queries.UseTokens, tokens*million, namespace, model); err != nil {
				return err
			}
		}
		return t.Write(t.Ctx, queries.DropPermit, namespace, model, id)
	}, permitWriter(namespace, model))
}

// Store gives out permits.
type Store struct{ DB *txn.DB }
