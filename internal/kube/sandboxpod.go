package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// What a sandbox pod listens on.
const (
	SandboxPort       = 8443 // mTLS, from the manager
	SandboxHealthPort = 8080 // plain, from the kubelet
)

// Values of skeinv1.LabelSandboxState.
const (
	SandboxWarm    = "warm"
	SandboxClaimed = "claimed"
)

const (
	sandboxUser      = 65532
	sandboxContainer = "sandbox"
	sandboxCertDir   = "/certs"
	certVolume       = "certs"
	// killAfter is how long a pod may take to end: what runs in it is ended by its caller or not at all.
	killAfter = 2 * time.Second
)

// SandboxSettings are the manager's own settings for sandbox pods; a pool may set some of them otherwise.
type SandboxSettings struct {
	Image           string
	ImagePullPolicy corev1.PullPolicy
}

// SandboxSecret is the name of the Secret with the server certificate of a pool's sandboxes.
func SandboxSecret(pool string) string { return "skein-sandbox-" + pool }

// SandboxPod makes a warm pod of a pool, under the restricted Pod Security Standard (SPEC COD-08).
func SandboxPod(pool *skeinv1.SandboxPool, set SandboxSettings) *corev1.Pod {
	spec := sandboxPodSpec(pool, set)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    pool.Namespace,
			GenerateName: cutName("sandbox-"+pool.Name) + "-",
			Labels: map[string]string{
				"app.kubernetes.io/name":      "skein-sandbox",
				"app.kubernetes.io/component": "sandbox",
				skeinv1.LabelManagedBy:        skeinv1.ManagedByValue,
				skeinv1.LabelPool:             pool.Name,
				skeinv1.LabelSandboxState:     SandboxWarm,
				skeinv1.LabelTemplateHash:     hashOf(spec),
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, skeinv1.GroupVersion.WithKind("SandboxPool"))},
		},
		Spec: spec,
	}
}

// SandboxTemplateHash tells pods of the present template from those of an old one.
func SandboxTemplateHash(pool *skeinv1.SandboxPool, set SandboxSettings) string {
	return hashOf(sandboxPodSpec(pool, set))
}

func hashOf(spec corev1.PodSpec) string {
	data, err := json.Marshal(spec)
	if err != nil { // a PodSpec is plain data
		panic(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:hashLength]
}

// cutName leaves room for what the API server makes of a GenerateName.
func cutName(s string) string {
	if len(s) > 50 {
		return s[:50]
	}
	return s
}

func sandboxPodSpec(pool *skeinv1.SandboxPool, set SandboxSettings) corev1.PodSpec {
	image, pull := set.Image, set.ImagePullPolicy
	if pool.Spec.Image != "" {
		image, pull = pool.Spec.Image, pool.Spec.ImagePullPolicy
	} else if pool.Spec.ImagePullPolicy != "" {
		pull = pool.Spec.ImagePullPolicy
	}
	return corev1.PodSpec{
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		RestartPolicy:                 corev1.RestartPolicyNever, // a sandbox is never used again: a new pod takes its place
		TerminationGracePeriodSeconds: ptr.To(int64(killAfter / time.Second)),
		DNSPolicy:                     corev1.DNSDefault, // it may not ask anyway
		RuntimeClassName:              pool.Spec.RuntimeClassName,
		NodeSelector:                  pool.Spec.NodeSelector,
		Tolerations:                   pool.Spec.Tolerations,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			RunAsUser:      ptr.To(int64(sandboxUser)),
			RunAsGroup:     ptr.To(int64(sandboxUser)),
			FSGroup:        ptr.To(int64(sandboxUser)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:            sandboxContainer,
			Image:           image,
			ImagePullPolicy: pull,
			Args:            sandboxArgs(pool),
			Ports: []corev1.ContainerPort{
				{Name: "sandbox", ContainerPort: SandboxPort},
				{Name: "health", ContainerPort: SandboxHealthPort},
			},
			Resources: sandboxResources(pool.Spec.Resources),
			ReadinessProbe: &corev1.Probe{
				ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("health")}},
				PeriodSeconds:    1,
				FailureThreshold: 3,
				TimeoutSeconds:   2,
			},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				Privileged:               ptr.To(false),
				ReadOnlyRootFilesystem:   ptr.To(true),
				RunAsNonRoot:             ptr.To(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: certVolume, MountPath: sandboxCertDir, ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{
			Name: certVolume,
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
				SecretName:  SandboxSecret(pool.Name),
				DefaultMode: ptr.To(int32(0o440)),
			}},
		}},
	}
}

// sandboxArgs hands the pool's bounds to the supervisor; the API server has set the defaults.
func sandboxArgs(pool *skeinv1.SandboxPool) []string {
	args := []string{
		fmt.Sprintf("--listen=:%d", SandboxPort),
		fmt.Sprintf("--health-listen=:%d", SandboxHealthPort),
		"--cert-dir=" + sandboxCertDir,
	}
	if m := pool.Spec.MaxMemory; m != nil {
		args = append(args, "--max-memory="+strconv.FormatInt(m.Value(), 10))
	}
	if t := pool.Spec.MaxWallTime; t != nil {
		args = append(args, "--max-wall-time="+t.Duration.String())
	}
	if n := pool.Spec.MaxConcurrency; n > 0 {
		args = append(args, "--max-concurrent="+strconv.Itoa(int(n)))
	}
	return args
}

// sandboxResources sees to it that limits are set. Requests are small unless the pool says otherwise: a warm
// sandbox does nothing.
func sandboxResources(given corev1.ResourceRequirements) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Limits: corev1.ResourceList{}, Requests: corev1.ResourceList{}, Claims: given.Claims}
	defaults := []struct {
		name           corev1.ResourceName
		limit, request string
	}{
		{corev1.ResourceCPU, "1", "10m"},
		{corev1.ResourceMemory, "512Mi", "32Mi"},
		{corev1.ResourceEphemeralStorage, "64Mi", "1Mi"},
	}
	for name, q := range given.Limits {
		out.Limits[name] = q
	}
	for name, q := range given.Requests {
		out.Requests[name] = q
	}
	for _, d := range defaults {
		if _, ok := out.Limits[d.name]; !ok {
			out.Limits[d.name] = resource.MustParse(d.limit)
		}
		limit := out.Limits[d.name]
		if _, ok := out.Requests[d.name]; !ok {
			request := resource.MustParse(d.request)
			if request.Cmp(limit) > 0 {
				request = limit
			}
			out.Requests[d.name] = request
		}
		if request := out.Requests[d.name]; limit.Cmp(request) < 0 { // a request above our default limit
			out.Limits[d.name] = request
		}
	}
	return out
}

// PodReady tells whether a sandbox pod answers, and is not on its way out.
func PodReady(p *corev1.Pod) bool {
	if !p.DeletionTimestamp.IsZero() || p.Status.PodIP == "" {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// PodOver tells whether a pod has ended or is being ended.
func PodOver(p *corev1.Pod) bool {
	return !p.DeletionTimestamp.IsZero() || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// PodTrouble says why a pod does not come up; "" when nothing is known to be wrong.
func PodTrouble(p *corev1.Pod) string {
	if p.Status.Phase == corev1.PodFailed {
		if t := terminated(p); t != "" {
			return t
		}
		return joinText(p.Status.Reason, p.Status.Message)
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return joinText(w.Reason, w.Message)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return joinText(c.Reason, c.Message)
		}
	}
	return ""
}

func terminated(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			return joinText(fmt.Sprintf("%s (exit code %d)", t.Reason, t.ExitCode), t.Message)
		}
	}
	return ""
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
