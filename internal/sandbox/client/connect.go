package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
)

// Connect makes the connection ahead of the first stream, or takes the line that waits: a caller that still has to win the sandbox can dial
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
	conn := c.opts.Lines.take(ctx, c.opts.Line)
	if conn == nil {
		var err error
		if conn, err = c.transport.NewClientConn(ctx, "https", c.opts.Address); err != nil {
			return c.refusal(ctx, err)
		}
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

const (
	// usualDialTimeout: a packet that is lost is sent again after a second, and after two more.
	usualDialTimeout = 5 * time.Second
	handshakeTimeout = 5 * time.Second // of TLS
)

// dialTimeout bounds how long the address may take to accept the next connection: Options.DialTimeout is for a sandbox
// that may not be there yet.
func (c *Client) dialTimeout() time.Duration {
	if c.early.Load() == nil && c.with.Load() == nil { // there was none
		return cmp.Or(c.opts.DialTimeout, usualDialTimeout)
	}
	return usualDialTimeout
}

// dial makes a connection without TLS.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.dialTimeout())
	defer cancel() // a connection that is made outlives it
	return c.opts.Dial(ctx, network, address)
}

// dialTLS makes a connection with the certificates of the moment.
func (c *Client) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	ca, own, err := c.opts.Credentials(ctx)
	if err != nil {
		return nil, fmt.Errorf("the certificates of the sandbox client: %w", err)
	}
	config, err := c.opts.Configs.Get(ca, own, c.opts.ServerName)
	if err != nil {
		return nil, fmt.Errorf("the certificates of the sandbox client: %w", err)
	}
	config.NextProtos = []string{"h2"}
	raw, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, config)
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	c.with.Store(&credentials{ca: ca, own: own})
	return conn, nil
}

// roundTrip uses the early connection while it is good.
func (c *Client) roundTrip(req *http.Request) (*http.Response, error) {
	if c.good() {
		return c.early.Load().RoundTrip(req)
	}
	return c.transport.RoundTrip(req)
}

// verdictTimeout bounds how long a refused connection is asked for the reason, which comes with the handshake or never.
const verdictTimeout = 5 * time.Second

// refusal explains why no stream could be opened. A sandbox judges the manager's certificate after the manager's
// handshake is over, so that its alert is often lost in a connection that merely broke: it is asked again.
func (c *Client) refusal(ctx context.Context, err error) error {
	var network *net.OpError
	if explained := explain(err); explained != nil {
		return explained
	}
	if ctx.Err() != nil || errors.As(err, &network) && (network.Op == "dial" || network.Timeout()) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, verdictTimeout)
	defer cancel()
	conn, dialErr := c.dialTLS(ctx, "tcp", c.opts.Address)
	if dialErr != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	if _, readErr := conn.Read(make([]byte, 1)); readErr != nil {
		if explained := explain(readErr); explained != nil {
			return explained
		}
	}
	return err
}

// explain says what is wrong with a certificate, of either side, and what to do; nil for any other error.
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
	return nil
}
