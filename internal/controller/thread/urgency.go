package thread

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// The rules for status writes (docs/adr/0003-thread-status-writes.md). Package statuslimit limits them further.
const (
	// firstAfter gathers the first status of a thread that has something to do with the end of its first run, so that a short one
	// costs one write.
	firstAfter = 100 * time.Millisecond
	// showRunAfter is how long a run must last to be shown as running. A shorter run is never shown, so its turn
	// costs one write.
	showRunAfter = time.Second
	// familyAfter gathers changes of the children of a thread at rest.
	familyAfter = time.Second
	// countsAfter gathers changes that no client waits for: counts and times of a thread at rest, and children of a
	// thread whose run is shown.
	countsAfter = 10 * time.Second
)

// urgency says how soon a change of the status must be written.
type urgency int

const (
	none     urgency = iota // no difference, or one that the end of the run will include
	soft                    // counts and times, or the children of a thread that is shown as running
	familial                // the mirrored children, the relationships, and the first status of a child
	running                 // a run that is not shown yet
	first                   // the first status of a thread that has something to do
	now                     // everything that a client may wait for
)

// classify returns how urgent the difference of two statuses is.
func classify(before, after *skeinv1.ThreadStatus) urgency {
	if equality.Semantic.DeepEqual(before, after) {
		return none
	}
	if before.Phase == "" && after.TerminatedAt == 0 && meta.IsStatusConditionTrue(after.Conditions, skeinv1.ConditionReady) &&
		(after.LastRun == nil || after.LastRun.Outcome == "") {
		switch {
		case after.Parent != "":
			return familial // the first status of a child: its Subagent shows how it is
		case after.QueuedMessages > 0 || after.LastRun != nil:
			return first
		}
	}
	if before.Phase == "" || before.ObservedGeneration != after.ObservedGeneration || before.ThreadID != after.ThreadID ||
		before.TerminatedAt != after.TerminatedAt || before.Parent != after.Parent ||
		conditionDiffers(before, after, skeinv1.ConditionReady) || conditionDiffers(before, after, skeinv1.ConditionTerminated) ||
		conditionDiffers(before, after, skeinv1.ConditionStatePersisted) ||
		!equality.Semantic.DeepEqual(before.Destroyed, after.Destroyed) ||
		endedSince(before.LastRun, after.LastRun) {
		return now
	}
	executing := meta.IsStatusConditionTrue(after.Conditions, skeinv1.ConditionExecuting)
	shown := meta.IsStatusConditionTrue(before.Conditions, skeinv1.ConditionExecuting) && sameRun(before.LastRun, after.LastRun)
	turned := before.Phase != after.Phase || before.Agent != after.Agent || before.OriginAgent != after.OriginAgent || before.ChildCount != after.ChildCount ||
		!equality.Semantic.DeepEqual(before.ChildCounts, after.ChildCounts) || !equality.Semantic.DeepEqual(before.Children, after.Children) ||
		before.RelationshipCount != after.RelationshipCount || !equality.Semantic.DeepEqual(before.Relationships, after.Relationships)
	switch {
	case executing && !shown:
		return running
	case executing && turned:
		return soft
	case executing:
		return none
	case turned && familyEnded(before.ChildCounts, after.ChildCounts):
		return now
	case turned:
		return familial
	default:
		return soft
	}
}

// familyEnded reports whether no child is left that has not ended, where an earlier status showed some, or not all that have ended. People wait
// for the last one.
func familyEnded(before, after *skeinv1.ChildCounts) bool {
	return after != nil && after.Pending+after.Running == 0 && (before == nil || *before != *after)
}

// gather returns how long a change may wait for others.
func gather(u urgency, run *store.Run, at time.Time) time.Duration {
	switch u {
	case soft:
		return countsAfter
	case familial:
		return familyAfter
	case first:
		return firstAfter
	case running:
		if run != nil {
			return max(time.UnixMicro(run.StartedAt).Add(showRunAfter).Sub(at), 0)
		}
	}
	return 0
}

func conditionDiffers(a, b *skeinv1.ThreadStatus, kind string) bool {
	x, y := meta.FindStatusCondition(a.Conditions, kind), meta.FindStatusCondition(b.Conditions, kind)
	if x == nil || y == nil {
		return x != y
	}
	return x.Status != y.Status || x.Reason != y.Reason || x.Message != y.Message
}

// endedSince reports whether a run has ended that the earlier status did not show as ended.
func endedSince(before, after *skeinv1.RunStatus) bool {
	return after != nil && after.Outcome != "" && (!sameRun(before, after) || before.Outcome == "")
}

func sameRun(a, b *skeinv1.RunStatus) bool { return a != nil && b != nil && a.ID == b.ID }
