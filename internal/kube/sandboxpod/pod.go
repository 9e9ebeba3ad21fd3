// Package sandboxpod makes the pods of a SandboxPool, and reads from their status whether they are ready and what keeps
// them from starting.
package sandboxpod

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/sandbox"
)

// Ports of a sandbox pod.
const (
	Port       = 8443 // mTLS, from the manager
	HealthPort = 8080 // plain, from the kubelet
)

// Values of skeinv1.LabelSandboxState.
const (
	Warm    = "warm"
	Claimed = "claimed"
)

const (
	user       = 65532
	container  = "sandbox"
	certDir    = "/certs"
	certVolume = "certs"
	// killAfter is the grace period of a pod. It is short, because nothing in a pod is saved when it ends.
	killAfter = 2 * time.Second
)

// Settings are the manager's settings for sandbox pods. A pool may override some of them.
type Settings struct {
	Image           string
	V8Image         string // for pools with the v8 engine
	ImagePullPolicy corev1.PullPolicy
	// ProfilePort is where a sandbox serves profiles on its loopback interface; 0 means nowhere.
	ProfilePort int
}

// SecretName returns the name of the Secret with the server certificate of a pool's sandboxes.
func SecretName(pool string) string { return "skein-sandbox-" + pool }

// PolicyName returns the name of the NetworkPolicy that isolates a pool's sandboxes.
func PolicyName(pool string) string { return "skein-sandbox-" + pool }

// New returns a warm pod of a pool, under the restricted Pod Security Standard (COD-08).
func New(pool *skeinv1.SandboxPool, set Settings) *corev1.Pod {
	t := templateOf(pool, set)
	labels := map[string]string{}
	maps.Copy(labels, t.Labels)
	maps.Copy(labels, map[string]string{ // after the pool's own, so that it cannot override them
		"app.kubernetes.io/name":      "skein-sandbox",
		"app.kubernetes.io/component": "sandbox",
		skeinv1.LabelManagedBy:        skeinv1.ManagedByValue,
		skeinv1.LabelPool:             pool.Name,
		skeinv1.LabelSandboxState:     Warm,
		skeinv1.LabelTemplateHash:     t.hash(),
	})
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       pool.Namespace,
			GenerateName:    cutName("sandbox-"+pool.Name) + "-",
			Labels:          labels,
			Annotations:     maps.Clone(t.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, skeinv1.GroupVersion.WithKind("SandboxPool"))},
		},
		Spec: t.Spec,
	}
}

// TemplateHash returns a hash that differs between pods of the present template and pods of an old one.
func TemplateHash(pool *skeinv1.SandboxPool, set Settings) string {
	return templateOf(pool, set).hash()
}

// template is everything in a sandbox pod that its pool and the manager's settings determine.
type template struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Spec        corev1.PodSpec    `json:"spec"`
}

func templateOf(pool *skeinv1.SandboxPool, set Settings) *template {
	t := &template{Spec: podSpec(pool, set)}
	if m := pool.Spec.PodMetadata; m != nil {
		t.Labels, t.Annotations = m.Labels, m.Annotations
	}
	return t
}

func (t *template) hash() string {
	data, err := json.Marshal(t)
	if err != nil { // cannot happen: it is plain data
		panic(err)
	}
	return objects.Hash(data)
}

// cutName leaves room for the suffix that the API server adds to a GenerateName.
func cutName(s string) string {
	if len(s) > 50 {
		return s[:50]
	}
	return s
}

