package client

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// agree finds out, once, which version of the protocol to speak with the sandbox. Connections that are dialled ahead of time know it before
// they are needed. An error that wraps sandbox.ErrIncompatible is final.
func (c *Client) agree(ctx context.Context) error {
	if c.agreed.Load() != 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, verdictTimeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.opts.Address+protocol.VersionPath, nil)
	if err != nil {
		return err
	}
	resp, err := c.roundTrip(req)
	if err != nil {
		return c.refusal(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, protocol.MaxReason))
	if err != nil {
		return err
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound: // a sandbox of version 1
		text = []byte("1 1")
	default:
		return fmt.Errorf("cannot find out which version of the protocol the sandbox speaks: %s: %s", resp.Status, protocol.ParseText(text))
	}
	version, err := protocol.Agree(string(text))
	if err != nil {
		return fmt.Errorf("%w: %w; another release has made its pod: delete it, and the pool makes another one", sandbox.ErrIncompatible, err)
	}
	c.agreed.Store(int32(version))
	return nil
}
