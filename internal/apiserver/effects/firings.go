package effects

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/effectplan"
	"github.com/skein-dev/skein/internal/store"
)

// nextTimes is how many of the next due times the first page of firings has.
const nextTimes = 10

// Firings answers GET firings/{name}: what a ScheduledEffect fired, and what it did not fire (EFF-07).
func (h *Handler) Firings(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit := q.Number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)
	before := q.Number("before", 0, 0, 1<<53)
	token := q.Text("continue")
	if err := q.Check(); err != nil {
		return err
	}
	page := store.FiringQuery{Before: int64(before), Limit: limit + 1, Brief: true}
	if token != "" {
		if before != 0 {
			return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "continue", "give before or continue, not both")
		}
		due, thread, err := parseToken(token)
		if err != nil {
			return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "continue", "give what the page before has in its field continue")
		}
		page.Before, page.BeforeThread = due, &thread
	}
	id, err := h.Effects.ID(c.Context(), c.Namespace, c.Name)
	if err != nil {
		return err
	}
	page.EffectID = id
	firings, err := h.Threads.Store().Firings(c.Context(), page)
	if err != nil {
		return err
	}
	shown, more := call.Cut(firings, limit, 0)
	list := runtimev1.FiringList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindFiringList), Firings: make([]runtimev1.Firing, len(shown)), Skipped: []runtimev1.SkippedFirings{}, HasMore: more}
	for i := range shown {
		f, err := h.withLog(c.Context(), &shown[i])
		if err != nil {
			return err
		}
		list.Firings[i] = firingOf(f)
	}
	if more {
		list.Continue = tokenOf(&shown[len(shown)-1])
	}
	if before == 0 && token == "" {
		if list.Next, err = h.Effects.Next(c.Context(), c.Namespace, c.Name, nextTimes); err != nil {
			return err
		}
		skips, err := h.Threads.Store().EffectSkips(c.Context(), id, limit)
		if err != nil {
			return err
		}
		for _, k := range skips {
			list.Skipped = append(list.Skipped, runtimev1.SkippedFirings{Due: k.Due, Until: k.Until, Count: k.Count, ThreadID: k.ThreadID, Reason: k.Reason, Detail: k.Detail})
		}
	}
	return c.WriteJSON(http.StatusOK, list)
}

// withLog returns a firing of a list with its log and its target, which lists leave out. The target says whether the firing made a Thread. A
// firing in a thread has neither, and is returned as it is. withLog reads one firing at a time, because the arguments of a page of firings
// may have a gigabyte.
func (h *Handler) withLog(ctx context.Context, f *store.Firing) (*store.Firing, error) {
	if f.ThreadID != "" {
		return f, nil
	}
	found, err := h.Threads.Store().Firing(ctx, f.Key())
	if errors.Is(err, store.ErrNotFound) { // the history was pruned meanwhile
		return f, nil
	}
	return found, err
}

// tokenOf returns the token of the page that follows a firing. A due time may have many firings, one for each thread.
func tokenOf(f *store.Firing) string { return strconv.FormatInt(f.Due, 10) + "." + f.ThreadID }

func parseToken(token string) (due int64, threadID string, err error) {
	micros, threadID, _ := strings.Cut(token, ".")
	due, err = strconv.ParseInt(micros, 10, 64)
	return due, threadID, err
}

// madeBy returns the name of the Thread that a firing of a template has made; "" if it has made none.
func madeBy(f *store.Firing) string {
	var template skeinv1.ThreadTemplate
	if f.StartedAt == 0 || f.Effect != "" || json.Unmarshal(f.Target, &template) != nil || template.Spec.AgentRef.Name == "" {
		return ""
	}
	return effectplan.ThreadName(f.Name, f.Due)
}

func firingOf(f *store.Firing) runtimev1.Firing {
	return runtimev1.Firing{
		Due: f.Due, ThreadID: f.ThreadID, Thread: madeBy(f), Origin: string(cmp.Or(f.Origin, store.OriginSchedule)), Status: string(f.Status), Attempts: f.Attempts, Error: f.Error, Waiting: f.Waiting,
		FiredAt: f.FiredAt, StartedAt: f.StartedAt, EndedAt: f.EndedAt, Cost: f.Cost, Log: f.Log,
	}
}
