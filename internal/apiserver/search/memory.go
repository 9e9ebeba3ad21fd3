package search

import (
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/engine/memory"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/tool"
)

const defaultMemoryHits = 10

// Memory answers GET memory?q=: it searches the threads of the same agent and user, and then leaves out hits in threads of which the
// caller may not get threads/messages (RUN-08). So there may be fewer hits than limit.
func (h *Handler) Memory(c *call.Call) error {
	ctx := c.Context()
	q, err := c.Query()
	if err != nil {
		return err
	}
	mq := tool.MemoryQuery{Text: q.Text("q"), Limit: q.Number("limit", defaultMemoryHits, 1, runtimev1.MaxMemoryHits)}
	for key, into := range map[string]*int64{"since": &mq.Since, "until": &mq.Until} {
		text, given := q.Get(key)
		if !given {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			q.Bad(key, "it must be a time such as 2026-03-01T00:00:00Z")
		}
		*into = at.UnixMicro()
	}
	switch {
	case strings.TrimSpace(mq.Text) == "":
		q.Bad("q", "set it to a text to search for")
	case len(mq.Text) > runtimev1.MaxMemoryQuery:
		q.Bad("q", "the text has %d bytes, more than %d", len(mq.Text), runtimev1.MaxMemoryQuery)
	}
	if err := q.Check(); err != nil {
		return err
	}
	found, err := h.Engine.SearchMemory(ctx, c.Row, mq)
	if err != nil {
		return memoryError(err)
	}
	list := runtimev1.MemoryHitList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindMemoryHitList), Hits: []runtimev1.MemoryHit{}}
	readable := map[string]bool{}
	for i := range found {
		f := &found[i]
		ok, asked := readable[f.Name]
		if !asked {
			if ok, err = h.Access.May(ctx, "get", runtimev1.SubresourceMessages, c.Namespace, f.Name); err != nil {
				return err
			}
			readable[f.Name] = ok
		}
		if ok {
			list.Hits = append(list.Hits, runtimev1.MemoryHit{
				Thread: f.Name, ThreadID: f.ThreadID, Title: f.Title, Score: f.Score, Message: convert.Message(&f.Message),
			})
		}
	}
	return c.WriteJSON(http.StatusOK, list)
}

func memoryError(err error) error {
	var failed *model.Error
	switch {
	case errors.Is(err, memory.ErrNone):
		return apierrors.NewBadRequest(err.Error())
	case errors.As(err, &failed):
		return apierrors.NewServiceUnavailable("the text could not be turned into a vector: " + failed.Message)
	}
	return err
}
