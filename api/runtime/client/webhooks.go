package client

import (
	"context"
	"net/http"
	"strconv"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// DeliveryPage selects a page of deliveries. The zero value is the first page.
type DeliveryPage struct {
	// Webhook is the name of a Webhook; all when empty.
	Webhook string
	// Status is runtimev1.DeliveryPending, DeliveryDelivered or DeliveryDead; all when empty.
	Status string
	// Continue is WebhookDeliveryList.Continue of the page before.
	Continue string
	// Limit of the page; 100 when 0.
	Limit int
}

// WebhookDeliveries returns a page of what the Webhooks of a namespace are told, the newest first (EVT-05).
func (c *Client) WebhookDeliveries(ctx context.Context, namespace string, page DeliveryPage) (*runtimev1.WebhookDeliveryList, error) {
	params := map[string]string{}
	for name, v := range map[string]string{"webhook": page.Webhook, "status": page.Status, "continue": page.Continue} {
		if v != "" {
			params[name] = v
		}
	}
	if page.Limit != 0 {
		params["limit"] = strconv.Itoa(page.Limit)
	}
	return viewAs[runtimev1.WebhookDeliveryList](ctx, c, params, namespace, runtimev1.ViewWebhookDeliveries)
}

// Redeliver sends a delivery again, with the same id. The error is one that IsNotFound when there is no such delivery.
func (c *Client) Redeliver(ctx context.Context, namespace, id string) (*runtimev1.WebhookDelivery, error) {
	r, err := c.viewRequest(http.MethodPost, namespace, runtimev1.ViewWebhookDeliveries, id, runtimev1.ActionRedeliver)
	if err != nil {
		return nil, err
	}
	return getAs[runtimev1.WebhookDelivery](ctx, r)
}
