package console

import (
	"context"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// titlesAgain is how long the titles wait after an error, when retrying sooner did not help. The list is complete without them.
const titlesAgain = time.Minute

// title is what only the runtime API knows of a thread.
type title struct {
	v        int64
	text     string
	archived bool
}

func titleOf(h *runtimev1.ThreadHistory) title {
	t := title{v: h.V, archived: h.Archived}
	if h.Title != nil {
		t.text = *h.Title
	}
	return t
}

// titles adds to the rows of threads what only the runtime API knows: titles that a model wrote, and which threads are archived. A viewer who may
// not read it sees the rows without them. The feed's mu guards byID and listed.
type titles struct {
	threads *feed
	byID    map[string]title
	listed  map[string]bool // those that have come since the list began again; nil when it is complete
}

func newTitles() *titles { return &titles{byID: map[string]title{}} }

// decorate returns a row with its title.
func (t *titles) decorate(row any) any {
	r, ok := row.(ThreadRow)
	if !ok {
		return row
	}
	known := t.byID[r.ID]
	if r.Archived = known.archived; r.Title == "" {
		r.Title = known.text
	}
	return r
}

// follow reads the titles until ctx ends.
func (t *titles) follow(ctx context.Context, from *runtimeclient.Client, namespace string, retry wait.Backoff) {
	pause := retry
	for ctx.Err() == nil {
		for change, err := range from.FollowHistory(ctx, namespace) {
			if err != nil {
				if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
					t.refused()
				}
				break
			}
			pause = retry
			t.take(change)
		}
		d := titlesAgain
		if pause.Steps > 0 {
			d = pause.Step()
		}
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
}

// take stores titles, and makes the pages show those that have changed.
func (t *titles) take(change runtimeclient.HistoryChange) {
	f := t.threads
	f.mu.Lock()
	defer f.mu.Unlock()
	if change.Reset {
		t.listed = map[string]bool{}
	}
	changed := map[string]bool{}
	for i := range change.Items {
		h := &change.Items[i]
		before, now := t.byID[h.ThreadID], titleOf(h)
		// While the list comes, its items count also where their versions are lower: the store may have been restored from a backup.
		first := t.listed != nil && !t.listed[h.ThreadID]
		if now.v < before.v && !first {
			continue
		}
		if t.listed != nil {
			t.listed[h.ThreadID] = true
		}
		t.byID[h.ThreadID] = now
		if before.text != now.text || before.archived != now.archived {
			changed[h.ThreadID] = true
		}
	}
	if change.Complete {
		maps.DeleteFunc(t.byID, func(id string, _ title) bool { return !t.listed[id] })
		t.listed = nil
	}
	t.prune()
	t.touch(changed)
}

// touch makes the pages show threads again. The feed's mu is held.
func (t *titles) touch(ids map[string]bool) {
	if len(ids) == 0 {
		return
	}
	for key, row := range t.threads.rows {
		if r, ok := row.(ThreadRow); ok && ids[r.ID] {
			t.threads.touched(key)
		}
	}
}

// spare is how many titles without a row are kept: a title may come before its Thread.
const spare = 1000

// prune removes the titles of threads that have no Thread, such as deleted ones, of which the runtime API does not tell. The feed's mu is held.
func (t *titles) prune() {
	f := t.threads
	if !f.synced || t.listed != nil || len(t.byID) <= len(f.rows)+spare {
		return
	}
	there := make(map[string]bool, len(f.rows))
	for _, row := range f.rows {
		if r, ok := row.(ThreadRow); ok {
			there[r.ID] = true
		}
	}
	maps.DeleteFunc(t.byID, func(id string, _ title) bool { return !there[id] })
}

// refused forgets all titles, because the viewer may not read them any more.
func (t *titles) refused() {
	f := t.threads
	f.mu.Lock()
	defer f.mu.Unlock()
	known := make(map[string]bool, len(t.byID))
	for id := range t.byID {
		known[id] = true
	}
	clear(t.byID)
	t.listed = nil
	t.touch(known)
}
