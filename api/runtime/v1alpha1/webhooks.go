package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WebhookDelivery is something that a Webhook is told.
type WebhookDelivery struct {
	// ID is the webhook-id of each attempt.
	ID string `json:"id"`
	// Webhook is the name of the Webhook object.
	Webhook string `json:"webhook"`
	// Event is run.ended, approval.wanted or effect.failed.
	Event string `json:"event"`
	// ThreadID and ThreadName are the thread that it is about. They are absent for an effect without a thread.
	ThreadID   string `json:"threadId,omitempty"`
	ThreadName string `json:"threadName,omitempty"`
	// AgentID is the agent of that thread.
	AgentID string `json:"agentId,omitempty"`
	// Data is what the body has in data.
	Data json.RawMessage `json:"data"`
	// Status is pending, delivered or dead.
	Status string `json:"status"`
	// Attempts is how often it was tried since it was made or redelivered.
	Attempts int `json:"attempts"`
	// Error says how the last attempt failed, and Code is the status of the last answer.
	Error string `json:"error,omitempty"`
	Code  int    `json:"code,omitempty"`
	// CreatedAt is when it happened, in microseconds.
	CreatedAt int64 `json:"createdAt"`
	// NextAt is when a pending delivery is tried again, in microseconds.
	NextAt int64 `json:"nextAt,omitempty"`
	// EndedAt is when it was delivered or given up, in microseconds.
	EndedAt int64 `json:"endedAt,omitempty"`
}

// WebhookDeliveryList is a page of deliveries, the newest first.
type WebhookDeliveryList struct {
	metav1.TypeMeta `json:",inline"`
	// Deliveries is the page.
	Deliveries []WebhookDelivery `json:"deliveries"`
	// HasMore reports whether older deliveries follow.
	HasMore bool `json:"hasMore"`
	// Continue is the parameter continue of the next page.
	Continue string `json:"continue,omitempty"`
}

// Statuses of deliveries.
const (
	DeliveryPending   = "pending"
	DeliveryDelivered = "delivered"
	DeliveryDead      = "dead"
)

// ActionRedeliver is the path below a delivery that sends it again.
const ActionRedeliver = "redeliver"

// Kinds of deliveries.
const (
	KindWebhookDelivery     = "WebhookDelivery"
	KindWebhookDeliveryList = "WebhookDeliveryList"
)
