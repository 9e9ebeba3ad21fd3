package notify

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

const (
	channel = "skein_hints" // the name that all releases listen to
	// maxNotice limits the size of a notification in bytes; PostgreSQL's limit is 8000.
	maxNotice = 7500
	// noticeGap is how long notifications are gathered after some were sent.
	noticeGap = 5 * time.Millisecond
	// lastWords is how long a replica that ends tries to tell what it has just done, such as the release of its leases.
	lastWords = time.Second
	// firstReconnect and maxReconnect are the shortest and the longest wait before a lost connection is opened again.
	firstReconnect = 50 * time.Millisecond
	maxReconnect   = 2 * time.Second
)

// missedNotification says that any change may have been missed.
var missedNotification = store.Notification{Changed: store.ChangedThread | store.ChangedInbox | store.ChangedLog | store.ChangedFiring | store.ChangedStop | store.ChangedTasks | store.ChangedDelivery, Remote: true}

// Notices exchanges notifications with the other replicas of a PostgreSQL database.
//
// They are not sent within the transactions that they are about: PostgreSQL lets only one transaction with a
// notification commit at a time, from before its sync of the disk until after it. When the process ends between the
// commit and the notification, the notification is lost, which only delays work.
//
// mu guards pending. One goroutine listens and one sends; close waits for both.
type Notices struct {
	config *pgx.ConnConfig
	clock  *sqldb.Clock
	lost   *atomic.Int64 // counts lost connections
	hear   func([]store.Notification)
	origin string // identifies this replica's notifications

	mu      sync.Mutex
	pending map[subject]store.Change
	wake    chan struct{}

	stop context.CancelFunc
	done sync.WaitGroup
}

// Start begins to exchange notifications. hear gets those of other replicas; lost counts lost connections.
func Start(config *pgx.ConnConfig, clock *sqldb.Clock, lost *atomic.Int64, hear func([]store.Notification)) *Notices {
	ctx, stop := context.WithCancel(context.Background())
	n := &Notices{config: config, clock: clock, lost: lost, hear: hear, origin: rand.Text()[:10], pending: map[subject]store.Change{}, wake: make(chan struct{}, 1), stop: stop}
	n.done.Go(func() { n.keepConnected(ctx, n.listen) })
	n.done.Go(func() { n.keepConnected(ctx, n.Send) })
	return n
}

// Close ends the exchange.
func (n *Notices) Close() error {
	n.stop()
	n.done.Wait()
	return nil
}

// Add queues notifications to send. It does not block.
func (n *Notices) Add(notifications []store.Notification) {
	n.mu.Lock()
	for _, h := range notifications {
		n.pending[subject{h.ThreadID, h.EffectID}] |= h.Changed
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// keepConnected calls use with one connection after the other until ctx ends. use reports whether its connection
// worked.
func (n *Notices) keepConnected(ctx context.Context, use func(ctx context.Context, c *pgx.Conn) (worked bool)) {
	for wait := firstReconnect; ctx.Err() == nil; wait = min(2*wait, maxReconnect) {
		if c, err := pgx.ConnectConfig(ctx, n.config); err == nil {
			if use(ctx, c) {
				wait = firstReconnect
			}
			n.lost.Add(1)
			_ = sqldb.ClosePostgres(c)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

// listen receives the notifications of other replicas. It first reports missedNotification, because earlier ones may have been
// missed.
func (n *Notices) listen(ctx context.Context, c *pgx.Conn) (worked bool) {
	if _, err := c.Exec(ctx, "LISTEN "+channel); err != nil {
		return false
	}
	n.hear([]store.Notification{missedNotification})
	for asked := time.Now(); ; {
		quiet, cancel := context.WithDeadline(ctx, asked.Add(sqldb.AnswerTimeout))
		said, err := c.WaitForNotification(quiet)
		cancel()
		switch {
		case err == nil:
			n.hear(n.parse(said.Payload))
		case ctx.Err() != nil, !errors.Is(err, context.DeadlineExceeded), c.IsClosed():
			return true
		default: // check whether the server still answers, and read its clock
			asking, cancel := context.WithTimeout(ctx, sqldb.ConnectTimeout)
			err := n.clock.Read(asking, c)
			cancel()
			if err != nil {
				return true
			}
			asked = time.Now()
		}
	}
}

// Send sends pending notifications over a connection to the other replicas, and gathers new ones in the meantime. It returns when ctx ends or
// the connection fails; what could not be sent stays pending. worked reports whether the connection could be used at all.
func (n *Notices) Send(ctx context.Context, c *pgx.Conn) (worked bool) {
	// A notification is not data, so it need not wait for the disk.
	if _, err := c.Exec(ctx, "SET synchronous_commit = off"); err != nil {
		return false
	}
	for {
		select {
		case <-ctx.Done():
			_ = n.send(ctx, c, n.take()) // if it fails, the others find the work when they search for it
			return true
		case <-n.wake:
		}
		if taken := n.take(); n.send(ctx, c, taken) != nil {
			n.Add(taken) // send them over the next connection
			return true
		}
		timer := time.NewTimer(noticeGap)
		select {
		case <-ctx.Done(): // seen above
			timer.Stop()
		case <-timer.C:
		}
	}
}

// send sends notifications. What is under way when ctx ends has lastWords to be sent.
func (n *Notices) send(ctx context.Context, c *pgx.Conn, notifications []store.Notification) error {
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqldb.AnswerTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWords, cancel) })()
	for _, payload := range payloads(n.origin, notifications) {
		if _, err := c.Exec(sending, "SELECT pg_notify($1, $2)", channel, payload); err != nil {
			return err
		}
	}
	return nil
}

func (n *Notices) take() (notifications []store.Notification) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, changed := range n.pending {
		notifications = append(notifications, store.Notification{ThreadID: id.thread, EffectID: id.effect, Changed: changed})
	}
	clear(n.pending)
	return notifications
}

// subject is what a notification is about.
type subject struct{ thread, effect string }

// payloads encodes notifications: the origin, then a line for each with the changes and the thread's id.
func payloads(origin string, notifications []store.Notification) (payloads []string) {
	var b strings.Builder
	for _, h := range notifications {
		line := "\n" + strconv.Itoa(int(h.Changed)) + " " + h.ThreadID
		if h.EffectID != "" { // a replica of an earlier release takes both for the id of a thread that it does not have
			line += " " + h.EffectID
		}
		if b.Len() > 0 && b.Len()+len(line) > maxNotice {
			payloads = append(payloads, b.String())
			b.Reset()
		}
		if b.Len() == 0 {
			b.WriteString(origin)
		}
		b.WriteString(line)
	}
	if b.Len() > 0 {
		payloads = append(payloads, b.String())
	}
	return payloads
}

// parse decodes a notification of another replica. It returns nothing for one of this replica.
func (n *Notices) parse(payload string) (notifications []store.Notification) {
	origin, lines, _ := strings.Cut(payload, "\n")
	if origin == n.origin {
		return nil
	}
	for line := range strings.SplitSeq(lines, "\n") {
		changed, id, ok := strings.Cut(line, " ")
		bits, err := strconv.ParseUint(changed, 10, 64) // a newer release may have more kinds of changes, which are ignored here
		if ok && err == nil {
			threadID, effectID, _ := strings.Cut(id, " ")
			notifications = append(notifications, store.Notification{ThreadID: threadID, EffectID: effectID, Changed: store.Change(bits), Remote: true})
		}
	}
	return notifications
}
