package client

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/skein-dev/skein/internal/sandbox"
)

// Connect makes the connection ahead of the first stream: a caller that still has to win the sandbox can dial
// meanwhile, and learns at once when it cannot be reached. The sandbox belongs to nobody until a stream comes.
// Once connected, Connect does nothing; a connection that is lost later is made again by the next stream. An error
// that wraps sandbox.ErrNotTrusted is final.
func (c *Client) Connect(ctx context.Context) error {
	if c.ctx.Err() != nil {
		return errClosed
	}
	if c.early.Load() != nil {
		return nil
	}
	conn, err := c.transport.NewClientConn(ctx, "https", c.opts.Address)
	if err != nil {
		return explain(err)
	}
	if !c.early.CompareAndSwap(nil, conn) {
		_ = conn.Close()
		return nil
	}
	if c.ctx.Err() != nil { // closed meanwhile
		_ = conn.Close()
		return errClosed
	}
	return nil
}

// roundTrip uses the early connection while it is good.
func (c *Client) roundTrip(req *http.Request) (*http.Response, error) {
	if conn := c.early.Load(); conn != nil && conn.Err() == nil && conn.Available() > 0 {
		return conn.RoundTrip(req)
	}
	return c.transport.RoundTrip(req)
}

// explain says what is wrong with a certificate, of either side, and what to do.
func explain(err error) error {
	var (
		invalid   x509.CertificateInvalidError
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		remote    *net.OpError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%w: it has expired or is not valid yet (%w); the pool's Secret is renewed by the manager: check the clocks of the node and of the manager, or delete the pod", sandbox.ErrNotTrusted, err)
	case errors.As(err, &name):
		return fmt.Errorf("%w: it is another pool's or namespace's (%w)", sandbox.ErrNotTrusted, err)
	case errors.As(err, &authority):
		return fmt.Errorf("%w: it is of another authority (%w); the pod is not one of this manager's, or was started before the authority was replaced", sandbox.ErrNotTrusted, err)
	case errors.As(err, &remote) && remote.Op == "remote error": // an alert of TLS
		return fmt.Errorf("the sandbox does not trust the manager's certificate (%w); the pod was started under another authority, or its clock is wrong: delete it", err)
	}
	return err
}
