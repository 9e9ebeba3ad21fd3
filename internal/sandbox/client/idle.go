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

// Parameters for a caller that is about to delete the sandbox, in milliseconds. An older sandbox does not know them
// and answers as before.
const (
	idleAtLeast   = "atLeast"
	idleRefuseFor = "hold"
)

// Idle returns for how long nothing has run in the sandbox, regardless of who started it, or 0 while something runs.
func (c *Client) Idle(ctx context.Context) (time.Duration, error) { return c.askIdle(ctx, "") }

// Retire returns the same as Idle. When that is atLeast or longer, the sandbox accepts no new work for the duration
// refuseFor, in which the caller deletes it. A request in that time fails as if the sandbox were gone, before any of its
// code ran.
func (c *Client) Retire(ctx context.Context, atLeast, refuseFor time.Duration) (time.Duration, error) {
	up := func(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() } // rounded up, because the answer is rounded down
	return c.askIdle(ctx, fmt.Sprintf("?%s=%d&%s=%d", idleAtLeast, up(atLeast), idleRefuseFor, up(refuseFor)))
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
		return 0, fmt.Errorf("cannot find out for how long the sandbox has been idle: %s: %s", resp.Status, protocol.ParseText(text))
	}
	ms, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || ms < 0 || ms > int64(time.Duration(1<<63-1)/time.Millisecond) {
		return 0, errors.New("cannot find out for how long the sandbox has been idle: its answer is not a number")
	}
	return time.Duration(ms) * time.Millisecond, nil
}
