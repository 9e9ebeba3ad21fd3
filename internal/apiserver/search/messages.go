// Package search finds messages in many threads.
package search

import (
	"context"
	"net/http"
	"slices"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/access"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// maxSearchOffset bounds the offset of a search, because the database sorts everything before it.
const maxSearchOffset = 10_000

// maxPageBytes bounds the messages of a page: a message may have a mebibyte, and a page a thousand of them.
const maxPageBytes = 8 << 20

// Engine is the part of the engine that searches the memory of an agent.
type Engine interface {
	// SearchMemory searches earlier messages (RUN-08).
	SearchMemory(ctx context.Context, t *store.Thread, q tool.MemoryQuery) ([]store.NearMessage, error)
}

// Handler searches messages of many threads.
type Handler struct {
	Threads *thread.Service
	Engine  Engine
	Find    *lookup.Finder
	Access  *access.Reviews
}

// Messages answers GET searches?q=: messages of the namespaces in which the caller may get threads/messages
// (THR-16). Other namespaces give no results and no error, and neither does retained data of an earlier namespace of the
// same name.
func (h *Handler) Messages(c *call.Call) error {
	ctx := c.Context()
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit := q.Number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)
	offset := q.Number("offset", 0, 0, maxSearchOffset)
	sq := store.SearchQuery{Text: q.Text("q"), Role: store.Role(q.Text("role")), Limit: limit, Offset: offset, MaxBytes: maxPageBytes}
	namespace, name := q.Text("namespace"), q.Text("thread")
	if err := q.Check(); err != nil {
		return err
	}
	if sq.Namespaces, err = h.namespacesToSearch(c, namespace); err != nil {
		return err
	}
	if sq.NamespaceUIDs, err = h.Find.NamespaceUIDs(ctx, namespace); err != nil {
		return err
	}
	list := runtimev1.SearchHitList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindSearchHitList), Hits: []runtimev1.SearchHit{}}
	if name != "" {
		found, err := h.Find.Stored(ctx, store.FindQuery{Namespace: namespace, Limit: lookup.MaxCandidates}, name)
		if err == nil && len(found) == 0 {
			found, err = h.Threads.Store().FindThreads(ctx, store.FindQuery{Name: name, Namespace: namespace, Limit: lookup.MaxCandidates})
		}
		if err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(t store.Thread) bool {
			return sq.Namespaces != nil && !slices.Contains(sq.Namespaces, t.Namespace) || !t.WithinAny(sq.NamespaceUIDs)
		})
		switch len(found) {
		case 0:
			return c.WriteJSON(http.StatusOK, list) // for the caller the thread does not exist
		case 1:
			sq.ThreadID = found[0].ID
		default:
			return status.Ambiguous(name, "")
		}
	}
	adjust, err := membudget.Reserve(ctx, maxPageBytes)
	if err != nil {
		return err
	}
	hits, more, err := h.Threads.SearchMessages(ctx, sq)
	if err != nil {
		return err
	}
	var size int64
	for i := range hits {
		size += hits[i].Message.Bytes()
	}
	adjust(size)
	list.HasMore = more
	for i := range hits {
		h := &hits[i]
		hit := runtimev1.SearchHit{
			Namespace: h.Namespace, Thread: h.Name, ThreadID: h.ThreadID, Title: h.Title, Snippet: h.Snippet, Rank: h.Rank, Message: convert.Message(&h.Message),
		}
		if err := c.CleanItem(h.Namespace, &hit); err != nil {
			return err
		}
		list.Hits = append(list.Hits, hit)
	}
	return c.WriteJSON(http.StatusOK, list)
}

// namespacesToSearch returns the namespaces whose messages the caller may search: nil means all of them, an empty list none. namespace
// limits the search to one; it may be empty.
func (h *Handler) namespacesToSearch(c *call.Call, namespace string) ([]string, error) {
	ctx := c.Context()
	if namespace != "" {
		ok, err := h.Access.May(ctx, "get", runtimev1.SubresourceMessages, namespace, "")
		if err != nil || !ok {
			return []string{}, err
		}
		return []string{namespace}, nil
	}
	allowed, all, err := h.Access.Namespaces(ctx, "get", runtimev1.SubresourceMessages)
	if err != nil || all {
		return nil, err
	}
	return append([]string{}, allowed...), nil
}
