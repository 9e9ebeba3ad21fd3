package thread

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// LifecycleOptions say what to read of the lifecycle feed (STA-06).
type LifecycleOptions struct {
	Namespace string // all when empty
	// After is the cursor of the last event seen. When empty, reading starts with the oldest event kept.
	After string
	// Latest starts with what happens from now on.
	Latest bool
}

// LifecycleEvent is something that happened to a thread or to a session, which is a run: thread.created,
// thread.destroyed, session.started or session.completed.
type LifecycleEvent struct {
	store.LifecycleEvent
	// Cursor is where to continue after this event.
	Cursor string
}

const (
	lifecyclePage = 200
	// lookAgain is how soon the feed is read again for entries that were not final.
	lookAgain = 20 * time.Millisecond
	// mostLooks is how often a list waits for entries that were not final: for a second, which is longer than transactions of Skein usually
	// take. Others on the same server may take hours.
	mostLooks = 50
)

func cursorText(c store.LifecycleCursor) string { return fmt.Sprintf("%d.%d", c.Tick, c.Seq) }

func readCursor(text string) (c store.LifecycleCursor, err error) {
	if text == "" {
		return c, nil
	}
	tick, seq, ok := strings.Cut(text, ".")
	if ok {
		if c.Tick, err = strconv.ParseInt(tick, 10, 64); err == nil {
			c.Seq, err = strconv.ParseInt(seq, 10, 64)
		}
	}
	if !ok || err != nil || c.Tick < 0 || c.Seq < 0 {
		return c, invalid("after", "%q is not a cursor of this feed: use the one of an event, or leave it out", text)
	}
	return c, nil
}

// LifecycleEventOf returns an entry of the feed with its cursor.
func LifecycleEventOf(e store.LifecycleEvent) LifecycleEvent {
	return LifecycleEvent{LifecycleEvent: e, Cursor: cursorText(e.Cursor)}
}

// LifecycleQuery returns the options for the store. Those that begin with the latest begin at the present end of the feed.
func (s *Service) LifecycleQuery(ctx context.Context, o LifecycleOptions) (q store.LifecycleQuery, err error) {
	q = store.LifecycleQuery{Namespace: o.Namespace, Limit: lifecyclePage}
	if q.After, err = readCursor(o.After); err != nil {
		return q, err
	}
	if o.Latest {
		end, err := s.store.Lifecycle(ctx, store.LifecycleQuery{Latest: true})
		if err != nil {
			return q, err
		}
		q.After = end.Next
	}
	if o.Namespace != "" {
		ns, err := s.KnownNamespace(ctx, store.Namespace{Name: o.Namespace})
		if err != nil {
			return q, err
		}
		q.NamespaceUID = ns.UID
	}
	return q, nil
}

// Lifecycle reads the feed of what happened to threads and sessions until now, oldest first. It ends before events that transactions in
// progress may still precede. A reader that continues after the last cursor gets each event once. Events are kept for a week.
func (s *Service) Lifecycle(ctx context.Context, o LifecycleOptions) iter.Seq2[LifecycleEvent, error] {
	return func(yield func(LifecycleEvent, error) bool) {
		q, err := s.LifecycleQuery(ctx, o)
		if err != nil {
			yield(LifecycleEvent{}, err)
			return
		}
		for looks := 0; ; {
			page, err := s.store.Lifecycle(ctx, q)
			if err != nil {
				if ctx.Err() == nil {
					yield(LifecycleEvent{}, err)
				}
				return
			}
			for _, e := range page.Events {
				if !yield(LifecycleEventOf(e), nil) {
					return
				}
			}
			moved := q.After != page.Next
			q.After = page.Next
			switch {
			case moved && len(page.Events) == lifecyclePage: // there may be more already
			case !page.InFlight, looks == mostLooks, !s.pause(ctx, lookAgain):
				return
			default:
				looks++
			}
		}
	}
}

// LifecycleEnd returns the cursor of the feed's present end.
func (s *Service) LifecycleEnd(ctx context.Context) (string, error) {
	page, err := s.store.Lifecycle(ctx, store.LifecycleQuery{Latest: true})
	if err != nil {
		return "", err
	}
	return cursorText(page.Next), nil
}

// pause reports whether the time has passed before ctx ended.
func (s *Service) pause(ctx context.Context, d time.Duration) bool {
	timer := s.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
