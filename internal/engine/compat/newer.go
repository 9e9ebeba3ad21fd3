// Package compat leaves alone what only a newer release knows: inbox items, and runs.
package compat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/lru"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/store"
)

// A replica of the next release may write what this one does not know (docs/adr/0053-neighbouring-versions.md). This replica leaves that
// alone, for a replica that knows it, and does the rest.

// maxNewer is how many threads and items with something of a newer release are kept in memory.
const maxNewer = 16384

// Store is a store that leaves out inbox items that this release cannot handle. The engine does not see them, and so it neither handles
// nor removes them.
type Store struct {
	store.Store
	log logr.Logger
	// threads has the threads with inbox items that this release cannot handle, and runs those with such a run. The values are nil.
	threads, runs *lru.Cache
	// reported has the keys of what was logged and counted.
	reported *lru.Cache
	left     *prometheus.CounterVec
}

// New returns a Store over s.
func New(s store.Store, log logr.Logger) *Store {
	return &Store{
		Store: s, log: log, threads: lru.New(maxNewer), runs: lru.New(maxNewer), reported: lru.New(maxNewer),
		left: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_engine_newer_items_total",
			Help: "What this replica left for one of a newer release, because it does not know it: inbox items by their kind, and runs.",
		}, []string{"kind"}),
	}
}

// Metrics returns the metric of what is left for newer replicas.
func (n *Store) Metrics() prometheus.Collector { return n.left }

// Has reports whether a thread had something that this release cannot handle when it was read last.
func (n *Store) Has(threadID string) bool {
	_, items := n.threads.Get(threadID)
	_, run := n.runs.Get(threadID)
	return items || run
}

// Inbox implements store.Store.
func (n *Store) Inbox(ctx context.Context, threadID string) ([]store.InboxItem, error) {
	items, err := n.Store.Inbox(ctx, threadID)
	return n.keepKnown(threadID, items), err
}

// Work implements store.Store.
func (n *Store) Work(ctx context.Context, threadID string) (*store.Work, error) {
	w, err := n.Store.Work(ctx, threadID)
	if err != nil {
		return nil, err
	}
	w.Inbox = n.keepKnown(threadID, w.Inbox)
	return w, nil
}

// keepKnown returns the items that this release can handle. It logs and counts each other item once, and notes for Has whether there are
// any.
func (n *Store) keepKnown(threadID string, items []store.InboxItem) []store.InboxItem {
	left := false
	known := slices.DeleteFunc(items, func(item store.InboxItem) bool {
		err := readable(item)
		if err != nil {
			left = true
			n.leave(threadID, fmt.Sprint(item.Seq), string(item.Kind), err)
		}
		return err != nil
	})
	if left {
		n.threads.Add(threadID, nil)
	} else {
		n.threads.Remove(threadID)
	}
	return known
}

// leave logs and counts, once, what this replica leaves.
func (n *Store) leave(threadID, what, kind string, why error) {
	key := threadID + "\x00" + what
	if _, reported := n.reported.Get(key); reported {
		return
	}
	n.reported.Add(key, nil)
	n.left.WithLabelValues(kind).Inc()
	n.log.Info("Left something for a replica of a newer release: this release does not know it. If no newer replica will run again, it stays until its thread is deleted",
		"thread", threadID, "kind", kind, "seq", what, "reason", why.Error())
}

// LeavesRun reports whether only a newer release can continue the newest run of a thread. This replica leaves such a run alone,
// and logs that once.
func (n *Store) LeavesRun(threadID string, r *store.Run) bool {
	var needs *runstate.NewerError
	if _, err := runstate.Read(r); r.Status.Ended() || !errors.As(err, &needs) {
		n.runs.Remove(threadID)
		return false
	}
	n.runs.Add(threadID, nil)
	n.leave(threadID, r.ID, "run", needs)
	return true
}

// readable returns an error for an item that this release does not know.
func readable(item store.InboxItem) error {
	switch item.Kind {
	case store.InboxMessage:
		return decodes[store.Message](item)
	case store.InboxChildResult:
		return decodes[store.ChildResult](item)
	case store.InboxTool:
		return decodes[store.QueuedTool](item)
	case store.InboxApproval:
		return decodes[store.ApprovalDecision](item)
	case store.InboxRerun:
		return decodes[store.Rerun](item)
	case store.InboxStop:
		return decodes[store.StopRequest](item)
	case store.InboxCompact:
		return decodes[store.CompactionRequest](item)
	case store.InboxHook:
		var h store.HookCall
		if err := json.Unmarshal(item.Payload, &h); err != nil {
			return err
		}
		if !slices.Contains(queuedHooks, skeinv1.HookName(h.Hook)) {
			return fmt.Errorf("unknown hook %q", h.Hook)
		}
		return nil
	case store.InboxResume:
		return nil
	}
	return fmt.Errorf("unknown kind %q", item.Kind)
}

// queuedHooks are the hooks that are called through the inbox. All others are called at once, after_system_message too.
var queuedHooks = []skeinv1.HookName{
	skeinv1.HookAfterThreadCreated, skeinv1.HookAfterSubagentCreated, skeinv1.HookAfterCreateMessage, skeinv1.HookAfterUpdateMessage,
	skeinv1.HookAfterToolCallSuccess, skeinv1.HookAfterToolCallFailure,
}

func decodes[T any](item store.InboxItem) error {
	var v T
	return json.Unmarshal(item.Payload, &v)
}
