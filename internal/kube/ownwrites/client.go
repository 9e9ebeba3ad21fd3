// Package ownwrites bounds how long a client waits for its cache to show its own writes (docs/adr/0067-reads-after-writes.md).
package ownwrites

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

const (
	// waiting is how long a read waits for the cache. It is much longer than a watch takes to bring an event.
	waiting = 5 * time.Second
	// resting is how long no read of a type waits after one has waited in vain.
	resting = time.Minute
)

var givenUp = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "skein_cache_waits_given_up_total",
	Help: "Reads from the cache that did not wait any longer for the manager's own writes, by type.",
}, []string{"type"})

func init() { ctrlmetrics.Registry.MustRegister(givenUp) }

// Client reads from a cache that shows the client's own writes, and gives up waiting for them after a while: then it reads what the
// cache has. The client of controller-runtime waits without an end when an object that it has written is deleted while the watch is
// broken, and each list of its kind waits with it.
type Client struct {
	client.Client
	log        logr.Logger
	wait, rest time.Duration
	doubts     *doubts

	mu    sync.Mutex
	until map[string]time.Time // by type: reads do not wait until then
}

// New returns a client that reads through c, whose EnableReadYourWritesConsistency is set.
func New(c client.Client, log logr.Logger) *Client {
	return &Client{Client: c, log: log, wait: waiting, rest: resting, until: map[string]time.Time{}, doubts: newDoubts(doubting)}
}

// Get implements client.Reader.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.read(ctx, o, func(ctx context.Context) error { return c.Client.Get(ctx, key, o, opts...) }, func() error {
		c.doubts.add(doubtKey(o, key)) // before it is read: its change may come right after
		return c.Client.Get(ctx, key, o, append([]client.GetOption{client.DisableReadYourWritesConsistency}, opts...)...)
	})
}

// List implements client.Reader.
func (c *Client) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return c.read(ctx, l, func(ctx context.Context) error { return c.Client.List(ctx, l, opts...) }, func() error {
		return c.Client.List(ctx, l, append([]client.ListOption{client.DisableReadYourWritesConsistency}, opts...)...)
	})
}

// read reads with the wait for own writes, or without it when that takes too long.
func (c *Client) read(ctx context.Context, into any, patient func(context.Context) error, without func() error) error {
	kind := fmt.Sprintf("%T", into)
	if c.skipsWait(kind) {
		return without()
	}
	bounded, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	err := patient(bounded)
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return err
	}
	c.mu.Lock()
	c.until[kind] = time.Now().Add(c.rest)
	c.mu.Unlock()
	givenUp.WithLabelValues(kind).Inc()
	c.log.Info("The cache does not show a write of this manager; reads do not wait for it for a while", "type", kind, "while", c.rest.String())
	return without()
}

// skipsWait reports whether reads of a kind do not wait for own writes at present, because such a wait took too long.
func (c *Client) skipsWait(kind string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.until[kind])
}