func podSpec(pool *skeinv1.SandboxPool, set Settings) corev1.PodSpec {
	image, pull := set.Image, set.ImagePullPolicy
	if pool.Spec.Engine == skeinv1.SandboxEngineV8 {
		image = set.V8Image
	}
	if pool.Spec.Image != "" {
		image, pull = pool.Spec.Image, pool.Spec.ImagePullPolicy
	} else if pool.Spec.ImagePullPolicy != "" {
		pull = pool.Spec.ImagePullPolicy
	}
	return corev1.PodSpec{
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		RestartPolicy:                 corev1.RestartPolicyNever, // a sandbox is never reused: a new pod replaces it
		TerminationGracePeriodSeconds: ptr.To(int64(killAfter / time.Second)),
		DNSPolicy:                     corev1.DNSDefault, // it may not resolve names anyway
		RuntimeClassName:              pool.Spec.RuntimeClassName,
		HostUsers:                     pool.Spec.HostUsers,
		NodeSelector:                  pool.Spec.NodeSelector,
		Tolerations:                   tolerations(pool.Spec.Tolerations),
		Affinity:                      pool.Spec.Affinity,
		TopologySpreadConstraints:     spread(pool),
		PriorityClassName:             pool.Spec.PriorityClassName,
		ImagePullSecrets:              pool.Spec.ImagePullSecrets,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			RunAsUser:      ptr.To(int64(user)),
			RunAsGroup:     ptr.To(int64(user)),
			FSGroup:        ptr.To(int64(user)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:            container,
			Image:           image,
			ImagePullPolicy: pull,
			Args:            arguments(pool, set),
			Ports: []corev1.ContainerPort{
				{Name: "sandbox", ContainerPort: Port},
				{Name: "health", ContainerPort: HealthPort},
			},
			Resources: resources(pool.Spec.Engine, pool.Spec.Resources),
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
			// The last output of a supervisor that cannot start appears in the pod's status, and so in the pool's
			// condition.
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			VolumeMounts:             []corev1.VolumeMount{{Name: certVolume, MountPath: certDir, ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{
			Name: certVolume,
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
				SecretName:  SecretName(pool.Name),
				DefaultMode: ptr.To(int32(0o440)),
			}},
		}},
	}
}

// leaveNodeAfter is how long a sandbox stays on an unreachable node; the default of Kubernetes is five minutes. The
// manager cannot reach the sandbox either, so it is useless, and nothing in it must be kept.
const leaveNodeAfter = 30 * time.Second

// tolerations returns the pool's tolerations, and adds how long a node may be unreachable unless the pool sets that
// itself.
func tolerations(given []corev1.Toleration) []corev1.Toleration {
	out := slices.Clone(given)
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		says := slices.ContainsFunc(given, func(t corev1.Toleration) bool {
			return (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !says {
			out = append(out, corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: ptr.To(int64(leaveNodeAfter / time.Second))})
		}
	}
	return out
}

// spread returns the pool's topology constraints. A constraint without a selector would have no effect, so it gets
// one for the pods of the pool.
func spread(pool *skeinv1.SandboxPool) []corev1.TopologySpreadConstraint {
	out := slices.Clone(pool.Spec.TopologySpreadConstraints)
	for i := range out {
		if out[i].LabelSelector == nil {
			out[i].LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{skeinv1.LabelPool: pool.Name}}
		}
	}
	return out
}

// arguments returns the flags of the supervisor, with the pool's limits. The API server has set the defaults.
func arguments(pool *skeinv1.SandboxPool, set Settings) []string {
	args := []string{
		fmt.Sprintf("--listen=:%d", Port),
		fmt.Sprintf("--health-listen=:%d", HealthPort),
		"--cert-dir=" + certDir,
	}
	if pool.Spec.Engine == skeinv1.SandboxEngineV8 {
		args = append(args, "--engine="+string(sandbox.V8))
	}
	if set.ProfilePort != 0 {
		args = append(args, fmt.Sprintf("--pprof-listen=127.0.0.1:%d", set.ProfilePort))
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

// resources returns the given resources with all limits set. Requests are small unless the pool sets them,
// because a warm sandbox does nothing.
func resources(engine skeinv1.SandboxEngine, given corev1.ResourceRequirements) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Limits: corev1.ResourceList{}, Requests: corev1.ResourceList{}, Claims: given.Claims}
	defaults := []struct {
		name           corev1.ResourceName
		limit, request string
	}{
		{corev1.ResourceCPU, "1", "10m"},
		{corev1.ResourceMemory, "512Mi", "32Mi"},
		{corev1.ResourceEphemeralStorage, "64Mi", "1Mi"},
	}
	if engine == skeinv1.SandboxEngineV8 {
		defaults[1].limit, defaults[1].request = "1Gi", "128Mi"
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
		if request := out.Requests[d.name]; limit.Cmp(request) < 0 { // the request is above our default limit
			out.Limits[d.name] = request
		}
	}
	return out
}

// Address returns the address at which the sandbox of a pod is dialled.
func Address(p *corev1.Pod) string {
	return net.JoinHostPort(p.Status.PodIP, strconv.Itoa(Port))
}
