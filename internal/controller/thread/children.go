package thread

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// fewChildren is how many children are listed again at once when one of them changes.
	fewChildren = 100
	// listAfter is how long more of them are not listed again. So the work for a child does not grow with the number of the
	// others.
	listAfter = time.Second
)

// family is what the status of a thread says about its children.
type family struct {
	count    int32
	counts   *skeinv1.ChildCounts // nil without children
	children []skeinv1.ChildStatus
}

// summarise returns what a status says about the Subagents of the Thread with a UID: the numbers of all, and entries within the bounds of
// the status, the unfinished ones first, each group newest first. Others may name a Thread that had the name before.
func summarise(subagents []skeinv1.Subagent, parent types.UID) family {
	var f family
	var shown []*skeinv1.Subagent
	for i := range subagents {
		s := &subagents[i]
		if !s.DeletionTimestamp.IsZero() || !objects.ControlledBy(s, string(parent)) {
			continue
		}
		if f.counts == nil {
			f.counts = &skeinv1.ChildCounts{}
		}
		f.count++
		countState(f.counts, stateOf(s), 1)
		at, _ := slices.BinarySearchFunc(shown, s, before)
		if at < skeinv1.MaxStatusChildren {
			shown = slices.Insert(shown, at, s)
			shown = shown[:min(len(shown), skeinv1.MaxStatusChildren)]
		}
	}
	left := skeinv1.MaxStatusChildrenBytes
	for _, s := range shown {
		entry := kube.Entry(s)
		entry.Title, entry.Description = cut(entry.Title), cut(entry.Description)
		size, _ := json.Marshal(entry) // strings, numbers and booleans only: cannot fail
		if left -= len(size); left < 0 {
			break
		}
		f.children = append(f.children, entry)
	}
	return f
}

func stateOf(s *skeinv1.Subagent) string {
	if s.Status.Entry == nil {
		return kube.ChildPending
	}
	return s.Status.Entry.Status
}

func countState(c *skeinv1.ChildCounts, state string, n int32) {
	switch state {
	case kube.ChildPending:
		c.Pending += n
	case kube.ChildCompleted:
		c.Completed += n
	case kube.ChildFailed:
		c.Failed += n
	case kube.ChildTerminated:
		c.Terminated += n
	default: // running, or what the child says of itself
		c.Running += n
	}
}

// before orders Subagents as a status shows them.
func before(a, b *skeinv1.Subagent) int {
	return cmp.Or(unfinishedFirst(stateOf(a), stateOf(b)), createdAt(b).Compare(createdAt(a)), strings.Compare(a.Name, b.Name))
}

func unfinishedFirst(a, b string) int {
	switch x, y := kube.ChildEnded(a), kube.ChildEnded(b); {
	case x == y:
		return 0
	case x:
		return 1
	default:
		return -1
	}
}

func createdAt(s *skeinv1.Subagent) time.Time { return s.CreationTimestamp.Time }

// cut shortens a text to what an entry of a status has of it.
func cut(text string) string {
	if len(text) <= skeinv1.MaxStatusChildText {
		return text
	}
	return strings.ToValidUTF8(text[:skeinv1.MaxStatusChildText-len("…")], "") + "…"
}

// families remembers the families of threads until one of their Subagents changes. It is safe for concurrent use.
type families struct {
	mu      sync.Mutex
	watched bool // changes are marked; otherwise nothing is remembered
	of      map[ctrl.Request]*known
}

type known struct {
	family
	at      time.Time
	changed bool
}

func (m *families) watch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched, m.of = true, map[ctrl.Request]*known{}
}

// mark records that Subagents of these parents have changed.
func (m *families) mark(parents ...ctrl.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range parents {
		if k := m.of[p]; k != nil {
			k.changed = true
		}
	}
}

func (m *families) forget(parent ctrl.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, parent)
}

// begin returns the family to use, or nil when the Subagents are to be listed now. wait is when a family that is out of date
// is listed again.
func (m *families) begin(parent ctrl.Request, at time.Time) (f *family, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.watched {
		return nil, 0
	}
	k := m.of[parent]
	switch {
	case k == nil:
		m.of[parent] = &known{at: at}
		return nil, 0
	case !k.changed:
		return &k.family, 0
	case k.count > fewChildren && at.Before(k.at.Add(listAfter)):
		return &k.family, k.at.Add(listAfter).Sub(at)
	}
	k.changed, k.at = false, at
	return nil, 0
}

// end records what was listed.
func (m *families) end(parent ctrl.Request, f family, failed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.of[parent]
	switch {
	case k == nil:
	case failed, f.count == 0:
		delete(m.of, parent)
	default:
		k.family = f
	}
}

// updated returns the family with the states of unfinished children in the store, where they are known before the Subagents show
// them.
func (f family) updated(rows []store.Thread) family {
	stored := map[string]*store.Thread{}
	for i := range rows {
		stored[rows[i].Reference] = &rows[i]
	}
	counts := *f.counts
	f.counts, f.children = &counts, slices.Clone(f.children)
	for i := range f.children {
		c := &f.children[i]
		row := stored[c.Reference]
		if row == nil || row.RegistryStatus == "" || kube.ChildEnded(c.Status) {
			continue
		}
		countState(f.counts, c.Status, -1)
		countState(f.counts, row.RegistryStatus, 1)
		c.ThreadID, c.Status = row.ID, row.RegistryStatus
	}
	slices.SortStableFunc(f.children, func(a, b skeinv1.ChildStatus) int { return unfinishedFirst(a.Status, b.Status) })
	return f
}

// children returns what the status says about the children of a thread. wait is when that may be out of date. The states of few
// children are those in the store: so a status that is written when a run of the parent ends says that its children have ended.
func (r *Reconciler) children(ctx context.Context, s *scope) (f family, wait time.Duration, err error) {
	f, wait, err = r.shown(ctx, s)
	if err != nil || s.row == nil || f.count == 0 || f.count > fewChildren || f.counts.Pending+f.counts.Running == 0 {
		return f, wait, err
	}
	rows, err := r.Threads.Store().Children(ctx, s.row.ID)
	if err != nil {
		return f, 0, fmt.Errorf("list the children of the thread: %w", err)
	}
	return f.updated(rows), wait, nil
}

// shown returns what the Subagents of a thread show.
func (r *Reconciler) shown(ctx context.Context, s *scope) (f family, wait time.Duration, err error) {
	if known, wait := r.families.begin(s.req, r.Clock.Now()); known != nil {
		return *known, wait, nil
	}
	var list skeinv1.SubagentList
	err = r.Client.List(ctx, &list, client.InNamespace(s.object.Namespace), client.MatchingFields{objects.IndexThread: s.object.Name}, client.UnsafeDisableDeepCopy)
	if err == nil {
		f = summarise(list.Items, s.object.UID)
	}
	r.families.end(s.req, f, err != nil)
	if err != nil {
		return f, 0, fmt.Errorf("list the Subagents: %w", err)
	}
	return f, 0, nil
}
