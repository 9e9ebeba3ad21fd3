// Package webhooks keeps the deliveries of webhooks. The transactions that they report write them.
package webhooks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Store implements store.WebhookStore.
type Store struct{ DB *txn.DB }

// maxText bounds texts of errors in a delivery.
const maxText = 2 << 10

// QueueOfThread queues deliveries of something that happened in a thread, for each webhook that wants to be told. An empty
// agent stands for the thread's own. subject says which of the thread's events it is, so that a repeat changes nothing.
func QueueOfThread(t *txn.Tx, h *txn.Head, event, agent, subject string, data func() map[string]any) error {
	if none, err := noWebhooks(t); none || err != nil {
		return err
	}
	body, err := encode(data())
	if err != nil {
		return err
	}
	h.Touch(store.ChangedDelivery)
	return t.Write(t.Ctx, queries.QueueOfThread, idOf(event, h.ID, subject), event, body, t.Now, t.Now, agent, agent, h.Key, pattern(event))
}

// QueueOfFiring queues deliveries of something that happened to a firing.
func QueueOfFiring(t *txn.Tx, f *store.Firing, event string, data map[string]any) error {
	if none, err := noWebhooks(t); none || err != nil {
		return err
	}
	body, err := encode(data)
	if err != nil {
		return err
	}
	t.Notifications = append(t.Notifications, deliveriesDue)
	subject := fmt.Sprintf("%s/%d", f.EffectID, f.Due)
	return t.Write(t.Ctx, queries.QueueOfFiring, idOf(event, f.ThreadID, subject), event, body, t.Now, t.Now, f.ThreadID, f.ThreadID, f.Namespace, pattern(event))
}

// noWebhooks reports whether there certainly are no webhooks. It asks only where the answer costs less than a statement that queues nothing.
func noWebhooks(t *txn.Tx) (bool, error) {
	if !t.OneWriter() {
		return false, nil
	}
	has, err := t.Fact(txn.HasWebhooks, func() (bool, error) {
		var one int
		return sqldb.Found(t.Row(t.Ctx, queries.AnyWebhook, nil, &one))
	})
	return !has, err
}

// deliveriesDue notifies subscribers that there may be deliveries that are due.
var deliveriesDue = store.Notification{EffectID: store.AnyEffect, Changed: store.ChangedDelivery}

func encode(data map[string]any) (string, error) {
	for k, v := range data {
		if text, ok := v.(string); ok && len(text) > maxText {
			data[k] = strings.ToValidUTF8(text[:maxText], "") + "…"
		}
	}
	body, err := json.Marshal(data)
	return string(body), err
}

// idOf returns the id of something that happened. It follows from what that is, so that a repeat has the same one.
func idOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

func pattern(event string) string { return "%," + event + ",%" }

// listOf returns texts in the form in which patterns find one of them.
func listOf(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return "," + strings.Join(texts, ",") + ","
}

