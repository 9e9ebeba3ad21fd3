package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// HistoryChange is news of the list of threads.
type HistoryChange struct {
	// Reset is true when the list begins again. Forget the items so far: those that are still in the list follow.
	Reset bool
	// Items are threads as they are now. Each replaces an item of the thread with a lower V.
	Items []runtimev1.ThreadHistory
	// Complete is true when all items of the list have come since Reset. Others are not in the list any more.
	Complete bool
}

// FollowHistory streams the list of threads of a namespace, archived ones too, and then what changes in it (EVT-04). An empty
// namespace means all namespaces. It reconnects by itself when the connection ends, and then begins again with the whole list. Deleted
// threads are not told. The stream ends with ctx (no error), or with the error of a server that refuses or was never reached.
func (c *Client) FollowHistory(ctx context.Context, namespace string) iter.Seq2[HistoryChange, error] {
	return func(yield func(HistoryChange, error) bool) {
		s := &stream{}
		for {
			progress, err := c.followHistoryOnce(ctx, namespace, yield)
			switch {
			case errors.Is(err, errDone), ctx.Err() != nil:
				return
			case err != nil && (final(err) || !s.connected && !progress):
				yield(HistoryChange{}, err)
				return
			}
			if progress {
				s.connected, s.pause = true, initialPause()
			}
			if !s.wait(ctx) {
				return
			}
		}
	}
}

// followHistoryOnce reads one connection until it ends. It opens the stream before it lists, so that no change is lost in between.
func (c *Client) followHistoryOnce(ctx context.Context, namespace string, yield func(HistoryChange, error) bool) (progress bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := c.openHistory(ctx, cancel, namespace)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }()
	list := func() error {
		change, more := HistoryChange{Reset: true}, true
		for next := ""; more; {
			page, err := c.History(ctx, namespace, HistoryOptions{Archived: "all", Limit: runtimev1.MaxPageSize, Continue: next})
			if err != nil {
				return err
			}
			if next, more = page.Continue, page.HasMore; more && next == "" {
				return fmt.Errorf("%w: a page of the list says that more follow, and not where", errMalformed)
			}
			if change.Items, change.Complete = page.Items, !more; !yield(change, nil) {
				return errDone
			}
			progress, change = true, HistoryChange{}
		}
		return nil
	}
	if err := list(); err != nil {
		return progress, err
	}
	return progress, readSSE(body, func(f frame) error {
		switch f.event {
		case runtimev1.StreamClosedEvent:
			return io.EOF // each reason allows a new connection
		case runtimev1.HistoryResetEvent:
			return list()
		}
		var changed runtimev1.ThreadHistoryList
		if err := json.Unmarshal(f.data, &changed); err != nil {
			return fmt.Errorf("%w: %w", errMalformed, err)
		}
		if !yield(HistoryChange{Items: changed.Items}, nil) {
			return errDone
		}
		return nil
	})
}

// openHistory opens the stream of changes. cancel ends ctx when the server does not begin to answer in time.
func (c *Client) openHistory(ctx context.Context, cancel context.CancelFunc, namespace string) (io.ReadCloser, error) {
	through := *c
	through.rest = through.streams
	r, err := through.viewRequest(http.MethodGet, namespace, runtimev1.ViewHistory)
	if err != nil {
		return nil, err
	}
	begun := func() bool { return true }
	if through.timeout > 0 {
		begun = time.AfterFunc(through.timeout, cancel).Stop
	}
	body, err := open(ctx, r.Param("watch", "true").SetHeader("Accept", "text/event-stream"))
	if !begun() && err != nil {
		return nil, fmt.Errorf("the server did not answer within %s: %w", through.timeout, err)
	}
	return body, err
}
