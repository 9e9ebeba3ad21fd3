package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// maxCandidates bounds how many threads of one name are examined.
	maxCandidates = 1000
	// maxNamed bounds how many threads the error about an ambiguous name lists.
	maxNamed = 10
)

// getLookup answers GET lookups/{id}: the thread that any form of an id means, in any namespace, among the threads
// that the caller may get (IDS-01, THR-16). Other threads do not exist for the caller.
func (s *Server) getLookup(c *call) error {
	ctx := c.r.Context()
	q, err := c.query()
	if err != nil {
		return err
	}
	if err := q.check(); err != nil {
		return err
	}
	found, err := s.readable(ctx, c.name)
	if err != nil {
		return err
	}
	switch len(found) {
	case 0:
		return store.ErrNotFound
	case 1:
		c.row = &found[0]
		if c.thread, err = s.opts.Threads.Open(ctx, c.row.ID); err != nil {
			return err
		}
		return s.writeThread(c)
	}
	var texts []string
	for _, t := range found[:min(len(found), maxNamed)] {
		texts = append(texts, fmt.Sprintf("%s (%s in namespace %s)", t.ID, t.Name, t.Namespace))
	}
	if len(found) > maxNamed {
		texts = append(texts, "…")
	}
	return ambiguous(c.name, ": "+strings.Join(texts, ", "))
}

// readable returns the threads that a name or a spelling of an id means and that the caller may get. A whole id takes
// precedence over a name that looks like one.
func (s *Server) readable(ctx context.Context, name string) ([]store.Thread, error) {
	candidates, err := s.lookup.stored(ctx, store.FindQuery{Limit: maxCandidates}, name)
	if err != nil {
		return nil, err
	}
	found, err := s.keepReadable(ctx, candidates)
	if _, whole := parseThreadID(name); err != nil || whole && len(found) > 0 {
		return found, err
	}
	named, err := s.opts.Threads.Store().FindThreads(ctx, store.FindQuery{Name: name, Limit: maxCandidates})
	if err != nil {
		return nil, err
	}
	named = slices.DeleteFunc(named, func(t store.Thread) bool {
		return slices.ContainsFunc(found, func(f store.Thread) bool { return f.ID == t.ID })
	})
	if named, err = s.keepReadable(ctx, named); err != nil {
		return nil, err
	}
	if found = append(found, named...); len(found) < 2 {
		return found, nil
	}
	return s.present(ctx, found)
}

func (s *Server) keepReadable(ctx context.Context, threads []store.Thread) (kept []store.Thread, err error) {
	for _, t := range threads {
		ok, err := s.may(ctx, "get", "", t.Namespace, t.Name)
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
func (s *Server) present(ctx context.Context, threads []store.Thread) ([]store.Thread, error) {
	current := map[client.ObjectKey]string{}
	for _, t := range threads {
		key := client.ObjectKey{Namespace: t.Namespace, Name: t.Name}
		var obj skeinv1.Thread
		switch err := s.opts.Reader.Get(ctx, key, &obj); {
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

// ambiguous returns a 409: a short form of an id means several threads.
func ambiguous(name, which string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
		Message: fmt.Sprintf("%q means more than one thread: use the whole id, or the namespace and the name%s", name, which),
		Details: details(name, 0),
	}}
}
