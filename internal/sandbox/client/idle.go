package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

const idlePath = "/v1/idle"

// The parameters of who is about to delete the sandbox, in milliseconds. A sandbox that is older than they are does
// not know them, and answers as ever.
const (
	idleAtLeast = "atLeast"
	idleHold    = "hold"
)

// Idle asks the sandbox for how long nothing has run in it, whoever started it; 0 while something runs.
func (c *Client) Idle(ctx context.Context) (time.Duration, error) { return c.askIdle(ctx, "") }

// Retire asks the same. When the answer is atLeast or longer, the sandbox begins nothing more for the time of hold, in which the
// caller deletes it: whatever would be run in it fails as of a sandbox that is gone, before any of it ran.
func (c *Client) Retire(ctx context.Context, atLeast, hold time.Duration) (time.Duration, error) {
	up := func(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() } // the answer is rounded down
	return c.askIdle(ctx, fmt.Sprintf("?%s=%d&%s=%d", idleAtLeast, up(atLeast), idleHold, up(hold)))
}

func (c *Client) askIdle(ctx context.Context, query string) (time.Duration, error) {
	if c.ctx.Err() != nil {
		return 0, errClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(errClosed) })()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.opts.Address+idlePath+query, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set(threadHeader, c.opts.ThreadID)
	resp, err := c.roundTrip(req)
	if err != nil {
		return 0, c.refusal(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, protocol.MaxReason))
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the sandbox does not say for how long it has idled: %s: %s", resp.Status, protocol.ParseText(text))
	}
	ms, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || ms < 0 || ms > int64(time.Duration(1<<63-1)/time.Millisecond) {
		return 0, errors.New("the sandbox does not say for how long it has idled: its answer is no number")
	}
	return time.Duration(ms) * time.Millisecond, nil
}
