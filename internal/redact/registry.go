// Package redact keeps the values of secrets out of everything that is stored or shown (ENV-03). A Registry knows the
// values in use. The wrappers of this package (for a store, an event recorder, a client and a log sink) and the runtime
// API pass every text through it.
//
// A value is found as it is and as it appears in JSON, URLs, HTML, hexadecimal and base64 at any offset. It is replaced
// with Mark. Values shorter than MinLength are not searched for, because they would match everywhere.
package redact

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/ownclock"
)

const (
	// MinLength is the least length of a value that is searched for, in bytes, without surrounding white space.
	MinLength = 6
	// keep is how long a value is searched for after its last registration.
	keep = 24 * time.Hour
	// refresh is the precision of the time of the last registration.
	refresh = time.Minute
	// sweepEvery is how often unused values are removed.
	sweepEvery = time.Hour
)

// Registry knows the secret values by namespace. It is safe for concurrent use; mu guards the fields below it. A nil
// Registry knows none.
type Registry struct {
	clock clock.PassiveClock
	known atomic.Int64 // number of values; 0 skips all work

	mu         sync.RWMutex
	entries    map[entry]time.Time // time of the last registration
	namespaces map[string]*index
	all        *index
	swept      time.Time
}

type entry struct{ namespace, name, value string }

// NewRegistry returns an empty registry. A nil clock means the real clock.
func NewRegistry(c clock.PassiveClock) *Registry {
	if c == nil {
		c = ownclock.Clock{}
	}
	return &Registry{clock: c, entries: map[entry]time.Time{}, namespaces: map[string]*index{}, all: newIndex(18), swept: c.Now()}
}

// Register registers a value as the secret of that name. Repeating it is cheap and necessary: a value that was not
// registered for a day is removed.
func (r *Registry) Register(namespace, name, value string) {
	if r == nil {
		return
	}
	value = strings.TrimSpace(value)
	if len(value) < MinLength {
		return
	}
	e := entry{namespace, name, value}
	now := r.clock.Now()
	r.mu.RLock()
	seen, known := r.entries[e]
	r.mu.RUnlock()
	if known && now.Sub(seen) < refresh {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.entries[e]; !known {
		r.add(e)
	}
	r.entries[e] = now
	r.sweep(now)
}

func (r *Registry) add(e entry) {
	ix := r.namespaces[e.namespace]
	if ix == nil {
		ix = newIndex(14)
		r.namespaces[e.namespace] = ix
	}
	for _, form := range formsOf(e.value) {
		ix.add(form)
		r.all.add(form)
	}
	r.known.Add(1)
}

// sweep removes values that were not registered for a long time.
func (r *Registry) sweep(now time.Time) {
	if now.Sub(r.swept) < sweepEvery {
		return
	}
	r.swept = now
	for e, seen := range r.entries {
		if now.Sub(seen) < keep {
			continue
		}
		delete(r.entries, e)
		r.known.Add(-1)
		for _, form := range formsOf(e.value) {
			r.namespaces[e.namespace].remove(form)
			r.all.remove(form)
		}
		if len(r.namespaces[e.namespace].forms) == 0 {
			delete(r.namespaces, e.namespace)
		}
	}
}

// Text returns a text without the secrets of a namespace. A text of no namespace stays as it is: what is shown across
// namespaces has to be redacted by the namespace of each part, or a reader of one of them could check guesses at the secrets
// of another.
func (r *Registry) Text(namespace, s string) string {
	if r == nil || r.known.Load() == 0 || len(s) < MinLength {
		return s
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if ix := r.namespaces[namespace]; ix != nil {
		return ix.replace(s)
	}
	return s
}

// AnyText returns a text without the secrets of all namespaces, for logs, which only those who run Skein read.
func (r *Registry) AnyText(s string) string {
	if r == nil || r.known.Load() == 0 || len(s) < MinLength {
		return s
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.all.replace(s)
}

// HasSecrets reports whether a namespace has registered secrets.
func (r *Registry) HasSecrets(namespace string) bool {
	if r == nil || r.known.Load() == 0 {
		return false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.namespaces[namespace] != nil
}
