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
	// Follow waits for more at the end of the feed, until the context ends.
	Follow bool
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
	// lookAgain is how soon the feed is read again for entries that were not settled. lookAnyway is after how long it
	// is read without a notification, because notifications may be lost.
	lookAgain  = 20 * time.Millisecond
	lookAnyway = 10 * time.Second
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

// CheckCursor returns an error unless the text is a cursor or empty.
func CheckCursor(text string) error {
	_, err := readCursor(text)
	return err
}

// Lifecycle reads the feed of what happens to threads and sessions, oldest first. A reader that continues after the
// last cursor gets each event once. Events are kept for a week.
func (s *Service) Lifecycle(ctx context.Context, o LifecycleOptions) iter.Seq2[LifecycleEvent, error] {
	return func(yield func(LifecycleEvent, error) bool) {
		after, err := readCursor(o.After)
		if err != nil {
			yield(LifecycleEvent{}, err)
			return
		}
		changed := make(chan struct{}, 1)
		defer s.store.Subscribe(func(h store.Notification) {
			if h.Changed&store.ChangedThread != 0 {
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		})()
		q := store.LifecycleQuery{Namespace: o.Namespace, After: after, Latest: o.Latest, Limit: lifecyclePage}
		if o.Namespace != "" {
			ns, err := s.Known(ctx, store.Namespace{Name: o.Namespace})
			if err != nil {
				yield(LifecycleEvent{}, err)
				return
			}
			q.NamespaceUID = ns.UID
		}
		for {
			page, err := s.store.Lifecycle(ctx, q)
			if err != nil {
				if ctx.Err() == nil {
					yield(LifecycleEvent{}, err)
				}
				return
			}
			for _, e := range page.Events {
				if !yield(LifecycleEvent{LifecycleEvent: e, Cursor: cursorText(e.Cursor)}, nil) {
					return
				}
			}
			if q.Latest = false; q.After == page.Next && !page.Unsettled && !o.Follow {
				return
			}
			moved := q.After != page.Next
			q.After = page.Next
			if moved && len(page.Events) == lifecyclePage {
				continue // there may be more already
			}
			if !o.Follow && !page.Unsettled {
				return
			}
			if !s.awaitFeed(ctx, changed, page.Unsettled) {
				return
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

// awaitFeed waits until there may be more. It returns false when ctx has ended.
func (s *Service) awaitFeed(ctx context.Context, changed <-chan struct{}, unsettled bool) bool {
	wait := lookAnyway
	if unsettled {
		wait = lookAgain
	}
	timer := s.clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-timer.C():
	}
	return true
}

// OnLifecycle calls fn for what happens from now on to threads and sessions of a namespace, or of all when it is empty.
// These are the application-level listeners of STA-06. types are the event types that fn gets; all when none is given.
// One goroutine makes all calls, in order, until ctx ends or stop is called. failed is called when the feed cannot be
// read.
func (s *Service) OnLifecycle(ctx context.Context, namespace string, fn func(LifecycleEvent), failed func(error), types ...string) (stop func(), err error) {
	from, err := s.LifecycleEnd(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range s.Lifecycle(ctx, LifecycleOptions{Namespace: namespace, After: from, Follow: true}) {
			if err != nil {
				if failed != nil {
					failed(err)
				}
				return
			}
			if wanted(e.Type, types) {
				fn(e)
			}
		}
	}()
	return func() { cancel(); <-done }, nil
}

func wanted(kind string, types []string) bool {
	for _, t := range types {
		if t == kind {
			return true
		}
	}
	return len(types) == 0
}
