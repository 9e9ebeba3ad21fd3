package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NewLease is the body of POST lease, which takes the exclusive right to write a thread, and of PUT lease, which
// extends it. The body is optional.
type NewLease struct {
	// TTLSeconds is the term, from 1 to 3600. It is 60 when absent.
	TTLSeconds int64 `json:"ttlSeconds,omitempty"`
}

// Lease is the exclusive right to write a thread: during the lease no run of the thread starts and no other lease is
// granted. Writes with its token in the header Skein-Lease fail with a conflict once another holder has the thread.
type Lease struct {
	metav1.TypeMeta `json:",inline"`
	// Token identifies the holder. It is a secret.
	Token string `json:"token"`
	// Epoch grows with each holder of the thread.
	Epoch int64 `json:"epoch"`
	// ExpiresAt is when the term ends, in microseconds, unless it is renewed.
	ExpiresAt int64 `json:"expiresAt"`
}

// KindLease is the kind of a Lease.
const KindLease = "Lease"
