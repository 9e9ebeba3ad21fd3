package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// Target is a Webhook that can be told something.
type Target struct {
	URL         *url.URL
	Keys        [][]byte
	MaxAttempts int
}

// Targets finds Webhooks.
type Targets interface {
	// Find returns the Webhook with this name and UID, or why it cannot be used now.
	Find(ctx context.Context, namespace, name, uid string) (*Target, error)
}

// Options are the options of a Sender. All but Secrets are required.
type Options struct {
	Store   store.Store
	Targets Targets
	Network *outbound.Network
	Clock   clock.Clock
	Log     logr.Logger
	// Owner names this replica in claims.
	Owner string
	// Clean removes secrets of a namespace from texts. It may be nil.
	Clean func(namespace, text string) string
}

const (
	atOnce       = 8                // requests of a replica under way
	atOnceOfOne  = 2                // of them to one Webhook, so that a slow one does not hold up others
	reserved     = 2                // of them for namespaces of which none is under way, so that slow Webhooks of one hold up no other
	attemptTime  = 15 * time.Second // one request
	recordTime   = 5 * time.Second  // to record how it ended
	claimTime    = time.Minute      // after which others may take a delivery
	lookAnyway   = 30 * time.Second // without a notification, because notifications may be lost
	claimAgain   = time.Second      // while what is due finds no room, because something else may become due that does
	firstWait    = 5 * time.Second  // before the second attempt
	longestWait  = 6 * time.Hour
	unusableWait = time.Minute // while the Webhook cannot be used
	keptDone     = 24 * time.Hour
	keptDead     = 30 * 24 * time.Hour
	pruneEvery   = time.Hour
	maxAnswer    = 512 // bytes of an answer that the error has
	maxRetryWait = 24 * time.Hour
)

// Sender sends what the store has for Webhooks. Every replica runs one, and a claim holds a delivery. After a crash the
// claim expires and the delivery is sent again with the same id.
type Sender struct {
	Options
	wake   chan struct{}
	mu     sync.Mutex
	busy   map[string]int // requests under way, by Webhook
	all    int
	group  sync.WaitGroup
	pruned time.Time
}

// NewSender returns a Sender. Start makes it send.
func NewSender(o Options) *Sender {
	return &Sender{Options: o, wake: make(chan struct{}, 1), busy: map[string]int{}}
}

// NeedLeaderElection returns false: every replica sends.
func (*Sender) NeedLeaderElection() bool { return false }

// Start sends until ctx ends.
func (s *Sender) Start(ctx context.Context) error {
	defer s.Store.Subscribe(func(n store.Notification) {
		if n.Changed&store.ChangedDelivery != 0 {
			s.signal()
		}
	})()
	defer func() {
		s.group.Wait()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := s.Store.ReleaseDeliveries(last, s.Owner); err != nil {
			s.Log.Info("Claims of deliveries were not given up, so they expire later", "error", err.Error())
		}
	}()
	for {
		wait := s.round(ctx)
		timer := s.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-s.wake:
		case <-timer.C():
		}
		timer.Stop()
	}
}

func (s *Sender) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// round claims what is due and begins to send it. It returns when to look again.
func (s *Sender) round(ctx context.Context) time.Duration {
	next, pending, err := s.Store.NextDelivery(ctx) // by the store's clock, from which the process's own may differ
	if err == nil && pending && next <= 0 {
		if busy, free := s.underWay(); free > 0 { // otherwise the end of a request looks again
			var claimed []store.Delivery
			if claimed, err = s.Store.ClaimDeliveries(ctx, s.Owner, claimTime, store.DeliveryCapacity{Free: free, Reserved: reserved, Each: atOnceOfOne, Busy: busy}); err == nil {
				s.begin(ctx, claimed)
				if len(claimed) == 0 {
					return claimAgain
				}
				return 0
			}
		}
	}
	if now := s.Clock.Now(); err == nil && now.Sub(s.pruned) > pruneEvery {
		s.pruned = now
		_, err = s.Store.PruneDeliveries(ctx, keptDone, keptDead)
	}
	switch {
	case ctx.Err() != nil:
		return lookAnyway
	case err != nil:
		s.Log.Error(err, "Deliveries of webhooks cannot be read; they are sent later")
		return firstWait
	case pending && next > 0:
		return min(lookAnyway, next)
	}
	return lookAnyway
}

func (s *Sender) underWay() (busy map[string]int, free int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	busy = make(map[string]int, len(s.busy))
	for id, n := range s.busy {
		busy[id] = n
	}
	return busy, atOnce - s.all
}

func (s *Sender) begin(ctx context.Context, claimed []store.Delivery) {
	for i := range claimed {
		d := &claimed[i]
		s.count(d.WebhookID, 1)
		s.group.Go(func() {
			defer s.signal()
			defer s.count(d.WebhookID, -1)
			s.attempt(ctx, d)
		})
	}
}

