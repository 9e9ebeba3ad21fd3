package console

import (
	"context"
	"maps"
	"time"

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

// titles adds to the rows of threads what only the runtime API knows: titles that a model wrote, and which threads are archived. Who may
// not read it sees the rows without them. The feed's mu guards byID.
type titles struct {
	threads *feed
	byID    map[string]title
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
	if change.Reset && f.synced {
		t.forget()
	}
	changed := map[string]bool{}
	for i := range change.Items {
		h := &change.Items[i]
		before := t.byID[h.ThreadID]
		now := titleOf(h)
		if now.v < before.v && !change.Reset {
			continue
		}
		t.byID[h.ThreadID] = now
		if before.text != now.text || before.archived != now.archived {
			changed[h.ThreadID] = true
		}
	}
	if len(changed) == 0 {
		return
	}
	for key, row := range f.rows {
		if r, ok := row.(ThreadRow); ok && changed[r.ID] {
			f.touched(key)
		}
	}
}

// forget removes the titles of threads that are gone, of which the runtime API does not tell.
func (t *titles) forget() {
	listed := make(map[string]bool, len(t.threads.rows))
	for _, row := range t.threads.rows {
		if r, ok := row.(ThreadRow); ok {
			listed[r.ID] = true
		}
	}
	maps.DeleteFunc(t.byID, func(id string, _ title) bool { return !listed[id] })
}
