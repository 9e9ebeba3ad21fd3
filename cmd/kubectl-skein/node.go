package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// node is one object in a tree.
type node struct {
	kind, name, uid string
	owners          []string
	created         time.Time
	status, details string
	children        []*node
}

func nodeOf(kind string, o client.Object) *node {
	n := &node{kind: kind, name: o.GetName(), uid: string(o.GetUID()), created: o.GetCreationTimestamp().Time}
	for _, ref := range o.GetOwnerReferences() {
		n.owners = append(n.owners, string(ref.UID))
	}
	return n
}

func threadNode(t *skeinv1.Thread) *node {
	n := nodeOf("Thread", t)
	n.status = orElse(t.Status.Phase, "Pending")
	parts := []string{"agent " + orElse(t.Status.Agent, t.Spec.AgentRef.Name)}
	if t.Status.Messages > 0 {
		parts = append(parts, count(t.Status.Messages, "message"))
	}
	if t.Status.QueuedMessages > 0 {
		parts = append(parts, fmt.Sprintf("%d queued", t.Status.QueuedMessages))
	}
	if r := t.Status.LastRun; r != nil && r.Outcome != "" {
		text := "last run " + string(r.Outcome)
		if r.Reason != "" {
			text += " (" + r.Reason + ")"
		}
		parts = append(parts, text)
	}
	if why := notReady(t.Status.Conditions); why != "" {
		parts = append(parts, why)
	}
	n.details = strings.Join(parts, ", ")
	return n
}

func subagentNode(s *skeinv1.Subagent) *node {
	n := nodeOf("Subagent", s)
	n.status = "pending"
	if s.Status.Entry != nil {
		n.status = s.Status.Entry.Status
	}
	parts := []string{s.Spec.Name}
	if s.Spec.Blocking {
		parts = append(parts, "blocking")
	}
	if s.Spec.Resumable {
		parts = append(parts, "resumable")
	}
	if why := notReady(s.Status.Conditions); why != "" {
		parts = append(parts, why)
	}
	n.details = strings.Join(parts, ", ")
	return n
}

func effectNode(e *skeinv1.ScheduledEffect) *node {
	n := nodeOf("ScheduledEffect", e)
	n.status = orElse(e.Status.Phase, "Pending")
	parts := []string{doing(&e.Spec)}
	if e.Status.ScheduledAt > 0 && e.Status.FiredAt == 0 {
		due := time.UnixMicro(e.Status.ScheduledAt)
		if left := time.Until(due); left > 0 {
			parts = append(parts, "in "+duration.ShortHumanDuration(left))
		} else {
			parts = append(parts, "due")
		}
	}
	if why := notReady(e.Status.Conditions); why != "" {
		parts = append(parts, why)
	}
	n.details = strings.Join(parts, ", ")
	return n
}

// doing says what a firing does.
func doing(s *skeinv1.ScheduledEffectSpec) string {
	switch {
	case s.CallTool != nil:
		return "calls the tool " + s.CallTool.Name
	case s.QueueTool != nil:
		return "queues the tool " + s.QueueTool.Name
	case s.Message != nil:
		return "sends a message"
	case s.ThreadTemplate != nil:
		return "makes a thread of agent " + s.ThreadTemplate.Spec.AgentRef.Name
	}
	return s.Effect
}

func podNode(p *corev1.Pod) *node {
	n := nodeOf("Pod", p)
	n.status = string(p.Status.Phase)
	if p.DeletionTimestamp != nil {
		n.status = "Terminating"
	}
	n.details = "sandbox"
	if pool := p.Labels[skeinv1.LabelPool]; pool != "" {
		n.details += " of pool " + pool
	}
	return n
}

// notReady returns the reason and message of a Ready condition that is not true, or "".
func notReady(conditions []metav1.Condition) string {
	c := meta.FindStatusCondition(conditions, skeinv1.ConditionReady)
	if c == nil || c.Status == metav1.ConditionTrue {
		return ""
	}
	return c.Reason + ": " + shorten(c.Message)
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// print prints the node and everything below it as lines of a table.
func (n *node) print(w io.Writer, first, rest string) {
	fmt.Fprintf(w, "%s%s/%s\t%s\t%s\t%s\n", first, n.kind, n.name, n.status, safe(n.details), duration.HumanDuration(time.Since(n.created)))
	for i, c := range n.children {
		if i == len(n.children)-1 {
			c.print(w, rest+"└─", rest+"  ")
		} else {
			c.print(w, rest+"├─", rest+"│ ")
		}
	}
}
