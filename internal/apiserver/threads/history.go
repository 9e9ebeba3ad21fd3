package threads

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// maxPageBytes bounds a page: a thread may have eight mebibytes in its fields, and a page a thousand threads.
const maxPageBytes = 8 << 20

// bytesOf returns about how many bytes of memory threads take.
func bytesOf(threads []store.Thread) (n int64) {
	for i := range threads {
		n += threads[i].Bytes()
	}
	return n
}

// History lists threads by their activity.
type History struct {
	Threads *thread.Service
	Find    *lookup.Finder // knows whose data is
}

// List answers GET history, of one namespace or of all: threads by their newest activity, without their
// messages (THR-08, THR-15). Retained data of an earlier namespace of the same name is not among them.
func (h *History) List(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	tq := store.ThreadQuery{
		Namespace: c.Namespace,
		Agent:     q.Text("agent"), UserID: q.Text("user"), TaskID: q.Text("task"),
		Limit:  q.Number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize),
		Offset: q.Number("offset", 0, 0, math.MaxInt32),
		After:  cursor(q, "continue"), MaxBytes: maxPageBytes,
	}
	if tq.After != nil && tq.Offset > 0 {
		q.Bad("offset", "continue says where the page begins: leave one of the two out")
	}
	tq.Archived = map[string]store.ArchivedFilter{"true": store.ArchivedOnly, "all": store.ArchivedShown}[q.OneOf("archived", "false", "true", "all")]
	if err := q.Check(); err != nil {
		return err
	}
	if tq.NamespaceUIDs, err = h.Find.NamespaceUIDs(c.Context(), c.Namespace); err != nil {
		return err
	}
	adjust, err := membudget.Reserve(c.Context(), maxPageBytes)
	if err != nil {
		return err
	}
	page, more, err := h.Threads.Store().Threads(c.Context(), tq)
	if err != nil {
		return err
	}
	adjust(bytesOf(page))
	list := runtimev1.ThreadHistoryList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindThreadHistoryList), HasMore: more}
	if more {
		list.Continue = cursorOf(&page[len(page)-1])
	}
	if list.Items, err = h.Items(c.Context(), page); err != nil {
		return err
	}
	if c.Namespace == "" {
		for i := range list.Items {
			if err := c.CleanItem(list.Items[i].Namespace, &list.Items[i]); err != nil {
				return err
			}
		}
	}
	return c.WriteJSON(http.StatusOK, list)
}

// Items returns threads as items of the list.
func (h *History) Items(ctx context.Context, threads []store.Thread) ([]runtimev1.ThreadHistory, error) {
	ids := make([]string, len(threads))
	for i := range threads {
		ids[i] = threads[i].ID
	}
	parents, err := h.Threads.Store().ParentRelationships(ctx, ids)
	if err != nil {
		return nil, err
	}
	items := make([]runtimev1.ThreadHistory, len(threads))
	for i := range threads {
		items[i] = historyItem(&threads[i], parents[threads[i].ID])
	}
	return items, nil
}

func historyItem(t *store.Thread, parents []store.Relationship) runtimev1.ThreadHistory {
	item := runtimev1.ThreadHistory{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindThreadHistory),
		ObjectMeta: metav1.ObjectMeta{
			Name: t.Name, Namespace: t.Namespace, UID: types.UID(t.ID), CreationTimestamp: metav1.NewTime(time.UnixMicro(t.CreatedAt)),
		},
		ThreadID: t.ID, V: t.Version, Created: t.CreatedAt, AgentID: t.Agent, TaskID: t.TaskID,
		UserLastInteractedAt: convert.UserInteraction(t), LastActivityAt: t.LastActivityAt,
		Workspace: convert.Workspace(t.Fields.Workspace), OriginThreadID: t.OriginID, MainThreadID: convert.MainThread(t),
		ParentRelationships: convert.Relationships(parents),
		SummaryStats:        runtimev1.SummaryStats{DiffStats: runtimev1.DiffStats(t.Diff), MessageCount: t.Messages},
		AgentMode:           t.Fields.AgentMode, Archived: t.ArchivedAt != 0,
	}
	if t.Title != "" {
		item.Title = &t.Title
	}
	if t.UserID != "" {
		item.UserID = &t.UserID
	}
	if t.TerminatedAt != 0 {
		item.Terminated = &t.TerminatedAt
	}
	return item
}

// cursorOf returns the cursor of a thread's place in the list.
func cursorOf(t *store.Thread) string { return strconv.FormatInt(t.LastActivityAt, 10) + "." + t.ID }

// cursor parses such a cursor. It returns nil when the parameter is absent.
func cursor(q *call.Query, key string) *store.ThreadCursor {
	v, ok := q.Get(key)
	if !ok || v == "" {
		return nil
	}
	at, id, found := strings.Cut(v, ".")
	n, err := strconv.ParseInt(at, 10, 64)
	canonical, known := thread.ParseID(id)
	if !found || err != nil || n < 0 || !known || canonical != id {
		q.Bad(key, "%q is not the value of metadata.continue in the previous page", v)
		return nil
	}
	return &store.ThreadCursor{LastActivityAt: n, ID: id}
}
