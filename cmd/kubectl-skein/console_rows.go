package main

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/cmd/kubectl-skein/internal/console"
)

// threadRow returns what the console lists of a Thread. The state and what the thread waits for are those of `kubectl skein list`.
func threadRow(t *skeinv1.Thread) console.ThreadRow {
	row := console.ThreadRow{
		Namespace: t.Namespace, Name: t.Name, ID: t.ThreadID(), Title: t.Spec.Title, Agent: orElse(t.Status.Agent, t.Spec.AgentRef.Name), User: t.Spec.UserID,
		State: stateOf(t), Messages: t.Status.Messages, Queued: t.Status.QueuedMessages, Parent: t.Status.Parent,
		Active: activeAt(t).UnixMilli(), Created: t.CreationTimestamp.UnixMilli(),
	}
	if b := blockerOf(t); b.reason != "" {
		row.Waits = &console.Wait{Reason: b.reason, Message: b.message, NeedsPerson: b.needsPerson}
	}
	if r := t.Status.LastRun; r != nil {
		row.Outcome, row.Reason = string(r.Outcome), r.Reason
	}
	for _, owner := range t.OwnerReferences {
		if owner.Kind == "Subagent" {
			row.Reference = owner.Name
		}
	}
	return row
}

// effectRow returns what the console lists of a ScheduledEffect.
func effectRow(o *skeinv1.ScheduledEffect) console.EffectRow {
	s := &o.Status
	row := console.EffectRow{
		Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), Does: doing(&o.Spec), Schedule: scheduleText(o), Next: milliseconds(s.NextTime), Last: milliseconds(s.LastTime),
		Outcome: s.LastOutcome, Phase: s.Phase, Suspended: o.Spec.Suspend, Ended: hasEnded(*o), Active: s.Active, Ready: true,
		Created: o.CreationTimestamp.UnixMilli(),
	}
	if o.Spec.ThreadRef != nil {
		row.Thread = o.Spec.ThreadRef.Name
	}
	if c := meta.FindStatusCondition(s.Conditions, skeinv1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse {
		row.Ready, row.Reason, row.Message = false, c.Reason, c.Message
	}
	return row
}

// milliseconds returns a time in milliseconds since 1970; 0 if there is none.
func milliseconds(t *metav1.Time) int64 {
	if t == nil || t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
