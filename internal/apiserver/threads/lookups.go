package threads

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/access"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// maxNamed bounds how many threads the error about an ambiguous name lists.
const maxNamed = 10

// Lookups finds the thread that an id means, in any namespace.
type Lookups struct {
	Threads *thread.Service
	Reader  client.Reader // finds Thread objects
	Find    *lookup.Finder
	Access  *access.Reviews
	Records *Records
}

// Get answers GET lookups/{id}: the thread that any form of an id means, in any namespace, among the threads
// that the caller may get (IDS-01, THR-16). Other threads do not exist for the caller, and neither does retained data of a
// namespace that no longer exists.
func (h *Lookups) Get(c *call.Call) error {
	ctx := c.Context()
	q, err := c.Query()
	if err != nil {
		return err
	}
	if err := q.Check(); err != nil {
		return err
	}
	found, err := h.readable(ctx, c.Name)
	if err != nil {
		return err
	}
	switch len(found) {
	case 0:
		return store.ErrNotFound
	case 1:
		c.Row = &found[0]
		c.Namespace = c.Row.Namespace // whose secrets are removed from the answer
		c.Thread = h.Threads.StateOf(c.Row)
		return h.Records.write(c)
	}
	var texts []string
	for _, t := range found[:min(len(found), maxNamed)] {
		texts = append(texts, fmt.Sprintf("%s (%s in namespace %s)", t.ID, t.Name, t.Namespace))
	}
	if len(found) > maxNamed {
		texts = append(texts, "…")
	}
	return status.Ambiguous(c.Name, ": "+strings.Join(texts, ", "))
}

// readable returns the threads that a name or a spelling of an id means and that the caller may get. A whole id takes
// precedence over a name that looks like one.
func (h *Lookups) readable(ctx context.Context, name string) ([]store.Thread, error) {
	candidates, err := h.Find.Stored(ctx, store.FindQuery{Limit: lookup.MaxCandidates}, name)
	if err != nil {
		return nil, err
	}
	found, err := h.keepReadable(ctx, candidates)
	if _, whole := thread.ParseID(name); err != nil || whole && len(found) > 0 {
		return found, err
	}
	named, err := h.Threads.Store().FindThreads(ctx, store.FindQuery{Name: name, Limit: lookup.MaxCandidates})
	if err != nil {
		return nil, err
	}
	named = slices.DeleteFunc(named, func(t store.Thread) bool {
		return slices.ContainsFunc(found, func(f store.Thread) bool { return f.ID == t.ID })
	})
	if named, err = h.keepReadable(ctx, named); err != nil {
		return nil, err
	}
	if found = append(found, named...); len(found) < 2 {
		return found, nil
	}
	return h.present(ctx, found)
}

func (h *Lookups) keepReadable(ctx context.Context, threads []store.Thread) (kept []store.Thread, err error) {
	for _, t := range threads {
		ok, err := h.Access.May(ctx, "get", "", t.Namespace, t.Name)
		if err != nil {
			return nil, err
		}
		if ok {
			ok, err = h.Find.Shows(ctx, "", &t)
		}
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, t)
		}
	}
	return kept, nil
}

// present filters threads of the same name: it omits a thread without an object when another thread of the same name
// and namespace has one.
func (h *Lookups) present(ctx context.Context, threads []store.Thread) ([]store.Thread, error) {
	current := map[client.ObjectKey]string{}
	for _, t := range threads {
		key := client.ObjectKey{Namespace: t.Namespace, Name: t.Name}
		var obj skeinv1.Thread
		switch err := h.Reader.Get(ctx, key, &obj); {
		case err == nil:
			current[key] = obj.ThreadID()
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	var kept []store.Thread
	for _, t := range threads {
		if id := current[client.ObjectKey{Namespace: t.Namespace, Name: t.Name}]; id == "" || id == t.ID {
			kept = append(kept, t)
		}
	}
	return kept, nil
}
