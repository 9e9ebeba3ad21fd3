package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// SandboxCASecret holds, in the manager's namespace, the authority of all sandbox certificates.
const SandboxCASecret = "skein-sandbox-ca"

const (
	caLifetime     = 10 * 365 * 24 * time.Hour
	caRenewal      = 90 * 24 * time.Hour
	serverLifetime = 90 * 24 * time.Hour
	clientLifetime = 30 * 24 * time.Hour
)

// SandboxAuthority issues the certificates by which the manager and its sandboxes know each other. The
// authority's key stays in the manager and its Secret.
type SandboxAuthority struct {
	client    client.Client // reads from the API server
	namespace string
	clock     clock.PassiveClock

	mu  sync.Mutex
	ca  pki.Pair
	own pki.Pair
}

// NewSandboxAuthority makes an authority that is not loaded yet. namespace is the manager's.
func NewSandboxAuthority(live client.Client, namespace string, clk clock.PassiveClock) *SandboxAuthority {
	return &SandboxAuthority{client: live, namespace: namespace, clock: clk}
}

// Load reads the authority from its Secret, making one when it is missing or about to end. Replicas that
// start together agree on the one that was written first.
func (a *SandboxAuthority) Load(ctx context.Context) error {
	for range 3 {
		err := a.load(ctx)
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("the authority of the sandboxes in Secret %s/%s: %w", a.namespace, SandboxCASecret, err)
		}
	}
	return fmt.Errorf("the authority of the sandboxes in Secret %s/%s keeps changing: is another manager writing it?", a.namespace, SandboxCASecret)
}

func (a *SandboxAuthority) load(ctx context.Context) error {
	s := &corev1.Secret{}
	err := a.client.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: SandboxCASecret}, s)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	missing := err != nil
	ca := pki.Pair{Cert: s.Data[corev1.TLSCertKey], Key: s.Data[corev1.TLSPrivateKeyKey]}
	if missing || pki.Check(a.clock, ca.Cert, ca, caRenewal) != nil {
		if ca, err = pki.NewCA(a.clock, "skein-sandboxes", caLifetime); err != nil {
			return err
		}
		if err := a.write(ctx, s, ca, missing); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ca, a.own = ca, pki.Pair{}
	return nil
}

func (a *SandboxAuthority) write(ctx context.Context, s *corev1.Secret, ca pki.Pair, missing bool) error {
	data := map[string][]byte{corev1.TLSCertKey: ca.Cert, corev1.TLSPrivateKeyKey: ca.Key}
	if missing {
		return a.client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: a.namespace,
				Name:      SandboxCASecret,
				Labels:    map[string]string{skeinv1.LabelManagedBy: skeinv1.ManagedByValue},
			},
			Type: corev1.SecretTypeTLS,
			Data: data,
		})
	}
	s.Data = data
	return a.client.Update(ctx, s)
}

// Fingerprint names the present authority.
func (a *SandboxAuthority) Fingerprint() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := sha256.Sum256(a.ca.Cert)
	return hex.EncodeToString(sum[:])[:hashLength]
}

// Server issues a certificate for the sandboxes of a pool: the data of a Secret as the supervisor reads it,
// and when it ends.
func (a *SandboxAuthority) Server(pool, namespace string) (data map[string][]byte, notAfter time.Time, err error) {
	a.mu.Lock()
	ca := a.ca
	a.mu.Unlock()
	notAfter = a.clock.Now().Add(serverLifetime)
	pair, err := pki.IssueServer(a.clock, ca, pki.ServerName(pool, namespace), serverLifetime)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("issue the certificate of pool %q: %w", pool, err)
	}
	return map[string][]byte{
		corev1.TLSCertKey:              pair.Cert,
		corev1.TLSPrivateKeyKey:        pair.Key,
		corev1.ServiceAccountRootCAKey: ca.Cert,
	}, notAfter, nil
}

// Client gives what the manager dials sandboxes with: the authority's certificate, PEM, and its own pair.
func (a *SandboxAuthority) Client() (ca []byte, own pki.Pair, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pki.Check(a.clock, a.ca.Cert, a.own, clientLifetime/3) != nil {
		if a.own, err = pki.IssueClient(a.clock, a.ca, "skein-manager", clientLifetime); err != nil {
			return nil, pki.Pair{}, fmt.Errorf("issue the manager's client certificate: %w", err)
		}
	}
	return a.ca.Cert, a.own, nil
}

// RenewServerAt is when a certificate that ends at notAfter is replaced.
func RenewServerAt(notAfter time.Time) time.Time { return notAfter.Add(-serverLifetime / 3) }
