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

// Connect opens the connection before the first stream, or takes the connection that Connections has. So a caller that
// still has to claim the sandbox can dial at the same time, and learns at once when it cannot be reached. The sandbox
// belongs to no thread until the first stream.
//
// Once connected, Connect does nothing. The next stream reopens a connection that is lost later. An error that wraps
// sandbox.ErrNotTrusted or sandbox.ErrIncompatible is final.
func (c *Client) Connect(ctx context.Context) error {
	if c.ctx.Err() != nil {
		return errClosed
	}
	if c.early.Load() != nil {
		return nil
	}
	conn, version := c.opts.Connections.take(ctx, c.opts.ConnectionName)
	c.agreed.Store(version)
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
	if c.ctx.Err() != nil { // closed in the meantime
		_ = conn.Close()
		return errClosed
	}
	return c.agree(ctx)
}

const (
	// usualDialTimeout allows for two lost packets: they are sent again after one second, and after two more.
	usualDialTimeout = 5 * time.Second
	handshakeTimeout = 5 * time.Second // of the TLS handshake
)

// dialTimeout returns how long the address may take to accept the next connection. Options.DialTimeout applies only
// to the first one, because the sandbox may not exist yet.
func (c *Client) dialTimeout() time.Duration {
	if c.early.Load() == nil && c.with.Load() == nil { // there was no connection yet
		return cmp.Or(c.opts.DialTimeout, usualDialTimeout)
	}
	return usualDialTimeout
}

// dial opens a connection without TLS.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.dialTimeout())
	defer cancel() // ends dialling only, not the connection
	return c.opts.Dial(ctx, network, address)
}

// dialTLS opens a connection with the current certificates.
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

// roundTrip uses the early connection while it works.
func (c *Client) roundTrip(req *http.Request) (*http.Response, error) {
	if c.good() {
		return c.early.Load().RoundTrip(req)
	}
	return c.transport.RoundTrip(req)
}

// verdictTimeout bounds the wait for the reason of a refused connection, which comes with the handshake or never.
const verdictTimeout = 5 * time.Second

// refusal explains why no stream could be opened. A sandbox checks the manager's certificate after the manager's
// handshake is finished, so that its alert is often lost and the connection just breaks. So refusal connects again to
// get the alert.
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

// explain returns an error that says what is wrong with a certificate, of either side, and what to do. It returns nil
// for any other error.
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
		return fmt.Errorf("%w: it belongs to another pool or namespace (%w)", sandbox.ErrNotTrusted, err)
	case errors.As(err, &authority):
		return fmt.Errorf("%w: another authority issued it (%w); the pod does not belong to this manager, or was started before the authority was replaced", sandbox.ErrNotTrusted, err)
	case errors.As(err, &remote) && remote.Op == "remote error": // a TLS alert
		return fmt.Errorf("the sandbox does not trust the manager's certificate (%w); the pod was started under another authority, or its clock is wrong: delete it", err)
	}
	return nil
}