func (s *Sender) count(webhook string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all += n
	if s.busy[webhook] += n; s.busy[webhook] == 0 {
		delete(s.busy, webhook)
	}
}

// attempt sends a delivery once and records how that ended. While its Webhook cannot be used, attempt sends nothing, and that does not
// count. Once it has begun, it goes on also when the sender is stopped: the server has the request then, and would get it again. Its own
// limits of time let it end before the process does.
func (s *Sender) attempt(ctx context.Context, d *store.Delivery) {
	if ctx.Err() != nil {
		return // the claim is given up, and the attempt does not count
	}
	ctx = context.WithoutCancel(ctx)
	end := store.DeliveryEnd{ID: d.ID, Epoch: d.Epoch, Status: store.DeliveryDelivered}
	target, err := s.Targets.Find(ctx, d.Namespace, d.Webhook, d.WebhookID)
	if err == nil {
		var wait time.Duration
		end.Code, wait, err = s.post(ctx, target, d)
		end.RetryAfter = max(wait, backoff(d.Attempts))
	} else { // it heals by an edit; when the Webhook is gone, its deliveries go with it
		end.NotTried, end.RetryAfter = true, around(unusableWait)
	}
	if err != nil {
		end.Error, end.Status = err.Error(), store.DeliveryPending
		if s.Clean != nil {
			end.Error = s.Clean(d.Namespace, end.Error)
		}
		if !end.NotTried && (d.Attempts >= target.MaxAttempts || end.Code == http.StatusGone || neverReached(err)) {
			end.Status = store.DeliveryDead
		}
	}
	record, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	if err := s.Store.FinishDelivery(record, end); err != nil && !errors.Is(err, store.ErrDeliveryLost) {
		s.Log.Error(err, "The end of a delivery was not recorded, so it is sent again", "delivery", d.ID)
	}
	if !end.NotTried {
		sent.WithLabelValues(d.Event, string(end.Status)).Inc()
	}
}

// neverReached reports whether an error says that no attempt can reach an address, such as a loopback address.
func neverReached(err error) bool {
	var refused *outbound.RefusedError
	return errors.As(err, &refused) && refused.Final
}

// backoff returns how long to wait after an attempt: 5 s, 20 s, 80 s and so on up to 6 h, and up to a quarter more or less.
func backoff(attempts int) time.Duration {
	wait := firstWait
	for range attempts - 1 {
		if wait *= 4; wait >= longestWait {
			wait = longestWait
			break
		}
	}
	return around(wait)
}

// around returns a time of up to a quarter more or less, so that what waits is not tried all at once.
func around(wait time.Duration) time.Duration { return wait*3/4 + rand.N(wait/2) }

// body is what a server outside gets.
type body struct {
	Type      string          `json:"type"`
	Timestamp string          `json:"timestamp"` // of what happened
	Namespace string          `json:"namespace"`
	Thread    *bodyThread     `json:"thread,omitempty"`
	Data      json.RawMessage `json:"data"`
}

type bodyThread struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Agent string `json:"agent"`
}

// bodyOf returns the body of a delivery. It is the same for each attempt.
func bodyOf(d *store.Delivery) ([]byte, error) {
	b := body{Type: d.Event, Timestamp: time.UnixMicro(d.CreatedAt).UTC().Format(time.RFC3339Nano), Namespace: d.Namespace, Data: d.Data}
	if d.ThreadID != "" {
		b.Thread = &bodyThread{ID: d.ThreadID, Name: d.ThreadName, Agent: d.Agent}
	}
	return json.Marshal(b)
}

// post sends a delivery. wait is how long the server asked to wait.
func (s *Sender) post(ctx context.Context, t *Target, d *store.Delivery) (code int, wait time.Duration, err error) {
	content, err := bodyOf(d)
	if err != nil {
		return 0, 0, err
	}
	scope := s.Network.ForWebhooks(d.Namespace)
	if err := scope.Check(t.URL); err != nil {
		return 0, 0, err
	}
	if err := scope.Judge(ctx, t.URL); neverReached(err) {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, attemptTime, fmt.Errorf("the server did not answer within %s", attemptTime))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL.String(), bytes.NewReader(content))
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Skein-Webhook/1")
	Sign(req.Header, t.Keys, d.ID, s.Clock.Now(), content)
	c := http.Client{Transport: scope, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return 0, 0, cause
		}
		return 0, 0, errors.New(cmp.Or(outbound.Explain(err, t.URL.Host), "the request failed"))
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode/100 == 2 {
		return resp.StatusCode, 0, nil
	}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		wait = min(time.Duration(n)*time.Second, maxRetryWait)
	}
	return resp.StatusCode, wait, fmt.Errorf("the server answered %s: %q", resp.Status, bytes.ToValidUTF8(text, nil))
}
