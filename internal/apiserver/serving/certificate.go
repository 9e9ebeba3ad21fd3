package serving

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
	// A certificate is renewed when a third of its lifetime is left.
	renewalShare = 3
	// clockSkew allows for clocks that differ between machines.
	clockSkew = time.Hour
)

// keyPair is a certificate and its key as PEM.
type keyPair struct{ cert, key []byte }

// newAuthority returns a new certificate authority.
func newAuthority(name string, now time.Time) (keyPair, error) {
	return issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, NotAfter: now.Add(caLifetime),
	}, now, nil)
}

// newServing returns a serving certificate for names, which may be IP addresses.
func newServing(authority keyPair, names []string, now time.Time) (keyPair, error) {
	if len(names) == 0 {
		return keyPair{}, errors.New("a serving certificate needs a name")
	}
	t := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotAfter: now.Add(leafLifetime),
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	return issue(t, now, &authority)
}

// issue signs a template with a new key. Without an authority the certificate is self-signed.
func issue(t *x509.Certificate, now time.Time, authority *keyPair) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	if t.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return keyPair{}, err
	}
	t.NotBefore = now.Add(-clockSkew)
	parent, signer := t, crypto.Signer(key)
	if authority != nil {
		if parent, signer, err = authority.parse(); err != nil {
			return keyPair{}, err
		}
		if t.NotAfter.After(parent.NotAfter) {
			t.NotAfter = parent.NotAfter
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key.Public(), signer)
	if err != nil {
		return keyPair{}, err
	}
	cert, err := certutil.EncodeCertificates(&x509.Certificate{Raw: der})
	if err != nil {
		return keyPair{}, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	return keyPair{cert, keyPEM}, err
}

func (p keyPair) parse() (*x509.Certificate, crypto.Signer, error) {
	certs, err := certutil.ParseCertsPEM(p.cert)
	if err != nil {
		return nil, nil, err
	}
	key, err := keyutil.ParsePrivateKeyPEM(p.key)
	if err != nil {
		return nil, nil, errors.New("the private key cannot be read") // the error must not contain the key's text
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, nil, errors.New("the private key cannot sign")
	}
	return certs[0], signer, nil
}

// usable reports whether the pair is complete, signed by the authority, valid for every name and not due for renewal.
func (p keyPair) usable(authority keyPair, names []string, now time.Time) bool {
	cert, _, err := p.parse()
	if err != nil || !isFresh(cert, now) {
		return false
	}
	roots, err := certutil.NewPoolFromBytes(authority.cert)
	if err != nil {
		return false
	}
	for _, n := range names {
		if _, err := cert.Verify(x509.VerifyOptions{DNSName: n, Roots: roots, CurrentTime: now}); err != nil {
			return false
		}
	}
	return true
}

// isFresh reports whether more than a third of a certificate's lifetime is left.
func isFresh(cert *x509.Certificate, now time.Time) bool { return now.Before(renewalTime(cert)) }

func renewalTime(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / renewalShare)
}

// Certificate is a serving certificate that can be replaced while it is in use. It implements
// dynamiccertificates.CertKeyContentProvider. mu guards pair, ca and listeners.
type Certificate struct {
	mu        sync.Mutex
	pair      keyPair
	ca        []byte
	listeners []dynamiccertificates.Listener

	// renew replaces the certificate at its source. It is nil when there is no such source.
	renew func(context.Context) error
	// reached waits until the API server can reach this server. It is nil where something else checks that.
	reached func(context.Context) error
}

// CABundle returns the PEM of the authority that signed the certificate.
func (c *Certificate) CABundle() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ca
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (c *Certificate) Name() string { return "runtime-api" }

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (c *Certificate) CurrentCertKeyContent() (cert, key []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pair.cert, c.pair.key
}

// AddListener implements dynamiccertificates.Notifier.
func (c *Certificate) AddListener(l dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, l)
}

func (c *Certificate) set(pair keyPair, ca []byte) {
	c.mu.Lock()
	c.pair, c.ca = pair, ca
	listeners := c.listeners
	c.mu.Unlock()
	for _, l := range listeners {
		l.Enqueue()
	}
}

// retryRenewal is the pause after a failed renewal. A third of the certificate's lifetime is left for retries.
const retryRenewal = time.Hour

// Start renews the certificate in time until ctx ends. It is a Runnable of a manager. Without a source to renew from
// it only waits.
func (c *Certificate) Start(ctx context.Context) error {
	if c.renew == nil {
		<-ctx.Done()
		return nil
	}
	if c.reached != nil {
		go c.announce(ctx)
	}
	timer := time.NewTimer(c.untilRenewal())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		next := retryRenewal
		if err := c.renew(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The runtime API's certificate could not be renewed; trying again", "after", next)
		} else {
			next = max(c.untilRenewal(), time.Minute)
		}
		timer.Reset(next)
	}
}

// announceWithin is how long the API server may take to reach this server before the log says why it does not.
const announceWithin = 20 * time.Second

// announce logs whether requests to the Kubernetes API arrive here, which also depends on the cluster.
func (c *Certificate) announce(ctx context.Context) {
	log := klog.FromContext(ctx)
	waitCtx, cancel := context.WithTimeout(ctx, announceWithin)
	defer cancel()
	err := c.reached(waitCtx)
	switch {
	case err == nil:
		log.Info("The runtime API is reached through the Kubernetes API")
	case ctx.Err() == nil:
		log.Error(err, "The runtime API cannot be reached through the Kubernetes API")
	}
}

// NeedLeaderElection returns false: every replica serves with the certificate.
func (c *Certificate) NeedLeaderElection() bool { return false }

func (c *Certificate) untilRenewal() time.Duration {
	c.mu.Lock()
	pair := c.pair
	c.mu.Unlock()
	cert, _, err := pair.parse()
	if err != nil {
		return 0
	}
	return time.Until(renewalTime(cert))
}

// SelfSigned returns a certificate for names, signed by a new authority whose key is not kept.
func SelfSigned(names ...string) (*Certificate, error) {
	now := time.Now()
	authority, err := newAuthority("skein-runtime-api", now)
	if err != nil {
		return nil, err
	}
	pair, err := newServing(authority, names, now)
	if err != nil {
		return nil, err
	}
	return &Certificate{pair: pair, ca: authority.cert}, nil
}
