package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/skein-dev/skein/internal/apiserver/serving"
	"github.com/skein-dev/skein/internal/store/sqlstore"
)

const (
	// answerTime bounds how long an API server is waited for that accepts a connection and says nothing.
	answerTime = 10 * time.Second
	// reminder is how often the log says what is still waited for.
	reminder = time.Minute
)

// retries returns the pauses between attempts to reach what is away.
func retries() *wait.Backoff {
	return &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 100, Cap: 5 * time.Second}
}

// reach calls attempt until it succeeds or fails with an error for which away is false, and returns that error. A manager that ended instead would serve again
// long after what it needs has returned: Kubernetes starts a container that ends again and again only every five minutes.
func reach(ctx context.Context, log logr.Logger, what string, away func(error) bool, attempt func() error) error {
	pauses, began := retries(), time.Now()
	var lastReport time.Time
	for {
		err := attempt()
		if err == nil || ctx.Err() != nil || !away(err) {
			if !lastReport.IsZero() && err == nil {
				log.Info("Reached at last", "what", what, "after", time.Since(began).Round(time.Millisecond).String())
			}
			return err
		}
		if time.Since(lastReport) >= reminder {
			lastReport = time.Now()
			log.Error(err, "This replica waits for what it cannot reach, and tries again every few seconds", "what", what)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pauses.Step()):
		}
	}
}

// reachCluster waits for the API server. An answer of any kind will do: what it says is judged by those who need it.
func (o *Options) reachCluster(ctx context.Context, cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = answerTime
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("reach the cluster at %s: %w", cfg.Host, err)
	}
	err = reach(ctx, o.Logger, "the API server at "+cfg.Host, clusterAway, func() error {
		var code int
		err := d.RESTClient().Get().AbsPath("/version").Do(ctx).StatusCode(&code).Error()
		if err != nil && code != 0 && !clusterAway(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("reach the cluster at %s: %w", cfg.Host, err)
	}
	return nil
}

// register registers the runtime API. It waits for an API server that went away after it was reached.
func (o *Options) register(ctx context.Context, cfg *rest.Config, r serving.Options) (c *serving.Certificate, err error) {
	err = reach(ctx, o.Logger, "the API server at "+cfg.Host, clusterAway, func() error {
		c, err = serving.Ensure(ctx, cfg, r)
		return err
	})
	return c, err
}

// clusterAway reports whether an error of a request says that the API server cannot be reached or cannot answer yet. A certificate that
// does not fit is no such error: it does not mend itself.
func clusterAway(err error) bool {
	var certificate *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	if errors.As(err, &certificate) || errors.As(err, &plain) {
		return false
	}
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		code := answer.Status().Code
		return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
	}
	var operation *net.OpError
	var name *net.DNSError
	var network net.Error
	return errors.As(err, &operation) || errors.As(err, &name) || errors.As(err, &network) && network.Timeout() ||
		connectionLost(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded)
}

// connectionLost reports whether a request failed because its connection was closed: client-go closes one over which nothing comes any
// more. The errors of HTTP/2 that say so have no type.
func connectionLost(err error) bool {
	return utilnet.IsHTTP2ConnectionLost(err) || strings.Contains(err.Error(), "http2: client connection force closed")
}

// reachStore opens the database. While the server of a PostgreSQL database cannot be reached, it waits and tries again.
func (o *Options) reachStore(ctx context.Context) (s *sqlstore.Store, err error) {
	if o.Store != StorePostgres {
		return o.openStore(ctx)
	}
	err = reach(ctx, o.Logger, "the database", sqlstore.Away, func() error {
		s, err = o.openStore(ctx)
		return err
	})
	return s, err
}
