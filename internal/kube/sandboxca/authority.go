// Package sandboxca keeps the certificate authority of the sandboxes in a Secret, and issues the certificates with
// which the manager and its sandboxes authenticate each other.
package sandboxca

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/sandbox/pki"
)

// SecretName is the Secret in the manager's namespace that holds the certificate authority of all sandboxes.
const SecretName = "skein-sandbox-ca"

// Terms are the lifetimes of sandbox certificates. The certificates of servers and managers are replaced when
// a third of their time is left.
type Terms struct {
	Authority time.Duration // lifetime of an authority
	Renewal   time.Duration // how long before an authority ends the next one is made
	Overlap   time.Duration // how long the next one is trusted before it issues, so that every pod has it
	Server    time.Duration // lifetime of a pool's server certificate
	Client    time.Duration // lifetime of the manager's client certificate
}

// DefaultTerms returns the terms of an installation.
func DefaultTerms() Terms {
	const day = 24 * time.Hour
	return Terms{Authority: 10 * 365 * day, Renewal: 90 * day, Overlap: day, Server: 90 * day, Client: 30 * day}
}

const (
	// reread is how often the Secret is read again although nothing is due, because another replica or a person may
	// have changed it.
	reread = time.Hour
	// rereadFailed is the pause after a failed read. Until then the keys that were read last are used.
	rereadFailed  = time.Minute
	rereadTimeout = 5 * time.Second
)

// Authority issues the certificates with which the manager and its sandboxes authenticate each other. Its keys
// stay in the manager and its Secret. Rotation fails no call and ends no run: an authority is replaced before it
// ends, both sides trust the next one before it issues anything, and they trust the last one as long as any of its
// certificates is valid.
type Authority struct {
	client    client.Client // reads from the API server
	namespace string
	clock     clock.PassiveClock
	terms     Terms

	reading sync.Mutex // held while the Secret is read and written

	mu       sync.Mutex
	keys     authorityKeys
	readAt   time.Time // when the Secret is read again
	own      pki.Pair
	ownUntil time.Time // when own is replaced
}

// New returns an authority that is not loaded yet. namespace is the manager's namespace.
func New(live client.Client, namespace string, clk clock.PassiveClock, terms Terms) *Authority {
	return &Authority{client: live, namespace: namespace, clock: clk, terms: terms}
}

// Load reads the authority from its Secret, creates it when it is missing, and renews what is due. Replicas that load
// at the same time agree on what was written first.
func (a *Authority) Load(ctx context.Context) error {
	a.reading.Lock()
	defer a.reading.Unlock()
	return a.load(ctx)
}

func (a *Authority) load(ctx context.Context) error {
	for range 3 {
		err := a.loadOnce(ctx)
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("the authority of the sandboxes in Secret %s/%s: %w", a.namespace, SecretName, err)
		}
	}
	return fmt.Errorf("the authority of the sandboxes in Secret %s/%s keeps changing: check whether another manager writes it", a.namespace, SecretName)
}

// loadOnce is one attempt of Load. A conflict means that another replica wrote first.
func (a *Authority) loadOnce(ctx context.Context) error {
	s := &corev1.Secret{}
	err := a.client.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: SecretName}, s)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	missing := err != nil
	keys, changed, err := readAuthority(s).turn(a.clock, a.terms)
	if err != nil {
		return err
	}
	if changed {
		if err := a.write(ctx, s, keys, missing); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if keys.fingerprint() != a.keys.fingerprint() {
		a.ownUntil = time.Time{}
	}
	a.keys = keys
	a.readAt = a.clock.Now().Add(reread)
	if due := keys.due(a.terms); due.Before(a.readAt) {
		a.readAt = due
	}
	return nil
}

func (a *Authority) write(ctx context.Context, s *corev1.Secret, keys authorityKeys, missing bool) error {
	if missing {
		s = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: a.namespace,
				Name:      SecretName,
				Labels:    map[string]string{skeinv1.LabelManagedBy: skeinv1.ManagedByValue},
			},
			Type: corev1.SecretTypeTLS,
		}
		keys.writeTo(s)
		return a.client.Create(ctx, s)
	}
	keys.writeTo(s)
	return a.client.Update(ctx, s)
}

// Keep renews what is due, and returns when something is due next. On an error the authority stays as it was.
func (a *Authority) Keep(ctx context.Context) (next time.Time, err error) {
	a.reading.Lock()
	defer a.reading.Unlock()
	return a.keep(ctx)
}

// keep is Keep with reading held.
func (a *Authority) keep(ctx context.Context) (next time.Time, err error) {
	if next = a.nextRead(); a.clock.Now().Before(next) {
		return next, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rereadTimeout)
	defer cancel()
	if err = a.load(ctx); err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.readAt = a.clock.Now().Add(rereadFailed)
		return a.readAt, err
	}
	return a.nextRead(), nil
}

// nextRead returns when the Secret is read again.
func (a *Authority) nextRead() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.readAt
}

// Fingerprint identifies the present authority and everything that is trusted beside it. When it changes, all issued
// certificates must be issued again.
func (a *Authority) Fingerprint() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keys.fingerprint()
}

// Server issues a certificate for the sandboxes of a pool. It returns the data of a Secret in the form that the
// supervisor reads, and when to replace it.
func (a *Authority) Server(pool, namespace string) (data map[string][]byte, renewAt time.Time, err error) {
	a.mu.Lock()
	keys := a.keys
	a.mu.Unlock()
	lifetime := a.limitLifetime(keys, a.terms.Server)
	pair, err := pki.IssueServer(a.clock, keys.present, pki.ServerName(pool, namespace), lifetime)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("issue the certificate of pool %q: %w", pool, err)
	}
	return map[string][]byte{
		corev1.TLSCertKey:              pair.Cert,
		corev1.TLSPrivateKeyKey:        pair.Key,
		corev1.ServiceAccountRootCAKey: keys.trusted,
	}, a.clock.Now().Add(lifetime - lifetime/3), nil
}

// limitLifetime limits a lifetime to that of its issuer.
func (a *Authority) limitLifetime(k authorityKeys, lifetime time.Duration) time.Duration {
	return min(lifetime, k.until.Sub(a.clock.Now()))
}

// Client returns what the manager dials sandboxes with: the trusted certificates, as PEM, and its own key pair. Call
// it for each connection.
func (a *Authority) Client(ctx context.Context) (trusted []byte, own pki.Pair, err error) {
	if a.reading.TryLock() { // while one caller reads, the others use the keys that are loaded
		_, err = a.keep(ctx)
		a.reading.Unlock()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.keys.trusted) == 0 {
		return nil, pki.Pair{}, errors.Join(errors.New("the authority of the sandboxes has not been read"), err)
	}
	if now := a.clock.Now(); !now.Before(a.ownUntil) {
		lifetime := a.limitLifetime(a.keys, a.terms.Client)
		if a.own, err = pki.IssueClient(a.clock, a.keys.present, "skein-manager", lifetime); err != nil {
			return nil, pki.Pair{}, fmt.Errorf("issue the manager's client certificate: %w", err)
		}
		a.ownUntil = now.Add(lifetime - lifetime/3)
	}
	return a.keys.trusted, a.own, nil
}
