// Package quotas counts what namespaces use, and holds them to their quotas over all replicas (K8S-11). A transaction counts at its end, while
// it has locked the row of the namespace, so that transactions at the same time cannot exceed a quota together.
package quotas

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Store enforces the quotas of namespaces.
type Store struct{ DB *txn.DB }

// LimitNamespaces implements store.QuotaStore.
func (s Store) LimitNamespaces(of func(namespace string) store.Quotas) { s.DB.LimitNamespaces(of) }

// enforce makes the transaction fail at its end with a *store.NamespaceQuotaError if the namespace then uses more of a resource than its quota
// allows. The query returns how much it uses, including what the transaction has written.
func enforce(t *txn.Tx, namespace string, r store.QuotaResource, query string, args ...any) {
	limit, ok := t.Quotas(namespace)[r]
	if !ok {
		return
	}
	t.AtEnd(namespace, string(r), func() error {
		var n int64
		if err := t.Row(t.Ctx, query, args, &n); err != nil {
			return err
		}
		if n > limit.Hard {
			return &store.NamespaceQuotaError{Namespace: namespace, Resource: r, QuotaLimit: limit}
		}
		return nil
	})
}

// Threads enforces the quota of threads of a namespace. It is for a transaction that inserts one.
func Threads(t *txn.Tx, namespace string) {
	enforce(t, namespace, store.QuotaThreads, queries.CountThreads, namespace)
}

// Bytes enforces the quota of bytes of files of a namespace. It is for a transaction that adds some.
func Bytes(t *txn.Tx, namespace string) {
	enforce(t, namespace, store.QuotaBytes, queries.SumBytes, namespace)
}

// Messages enforces the quota of bytes of messages of a namespace. It is for a transaction that adds some.
func Messages(t *txn.Tx, namespace string) {
	enforce(t, namespace, store.QuotaMessageBytes, queries.SumMessages, namespace)
}

// MessagesUsedUp returns a *store.NamespaceQuotaError when the namespace has used up its bytes of messages. It locks nothing: what is to
// be queued counts later, when a run takes it in.
func MessagesUsedUp(t *txn.Tx, namespace string) error {
	limit, ok := t.Quotas(namespace)[store.QuotaMessageBytes]
	if !ok {
		return nil
	}
	var n int64
	if err := t.Row(t.Ctx, queries.SumMessages, []any{namespace}, &n); err != nil {
		return err
	}
	if n >= limit.Hard {
		return &store.NamespaceQuotaError{Namespace: namespace, Resource: store.QuotaMessageBytes, QuotaLimit: limit}
	}
	return nil
}

// CountRunning implements store.QuotaStore.
func (s Store) CountRunning(ctx context.Context, f *store.Fence) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		h, err := t.Head(f.ThreadID)
		if err != nil {
			return err
		}
		if err := t.CheckFence(h, f); err != nil {
			return err
		}
		if err := t.Write(t.Ctx, queries.MarkRunning, h.Namespace, h.Key); err != nil {
			return err
		}
		enforce(t, h.Namespace, store.QuotaRunningThreads, queries.CountRunning, h.Namespace, t.Now)
		return nil
	}, f.ThreadID)
}

// Spend counts what a thread used since before, when its namespace has a quota of tokens or cost.
func Spend(t *txn.Tx, h *txn.Head, before, after json.RawMessage) error {
	if len(after) == 0 || string(before) == string(after) {
		return nil
	}
	limits := t.Quotas(h.Namespace)
	_, tokens := limits[store.QuotaTokens]
	_, cost := limits[store.QuotaCost]
	if !tokens && !cost {
		return nil
	}
	was, is := spent(before), spent(after)
	if is.tokens <= was.tokens && is.cost <= was.cost {
		return nil
	}
	return t.Write(t.Ctx, queries.AddDay, h.Namespace, day(t.Now), h.ID, max(is.tokens-was.tokens, 0), max(is.cost-was.cost, 0))
}

type use struct{ tokens, cost int64 }

// spent reads what a run used. Usage in another form counts as none.
func spent(usage json.RawMessage) use {
	var u store.RunUsage
	if len(usage) > 0 {
		_ = json.Unmarshal(usage, &u)
	}
	return use{u.InputTokens + u.OutputTokens, int64(math.Round(u.Cost * 1e9))}
}

// day returns the number of days since 1970, in UTC.
func day(micros int64) int64 { return micros / (24 * time.Hour).Microseconds() }

