package thread

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/objects"
)

// families remembers the families of threads. Few children are listed again when one of them changes. Of many, each change is applied,
// so that the work for a child does not grow with the number of the others. It is safe for concurrent use.
type families struct {
	mu      sync.Mutex
	watched bool // changes are recorded; otherwise nothing is remembered
	of      map[ctrl.Request]*known
}

type known struct {
	family
	parent  types.UID
	changed bool     // the family is out of date
	members *members // nil when they are few
	listing bool     // the Subagents are being listed now
	missed  []change // changes that are recorded meanwhile
}

// change is what became of a Subagent.
type change struct {
	subagent *skeinv1.Subagent
	gone     bool
}

func (m *families) watch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched, m.of = true, map[ctrl.Request]*known{}
}

// record notes that a Subagent of these parents has changed. The changes of one Subagent must be recorded in their order.
func (m *families) record(c change, parents ...ctrl.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range parents {
		k := m.of[p]
		if k == nil {
			continue
		}
		k.changed = true
		switch {
		case k.listing:
			k.missed = append(k.missed, c) // the list may be older than the change, or newer: then the changes that made it so are recorded, too
		case k.members != nil:
			k.members.apply(c, k.parent)
		}
	}
}

func (m *families) forget(parent ctrl.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, parent)
}

// begin returns the family of the Thread with a UID, or nil when its Subagents are to be listed now. Then the caller calls end or failed.
func (m *families) begin(parent ctrl.Request, uid types.UID) *family {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.watched {
		return nil
	}
	k := m.of[parent]
	if k != nil && k.parent == uid && k.changed && k.members != nil && k.members.count() > fewChildren {
		k.family, k.changed = k.members.family(), false
	}
	if k == nil || k.parent != uid || k.changed || k.listing {
		m.of[parent] = &known{parent: uid, listing: true}
		return nil
	}
	return &k.family
}

// recordFailure records that the Subagents could not be listed.
func (m *families) recordFailure(parent ctrl.Request) { m.forget(parent) }

// end records what was listed, and returns what a status says about it.
func (m *families) end(parent ctrl.Request, uid types.UID, subagents []skeinv1.Subagent) family {
	listed := membersOf(subagents, uid)
	f := listed.family()
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.of[parent]
	switch {
	case k == nil:
	case listed.count() == 0:
		delete(m.of, parent)
	default:
		k.family, k.listing = f, false
		if listed.count() > fewChildren {
			k.members = listed
			for _, c := range k.missed {
				listed.apply(c, uid)
			}
		}
		k.missed = nil
	}
	return f
}

// child is what is remembered of a Subagent.
type child struct {
	name  string
	at    time.Time
	entry skeinv1.ChildStatus
}

// members are the children of one Thread, in the order of a status.
type members struct {
	named  map[string]*child
	sorted []*child
	counts skeinv1.ChildCounts
}

// membersOf returns those of the Subagents that belong to the Thread with a UID. Others may name a Thread that had the name before.
func membersOf(subagents []skeinv1.Subagent, parent types.UID) *members {
	m := &members{named: map[string]*child{}}
	for i := range subagents {
		if s := &subagents[i]; belongsTo(s, parent) {
			m.sorted = append(m.sorted, m.enter(s))
		}
	}
	slices.SortFunc(m.sorted, compareChildren)
	return m
}

// belongsTo reports whether a Subagent is of the parent with a UID.
func belongsTo(s *skeinv1.Subagent, parent types.UID) bool {
	return s.DeletionTimestamp.IsZero() && objects.ControlledBy(s, string(parent))
}

// enter counts a Subagent. The caller adds it to the sorted ones.
func (m *members) enter(s *skeinv1.Subagent) *child {
	c := &child{name: s.Name, at: s.CreationTimestamp.Time, entry: kube.Entry(s)}
	m.named[c.name] = c
	countState(&m.counts, c.entry.Status, 1)
	return c
}

// apply applies the change of one Subagent.
func (m *members) apply(c change, parent types.UID) {
	if old := m.named[c.subagent.Name]; old != nil {
		at, _ := slices.BinarySearchFunc(m.sorted, old, compareChildren)
		m.sorted = slices.Delete(m.sorted, at, at+1)
		delete(m.named, old.name)
		countState(&m.counts, old.entry.Status, -1)
	}
	if !c.gone && belongsTo(c.subagent, parent) {
		entered := m.enter(c.subagent)
		at, _ := slices.BinarySearchFunc(m.sorted, entered, compareChildren)
		m.sorted = slices.Insert(m.sorted, at, entered)
	}
}

func (m *members) count() int { return len(m.sorted) }

// family returns what a status says: the numbers of all, and entries of the first ones.
func (m *members) family() family {
	first := make([]child, 0, skeinv1.MaxStatusChildren)
	for _, c := range m.sorted[:min(len(m.sorted), skeinv1.MaxStatusChildren)] {
		first = append(first, *c)
	}
	return summarise(m.counts, len(m.sorted), first)
}

// compareChildren orders children as a status shows them: the unfinished ones first, each group newest first.
func compareChildren(a, b *child) int {
	return cmp.Or(unfinishedFirst(a.entry.Status, b.entry.Status), b.at.Compare(a.at), strings.Compare(a.name, b.name))
}
