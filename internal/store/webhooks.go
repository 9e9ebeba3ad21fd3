package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// ErrDeliveryLost means that the caller no longer holds the delivery that it claimed, or that the delivery is gone. Nothing was written.
var ErrDeliveryLost = errors.New("the delivery is held by another, or is gone")

// Events that webhooks are told of (EVT-05).
const (
	WebhookRunEnded       = "run.ended"
	WebhookApprovalWanted = "approval.wanted"
	WebhookEffectFailed   = "effect.failed"
)

// Webhook is a Webhook object with the events that it subscribes to.
type Webhook struct {
	ID        string // UID of the object
	Namespace string
	Name      string
	Events    []string
	Agents    []string // all when empty
}

// DeliveryStatus is the status of a delivery.
type DeliveryStatus string

// The statuses of deliveries.
const (
	DeliveryPending   DeliveryStatus = "pending"
	DeliveryDelivered DeliveryStatus = "delivered"
	DeliveryDead      DeliveryStatus = "dead" // given up, until a person redelivers it
)

// Delivery is something that a webhook is told.
type Delivery struct {
	ID          string // of the webhook and of what happened
	WebhookID   string
	Webhook     string // name of the object
	Namespace   string
	Event       string
	ThreadID    string
	ThreadName  string
	Agent       string
	Data        json.RawMessage
	Status      DeliveryStatus
	Attempts    int
	Error       string
	Code        int // of the last answer; 0 without one
	CreatedAt   int64
	AvailableAt int64
	EndedAt     int64
	// Epoch rises with each claim. The holder of an older epoch can record nothing.
	Epoch int64
}

// DeliveryEnd is the outcome of an attempt. With DeliveryPending there is another one after RetryAfter.
type DeliveryEnd struct {
	ID         string
	Epoch      int64
	Status     DeliveryStatus
	Error      string
	Code       int
	RetryAfter time.Duration
	// NotTried says that nothing was sent. The attempt then does not count.
	NotTried bool
}

// DeliveryQuery selects deliveries of a namespace, the newest first.
type DeliveryQuery struct {
	Namespace string
	Webhook   string         // all when empty
	Status    DeliveryStatus // all when empty
	// Before is the delivery after which the page begins; the newest when nil.
	Before *DeliveryCursor
	Limit  int // 100 when 0
}

// DeliveryCursor is the place of a delivery in the list.
type DeliveryCursor struct {
	CreatedAt int64
	ID        string
}

// DeliveryCapacity says how many deliveries may be claimed.
type DeliveryCapacity struct {
	// Free is how many may be in all. The last Reserved of them are for namespaces of which nothing is under way on any replica.
	Free, Reserved int
	// Each is how many of one webhook may be under way here, and Busy how many are, by the webhook's id.
	Each int
	Busy map[string]int
}

// WebhookStore keeps the deliveries of webhooks. The transactions that they report write them: those that end a run, log a
// requested approval, or record that a firing of an effect failed.
type WebhookStore interface {
	// SetWebhooks replaces the webhooks. Deliveries of those that are gone are removed.
	SetWebhooks(ctx context.Context, all []Webhook) error
	// NextDelivery returns how long until the next pending delivery can be claimed, by the store's clock: 0 or less when it can be now. It
	// reports whether there is one.
	NextDelivery(ctx context.Context) (wait time.Duration, pending bool, err error)
	// ClaimDeliveries claims pending deliveries without a claim for ttl, as far as there is room, and counts an attempt of each. Deliveries of
	// the namespace with the fewest claims come first, and within a namespace the oldest.
	ClaimDeliveries(ctx context.Context, owner string, ttl time.Duration, room DeliveryCapacity) ([]Delivery, error)
	// FinishDelivery records the outcome of an attempt. It returns ErrDeliveryLost when the claim is lost.
	FinishDelivery(ctx context.Context, end DeliveryEnd) error
	// ReleaseDeliveries gives up the claims of an owner at its shutdown. Their attempts do not count.
	ReleaseDeliveries(ctx context.Context, owner string) error
	// Redeliver makes a dead or delivered delivery pending again, with all its attempts. A pending one is due at once. It
	// returns ErrNotFound when the namespace has no such delivery.
	Redeliver(ctx context.Context, namespace, id string) (*Delivery, error)
	// Deliveries lists deliveries.
	Deliveries(ctx context.Context, q DeliveryQuery) ([]Delivery, error)
	// PruneDeliveries removes deliveries that were delivered, or given up, longer ago than these times by the store's clock, and those that wait
	// for a webhook that is gone.
	PruneDeliveries(ctx context.Context, delivered, dead time.Duration) (removed int64, err error)
}
