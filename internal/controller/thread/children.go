package thread

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// fewChildren is how many children are listed again when one of them changes.
	fewChildren = 100
	// listAfter is how long more of them are not listed again while their parent, which is being deleted, waits for them. So the work
	// for a child does not grow with the number of the others.
	listAfter = time.Second
)

// family is what the status of a thread says about its children.
type family struct {
	count    int32
	counts   *skeinv1.ChildCounts // nil without children
	children []skeinv1.ChildStatus
}

// summarise returns what a status says about children of which the first ones are given: entries within the bounds of the status.
func summarise(counts skeinv1.ChildCounts, count int, first []child) family {
	if count == 0 {
		return family{}
	}
	f := family{count: int32(count), counts: &counts}
	left := skeinv1.MaxStatusChildrenBytes
	for i := range first {
		entry := first[i].entry
		entry.Title, entry.Description = cut(entry.Title), cut(entry.Description)
		size, _ := json.Marshal(entry) // strings, numbers and booleans only: cannot fail
		if left -= len(size); left < 0 {
			break
		}
		f.children = append(f.children, entry)
	}
	return f
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

// cut shortens a text to what an entry of a status has of it.
func cut(text string) string {
	if len(text) <= skeinv1.MaxStatusChildText {
		return text
	}
	return strings.ToValidUTF8(text[:skeinv1.MaxStatusChildText-len("…")], "") + "…"
}

// withStates returns the family with the states of unfinished children in the store, where they are known before the Subagents show
// them.
func (f family) withStates(stored map[string]store.ChildState) family {
	counts := *f.counts
	f.counts, f.children = &counts, slices.Clone(f.children)
	for i := range f.children {
		c := &f.children[i]
		is := stored[c.Reference]
		if is.RegistryStatus == "" || kube.ChildEnded(c.Status) {
			continue
		}
		countState(f.counts, c.Status, -1)
		countState(f.counts, is.RegistryStatus, 1)
		c.ThreadID, c.Status = is.ThreadID, is.RegistryStatus
	}
	slices.SortStableFunc(f.children, func(a, b skeinv1.ChildStatus) int { return unfinishedFirst(a.Status, b.Status) })
	return f
}

// children returns what the status says about the children of a thread. The states of few children are those in the store: so a status
// that is written when a run of the parent ends says that its children have ended.
func (r *Reconciler) children(ctx context.Context, s *scope) (family, error) {
	f, err := r.shownFamily(ctx, s)
	if err != nil || s.row == nil || f.count > fewChildren {
		return f, err
	}
	var unfinished []string
	for i := range f.children {
		if c := &f.children[i]; !kube.ChildEnded(c.Status) {
			unfinished = append(unfinished, c.Reference)
		}
	}
	if unfinished == nil {
		return f, nil
	}
	stored, err := r.Threads.Store().ChildStates(ctx, s.row.ID, unfinished)
	if err != nil {
		return f, fmt.Errorf("read the states of the thread's children: %w", err)
	}
	return f.withStates(stored), nil
}

// shownFamily returns what the Subagents of a thread show.
func (r *Reconciler) shownFamily(ctx context.Context, s *scope) (family, error) {
	if known := r.families.begin(s.req, s.object.UID); known != nil {
		return *known, nil
	}
	var list skeinv1.SubagentList
	err := r.Client.List(ctx, &list, client.InNamespace(s.object.Namespace), client.MatchingFields{objects.IndexThread: s.object.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		r.families.recordFailure(s.req)
		return family{}, fmt.Errorf("list the Subagents: %w", err)
	}
	return r.families.end(s.req, s.object.UID, list.Items), nil
}