// QuotaUse implements store.QuotaStore.
func (s Store) QuotaUse(ctx context.Context, namespace string, of ...store.QuotaResource) (map[store.QuotaResource]int64, error) {
	use := map[store.QuotaResource]int64{}
	err := s.DB.Readers.Snapshot(ctx, func(c *sqldb.Conn) error {
		clear(use)
		now := s.DB.Now()
		for _, read := range []struct {
			of    []store.QuotaResource
			query string
			args  []any
		}{
			{[]store.QuotaResource{store.QuotaThreads}, queries.CountThreads, []any{namespace}},
			{[]store.QuotaResource{store.QuotaRunningThreads}, queries.CountRunning, []any{namespace, now}},
			{[]store.QuotaResource{store.QuotaBytes}, queries.SumBytes, []any{namespace}},
			{[]store.QuotaResource{store.QuotaMessageBytes}, queries.SumMessages, []any{namespace}},
			{[]store.QuotaResource{store.QuotaTokens, store.QuotaCost}, queries.SumDay, []any{namespace, day(now)}},
		} {
			if len(of) > 0 && !slices.ContainsFunc(read.of, func(r store.QuotaResource) bool { return slices.Contains(of, r) }) {
				continue
			}
			n := make([]int64, len(read.of))
			into := make([]any, len(read.of))
			for i := range n {
				into[i] = &n[i]
			}
			if err := c.Row(ctx, read.query, read.args, into...); err != nil {
				return err
			}
			for i, r := range read.of {
				use[r] = n[i]
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count what namespace %s uses: %w", namespace, err)
	}
	return use, nil
}

// ClaimQuota implements store.QuotaStore.
func (s Store) ClaimQuota(ctx context.Context, c store.QuotaClaim) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		t.AtEnd(c.Namespace, "", func() error { return claim(t, c) })
		return nil
	}, "quota/"+c.Namespace)
}

// claim puts a claim while the namespace is locked.
func claim(t *txn.Tx, c store.QuotaClaim) error {
	claimed, err := sqldb.Column[string](t.Ctx, t, queries.ClaimNames, c.Namespace, string(c.Resource), t.Now)
	if err != nil || slices.Contains(claimed, c.Name) {
		return err
	}
	if c.Count(claimed) >= c.Limit.Hard {
		return &store.NamespaceQuotaError{Namespace: c.Namespace, Resource: c.Resource, QuotaLimit: c.Limit}
	}
	return t.Write(t.Ctx, queries.PutClaim, c.Namespace, string(c.Resource), c.Name, t.Now+c.TTL.Microseconds())
}

// ReleaseQuota implements store.QuotaStore.
func (s Store) ReleaseQuota(ctx context.Context, namespace string, resource store.QuotaResource, name string) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		t.AtEnd(namespace, "", func() error { return t.Write(t.Ctx, queries.DropClaim, namespace, string(resource), name) })
		return nil
	}, "quota/"+namespace)
}

// SweepQuotas implements store.QuotaStore.
func (s Store) SweepQuotas(ctx context.Context) error {
	if err := s.sweepClaims(ctx); err != nil {
		return err
	}
	if err := s.DB.Writer.Do(ctx, func(t *txn.Tx) error { return t.Write(t.Ctx, queries.SweepDays, day(t.Now)-1) }); err != nil {
		return err
	}
	if err := s.countRestored(ctx); err != nil {
		return err
	}
	return s.countOldMessages(ctx)
}

// sweepClaims removes the claims that have expired, those of each namespace while that is locked, as all writers of claims do.
func (s Store) sweepClaims(ctx context.Context) error {
	namespaces, err := sqldb.ReadColumn[string](ctx, s.DB.Readers, queries.ExpiredClaims, s.DB.Now())
	if err != nil {
		return fmt.Errorf("look for claims that have expired: %w", err)
	}
	for _, namespace := range namespaces {
		if err := s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
			t.AtEnd(namespace, "", func() error { return t.Write(t.Ctx, queries.SweepClaims, namespace, t.Now) })
			return nil
		}, "quota/"+namespace); err != nil {
			return err
		}
	}
	return nil
}

// Await records what a thread waits for.
func Await(t *txn.Tx, h *txn.Head, op *store.AwaitQuota) error {
	n, err := t.Exec(t.Ctx, queries.SetWaits, op.Message, h.Key, op.Message)
	if err == nil && n > 0 {
		h.Touch(store.ChangedThread)
	}
	return err
}
