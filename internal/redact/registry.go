// Package redact keeps the values of secrets out of everything that is written down or shown (ENV-03). A
// Registry knows the values that are in use; the doors of this package (a store, an event recorder, a client
// and a log sink that wrap others) and the runtime API put every text through it.
//
// A value is found as it is and as it looks inside JSON, URLs, HTML, hexadecimal and base64 at any offset, and
// is replaced by "[redacted:NAME]". Values shorter than MinLength are not looked for: they would be found
// everywhere.
package redact

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// MinLength of a value that is looked for, in bytes, without the space around it.
	MinLength = 6
	// keep is how long a value is looked for after it was last registered.
	keep = 24 * time.Hour
	// refresh is how exactly the time of the last registration is known.
	refresh = time.Minute
	// sweepEvery is how often values that are not in use any more are forgotten.
	sweepEvery = time.Hour
)

// Registry knows which values are secret, by namespace. It is safe for concurrent use; a nil Registry knows none.
type Registry struct {
	clock clock.PassiveClock
	known atomic.Int64 // values: 0 costs nothing

	mu         sync.RWMutex
	entries    map[entry]time.Time // when last registered
	namespaces map[string]*index
	all        *index
	swept      time.Time
}

type entry struct{ namespace, name, value string }

// NewRegistry makes an empty registry; the clock is the real one when nil.
func NewRegistry(c clock.PassiveClock) *Registry {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Registry{clock: c, entries: map[entry]time.Time{}, namespaces: map[string]*index{}, all: newIndex(18), swept: c.Now()}
}

// Register makes a value known as the secret of that name. Again is cheap, and needed: a value that was not
// registered for a day is forgotten.
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
	mark := "[redacted:" + markName(e.name) + "]"
	for _, form := range formsOf(e.value) {
		ix.add(form, mark)
		r.all.add(form, mark)
	}
	r.known.Add(1)
}

// sweep forgets what was not registered for long.
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

// markName keeps what stands in texts, JSON and labels alike.
func markName(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.', c == '/':
			return c
		}
		return '_'
	}, name)
}

// Text gives a text without the secrets of a namespace, of any when it is empty.
func (r *Registry) Text(namespace, s string) string {
	if r == nil || r.known.Load() == 0 || len(s) < MinLength {
		return s
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if ix := r.index(namespace); ix != nil {
		return ix.replace(s)
	}
	return s
}

// index of a namespace, of all when it is empty; nil when it has no secrets.
func (r *Registry) index(namespace string) *index {
	if namespace == "" {
		return r.all
	}
	return r.namespaces[namespace]
}

// AnyText gives a text without the secrets of any namespace, for logs.
func (r *Registry) AnyText(s string) string { return r.Text("", s) }

// Stream gives what of a text that goes on can be shown already, without secrets, and the end of it that may be
// the beginning of one: put that in front of what comes next.
func (r *Registry) Stream(namespace, s string) (ready, held string) {
	if r == nil || r.known.Load() == 0 {
		return s, ""
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	ix := r.index(namespace)
	if ix == nil {
		return s, ""
	}
	return ix.stream(s)
}

// Holds tells whether a namespace, or any when it is empty, has secrets that are looked for.
func (r *Registry) Holds(namespace string) bool {
	if r == nil || r.known.Load() == 0 {
		return false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.index(namespace) != nil
}
