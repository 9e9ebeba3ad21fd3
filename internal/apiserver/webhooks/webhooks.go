// Package webhooks serves the deliveries of Webhooks: delivered, pending and given up.
package webhooks

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
)

// Handler serves deliveries.
type Handler struct{ Store store.WebhookStore }

// List answers GET webhookdeliveries of a namespace, the newest first (EVT-05).
func (h *Handler) List(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	dq := store.DeliveryQuery{Namespace: c.Namespace, Webhook: q.Text("webhook"), Limit: q.Number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)}
	dq.Status = store.DeliveryStatus(q.OneOf("status", string(store.DeliveryPending), string(store.DeliveryDelivered), string(store.DeliveryDead)))
	dq.Before = cursor(q, "continue")
	if err := q.Check(); err != nil {
		return err
	}
	limit := dq.Limit
	dq.Limit++
	found, err := h.Store.Deliveries(c.Context(), dq)
	if err != nil {
		return err
	}
	page, more := call.Cut(found, limit, 0)
	list := runtimev1.WebhookDeliveryList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindWebhookDeliveryList), Deliveries: []runtimev1.WebhookDelivery{}, HasMore: more}
	for i := range page {
		list.Deliveries = append(list.Deliveries, deliveryOf(&page[i]))
	}
	if more {
		last := &page[len(page)-1]
		list.Continue = strconv.FormatInt(last.CreatedAt, 10) + "." + last.ID
	}
	return c.WriteJSON(http.StatusOK, list)
}

// Redeliver answers POST webhookdeliveries/{id}/redeliver: the delivery is sent again, with the same id.
func (h *Handler) Redeliver(c *call.Call) error {
	d, err := h.Store.Redeliver(c.Context(), c.Namespace, c.Name)
	if errors.Is(err, store.ErrNotFound) {
		return status.NotFound(c.Name, "the namespace has no delivery %q: it was removed, or never was; GET webhookdeliveries lists those that exist", c.Name)
	}
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, deliveryOf(d))
}

func deliveryOf(d *store.Delivery) runtimev1.WebhookDelivery {
	return runtimev1.WebhookDelivery{
		ID: d.ID, Webhook: d.Webhook, Event: d.Event, ThreadID: d.ThreadID, ThreadName: d.ThreadName, AgentID: d.Agent, Data: d.Data,
		Status: string(d.Status), Attempts: d.Attempts, Error: d.Error, Code: d.Code, CreatedAt: d.CreatedAt, NextAt: nextAttempt(d), EndedAt: d.EndedAt,
	}
}

// nextAttempt returns when a pending delivery is sent next, or 0 when it has ended.
func nextAttempt(d *store.Delivery) int64 {
	if d.Status == store.DeliveryPending {
		return d.AvailableAt
	}
	return 0
}

// cursor parses the place of a delivery in the list. It returns nil when the parameter is absent.
func cursor(q *call.Query, key string) *store.DeliveryCursor {
	v, ok := q.Get(key)
	if !ok || v == "" {
		return nil
	}
	at, id, found := strings.Cut(v, ".")
	n, err := strconv.ParseInt(at, 10, 64)
	if !found || err != nil || n < 0 || id == "" {
		q.Bad(key, "%q is not the value of continue in the previous page", v)
		return nil
	}
	return &store.DeliveryCursor{CreatedAt: n, ID: id}
}