// SetWebhooks implements store.WebhookStore.
func (s Store) SetWebhooks(ctx context.Context, all []store.Webhook) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		t.ForgetFact(txn.HasWebhooks)
		var have []string
		if err := t.Rows(t.Ctx, queries.Webhooks, nil, func(scan sqldb.Scanner) error {
			var id string
			err := scan(&id)
			have = append(have, id)
			return err
		}); err != nil {
			return err
		}
		keep := map[string]bool{}
		for _, w := range all {
			keep[w.ID] = true
			if err := t.Write(t.Ctx, queries.PutWebhook, w.ID, w.Namespace, w.Name, listOf(w.Events), listOf(w.Agents)); err != nil {
				return err
			}
		}
		for _, id := range have {
			if keep[id] {
				continue
			}
			if err := t.Write(t.Ctx, queries.DeleteWebhook, id); err != nil {
				return err
			}
			if err := t.Write(t.Ctx, queries.ForgetDeliveries, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func scan(scan sqldb.Scanner) (*store.Delivery, error) {
	var d store.Delivery
	var data string
	err := scan(&d.ID, &d.WebhookID, &d.Webhook, &d.Namespace, &d.Event, &d.ThreadID, &d.ThreadName, &d.Agent, &data, &d.Status, &d.Attempts,
		&d.Error, &d.Code, &d.CreatedAt, &d.AvailableAt, &d.EndedAt, &d.Epoch)
	d.Data = json.RawMessage(data)
	return &d, err
}

// NextDelivery implements store.WebhookStore.
func (s Store) NextDelivery(ctx context.Context) (wait time.Duration, pending bool, err error) {
	var at int64
	if err := s.DB.Readers.Row(ctx, queries.NextDelivery, nil, &at); err != nil || at == 0 {
		return 0, false, err
	}
	return time.Duration(at-s.DB.Now()) * time.Microsecond, true, nil
}

// ClaimDeliveries implements store.WebhookStore.
func (s Store) ClaimDeliveries(ctx context.Context, owner string, ttl time.Duration, room store.DeliveryCapacity) (claimed []store.Delivery, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		claimed = nil
		waiting, err := waitingWebhooks(t)
		if err != nil {
			return err
		}
		underWay, err := claimedOf(t)
		if err != nil {
			return err
		}
		of := maps.Clone(room.Busy)
		if of == nil {
			of = map[string]int{}
		}
		for len(claimed) < room.Free && len(waiting) > 0 {
			next := fairest(waiting, underWay)
			w, before := waiting[next], len(claimed)
			if room.Free-before <= room.Reserved && underWay[w.namespace] > 0 {
				break // so has every other namespace that waits
			}
			if of[w.id] < room.Each {
				if err := s.claimable(t, w.id, 1, &claimed); err != nil {
					return err
				}
			}
			if len(claimed) == before {
				waiting = slices.Delete(waiting, next, next+1)
				continue
			}
			d := &claimed[before]
			d.Attempts++
			d.Epoch++
			if err := t.Write(t.Ctx, queries.ClaimDelivery, owner, t.Now+ttl.Microseconds(), d.ID); err != nil {
				return err
			}
			of[w.id]++
			underWay[w.namespace]++
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("claim deliveries of webhooks: %w", err)
	}
	return claimed, nil
}

// waitingWebhook is a webhook with a delivery that is due.
type waitingWebhook struct{ id, namespace string }

// waitingWebhooks returns the webhooks with deliveries that are due, the longest due first.
func waitingWebhooks(t *txn.Tx) (waiting []waitingWebhook, err error) {
	err = t.Rows(t.Ctx, queries.WaitingWebhooks, []any{t.Now}, func(scan sqldb.Scanner) error {
		var w waitingWebhook
		var since int64
		err := scan(&w.id, &w.namespace, &since)
		waiting = append(waiting, w)
		return err
	})
	return waiting, err
}

// claimedOf returns how many deliveries of each namespace are under way, on all replicas.
func claimedOf(t *txn.Tx) (claimed map[string]int, err error) {
	claimed = map[string]int{}
	err = t.Rows(t.Ctx, queries.ClaimedDeliveries, []any{t.Now}, func(scan sqldb.Scanner) error {
		var namespace string
		var n int
		err := scan(&namespace, &n)
		claimed[namespace] = n
		return err
	})
	return claimed, err
}

// fairest returns the place of the webhook whose turn it is: the first one of the namespace with the fewest deliveries under way. So a
// namespace whose webhooks are slow, however many they are, holds up no other one.
func fairest(waiting []waitingWebhook, underWay map[string]int) (place int) {
	for i, w := range waiting {
		if underWay[w.namespace] < underWay[waiting[place].namespace] {
			place = i
		}
	}
	return place
}

func (s Store) claimable(t *txn.Tx, webhook string, n int, into *[]store.Delivery) error {
	query := queries.ClaimableDeliveries
	if s.DB.Dialect.ManyWriters {
		query += ` FOR UPDATE SKIP LOCKED`
	}
	return t.Rows(t.Ctx, query, []any{webhook, t.Now, n}, func(sc sqldb.Scanner) error {
		d, err := scan(sc)
		if err == nil {
			*into = append(*into, *d)
		}
		return err
	})
}

// FinishDelivery implements store.WebhookStore.
func (s Store) FinishDelivery(ctx context.Context, end store.DeliveryEnd) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		var ended int64
		if end.Status != store.DeliveryPending {
			ended = t.Now
		}
		var uncounted int // the claim has counted the attempt
		if end.NotTried {
			uncounted = 1
		}
		n, err := t.Exec(t.Ctx, queries.FinishDelivery, string(end.Status), end.Error, end.Code, ended, t.Now+end.RetryAfter.Microseconds(), uncounted, end.ID, end.Epoch)
		if err == nil && n == 0 {
			return fmt.Errorf("delivery %s: %w", end.ID, store.ErrDeliveryLost)
		}
		return err
	})
}

// ReleaseDeliveries implements store.WebhookStore.
func (s Store) ReleaseDeliveries(ctx context.Context, owner string) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		t.Notifications = append(t.Notifications, deliveriesDue)
		return t.Write(t.Ctx, queries.ReleaseDeliveries, t.Now, owner)
	})
}

// Redeliver implements store.WebhookStore.
func (s Store) Redeliver(ctx context.Context, namespace, id string) (d *store.Delivery, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		n, err := t.Exec(t.Ctx, queries.Redeliver, t.Now, namespace, id)
		if err == nil && n == 0 {
			err = store.ErrNotFound
		}
		if err != nil {
			return err
		}
		t.Notifications = append(t.Notifications, deliveriesDue)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("delivery %s: %w", id, err)
	}
	return sqldb.ReadOne(ctx, s.DB.Readers, scan, queries.Delivery, namespace, id)
}

// Deliveries implements store.WebhookStore.
func (s Store) Deliveries(ctx context.Context, q store.DeliveryQuery) ([]store.Delivery, error) {
	query, args := `SELECT `+queries.DeliveryColumns+` FROM webhook_delivery WHERE namespace = ?`, []any{q.Namespace}
	if q.Webhook != "" {
		query, args = query+` AND name = ?`, append(args, q.Webhook)
	}
	if q.Status != "" {
		query, args = query+` AND status = ?`, append(args, string(q.Status))
	}
	if q.Before != nil {
		query, args = query+` AND (created_at, id) < (?, ?)`, append(args, q.Before.CreatedAt, q.Before.ID)
	}
	list, err := sqldb.ReadList(ctx, s.DB.Readers, scan, query+` ORDER BY created_at DESC, id DESC LIMIT ?`, append(args, sqldb.PageSize(q.Limit))...)
	if err != nil {
		return nil, fmt.Errorf("deliveries of webhooks: %w", err)
	}
	return list, nil
}

// PruneDeliveries implements store.WebhookStore.
func (s Store) PruneDeliveries(ctx context.Context, delivered, dead time.Duration) (removed int64, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		ended, err := t.Exec(t.Ctx, queries.PruneDeliveries, t.Now-delivered.Microseconds(), t.Now-dead.Microseconds())
		if err != nil {
			return err
		}
		orphans, err := t.Exec(t.Ctx, queries.PruneOrphans)
		removed = ended + orphans
		return err
	})
	return removed, err
}
