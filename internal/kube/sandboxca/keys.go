package sandboxca

import (
	"bytes"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/sandbox/pki"
)

// Keys and an annotation of the authority's Secret, beside tls.crt and tls.key, which are the present authority.
const (
	caTrusted        = corev1.ServiceAccountRootCAKey // every trusted authority
	caNextCert       = "next.crt"
	caNextKey        = "next.key"
	annotationNextAt = "skein.dev/next-at" // when the next authority becomes the present one
)

// authorityKeys is the state of an authority at one time: what issues now, what will issue next, and what is trusted.
type authorityKeys struct {
	present pki.Pair
	until   time.Time // when present ends
	next    pki.Pair  // empty when there is none yet
	nextAt  time.Time
	trusted []byte    // PEM of present, next, and earlier authorities that are still valid
	oldest  time.Time // the earliest end among the trusted ones
}

func readAuthority(s *corev1.Secret) authorityKeys {
	k := authorityKeys{
		present: pki.Pair{Cert: s.Data[corev1.TLSCertKey], Key: s.Data[corev1.TLSPrivateKeyKey]},
		next:    pki.Pair{Cert: s.Data[caNextCert], Key: s.Data[caNextKey]},
		trusted: s.Data[caTrusted],
	}
	if at, err := time.Parse(time.RFC3339, s.Annotations[annotationNextAt]); err == nil {
		k.nextAt = at
	}
	return k
}

func (k authorityKeys) writeTo(s *corev1.Secret) {
	s.Data = map[string][]byte{corev1.TLSCertKey: k.present.Cert, corev1.TLSPrivateKeyKey: k.present.Key, caTrusted: k.trusted}
	delete(s.Annotations, annotationNextAt)
	if len(k.next.Cert) > 0 {
		s.Data[caNextCert], s.Data[caNextKey] = k.next.Cert, k.next.Key
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, annotationNextAt, k.nextAt.UTC().Format(time.RFC3339))
	}
}

func (k authorityKeys) fingerprint() string { return objects.Hash(k.present.Cert, k.trusted) }

// turn brings an authority up to date. It makes the next authority a while before the present one ends. After the
// overlap the next becomes the present one, and the last one stays trusted until its end.
func (k authorityKeys) turn(clk clock.PassiveClock, terms Terms) (out authorityKeys, changed bool, err error) {
	now := clk.Now()
	before := k.trusted
	good := func(p pki.Pair) bool { return pki.Check(clk, p.Cert, p, 0) == nil }
	if len(k.next.Cert) > 0 && (!good(k.next) || k.nextAt.IsZero()) {
		k.next, k.nextAt, changed = pki.Pair{}, time.Time{}, true // a person edited the Secret: make another
	}
	if len(k.next.Cert) > 0 && (!now.Before(k.nextAt) || !good(k.present)) {
		k.present, k.next, k.nextAt, changed = k.next, pki.Pair{}, time.Time{}, true
	}
	if !good(k.present) {
		if k.present, err = pki.NewCA(clk, authorityName, terms.Authority); err != nil {
			return k, false, err
		}
		changed = true
	}
	if k.until, err = pki.NotAfter(k.present.Cert); err != nil {
		return k, false, err
	}
	if len(k.next.Cert) == 0 && !now.Before(k.until.Add(-terms.Renewal)) {
		if k.next, err = pki.NewCA(clk, authorityName, terms.Authority); err != nil {
			return k, false, err
		}
		k.nextAt, changed = now.Add(terms.Overlap).Truncate(time.Second), true
	}
	k.trusted, k.oldest = pki.Good(clk, k.present.Cert, k.next.Cert, before)
	return k, changed || !bytes.Equal(k.trusted, before), nil
}

const authorityName = "skein-sandboxes"

// due returns when turn will change something.
func (k authorityKeys) due(terms Terms) time.Time {
	due := k.until.Add(-terms.Renewal)
	if len(k.next.Cert) > 0 {
		due = k.nextAt
	}
	if k.oldest.Before(due) {
		due = k.oldest
	}
	return due
}
