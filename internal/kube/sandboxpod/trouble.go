package sandboxpod

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// IsReady reports whether a sandbox pod is ready and not being deleted.
func IsReady(p *corev1.Pod) bool {
	if !p.DeletionTimestamp.IsZero() || p.Status.PodIP == "" {
		return false
	}
	c := condition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// IsOver reports whether a pod has ended or is being deleted.
func IsOver(p *corev1.Pod) bool {
	return !p.DeletionTimestamp.IsZero() || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// UnreadySince returns since when a pod has not been ready: since its creation, or since it stopped being ready.
func UnreadySince(p *corev1.Pod) time.Time {
	since := p.CreationTimestamp.Time
	if c := condition(p, corev1.PodReady); c != nil && c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	return since
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// Trouble says what keeps a sandbox pod from starting. The zero value means nothing.
type Trouble struct {
	Reason string // for a pool's Ready condition: skeinv1.ReasonImageUnavailable and so on
	Text   string // what Kubernetes says
	Advice string // what to do
	// Final means that waiting for the pod is useless.
	Final bool
}

// String returns what is wrong and what to do about it.
func (t Trouble) String() string { return advise(t.Text, t.Advice) }

// TroubleText returns why a pod does not start, or "" when no reason is known.
func TroubleText(p *corev1.Pod) string { return TroubleOf(p).Text }

// imageReasons are the reasons for which a container waits for its image. The value is true when the kubelet has
// already retried in vain, or cannot succeed.
var imageReasons = map[string]bool{
	"ErrImagePull": false, "RegistryUnavailable": false, "SignatureValidationFailed": false, "ImageInspectError": false,
	"ImagePullBackOff": true, "ErrImageNeverPull": true, "InvalidImageName": true,
}

// TroubleOf returns why a pod does not start.
func TroubleOf(p *corev1.Pod) Trouble {
	if p.Status.Phase == corev1.PodFailed {
		t := Trouble{Reason: skeinv1.ReasonPodsFailing, Text: failureText(p), Final: true}
		if strings.HasPrefix(t.Text, "OOMKilled") {
			t.Advice = "raise resources.limits.memory of the SandboxPool, or lower its maxMemory or maxConcurrency"
		}
		return t
	}
	for _, c := range p.Status.ContainerStatuses {
		w := c.State.Waiting
		if w == nil || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
			continue
		}
		t := Trouble{Reason: skeinv1.ReasonPodsFailing, Text: joinText(w.Reason, w.Message)}
		if final, ok := imageReasons[w.Reason]; ok {
			t.Reason, t.Final = skeinv1.ReasonImageUnavailable, final
			t.Advice = imageAdvice(w.Reason)
		}
		return t
	}
	if c := condition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return Trouble{Reason: skeinv1.ReasonUnschedulable, Text: joinText(c.Reason, c.Message),
			Advice: "make room on the nodes, or relax what the SandboxPool requires of nodes: resources, nodeSelector, affinity, topologySpreadConstraints, tolerations"}
	}
	return Trouble{}
}

func imageAdvice(reason string) string {
	if reason == "ErrImageNeverPull" {
		return "put the image on the nodes, or set another spec.imagePullPolicy in the SandboxPool"
	}
	return "correct spec.image of the SandboxPool, or of the manager's --sandbox-image, and set spec.imagePullSecrets if the registry requires them"
}

// failureText returns why a pod has failed.
func failureText(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			return joinText(fmt.Sprintf("%s (exit code %d)", t.Reason, t.ExitCode), strings.TrimSpace(t.Message))
		}
	}
	return joinText(p.Status.Reason, p.Status.Message)
}

// RefusalOf returns why the API server refuses a pod when retrying at once is useless, else nil.
func RefusalOf(err error) *Trouble {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return &Trouble{Reason: skeinv1.ReasonQuotaExceeded, Text: err.Error(), Final: true,
			Advice: "raise the namespace's ResourceQuota, or lower warm, maxWarm or resources of the SandboxPool"}
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return &Trouble{Reason: skeinv1.ReasonPodsRefused, Text: err.Error(), Final: true,
			Advice: "correct the fields of the SandboxPool that the message names, or the policy of the namespace that refuses the pod"}
	default:
		return nil
	}
}

func advise(text, advice string) string {
	return strings.Join(slices.DeleteFunc([]string{text, advice}, func(s string) bool { return s == "" }), "; ")
}

func joinText(reason, message string) string {
	switch {
	case reason == "":
		return message
	case message == "":
		return reason
	default:
		return reason + ": " + message
	}
}
