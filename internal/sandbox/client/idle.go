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

// Idle asks the sandbox for how long nothing has run in it, whoever started it; 0 while something runs.
func (c *Client) Idle(ctx context.Context) (time.Duration, error) {
	if c.ctx.Err() != nil {
		return 0, errClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(errClosed) })()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.opts.Address+idlePath, nil)
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
