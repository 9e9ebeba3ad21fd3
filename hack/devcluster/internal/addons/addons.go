// Package addons installs what a cluster with a node needs inside: permissions of the node's helpers, cluster DNS,
// and optionally the RuntimeClass of gVisor.
package addons

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

// DNSImage and PauseImage are images that the node loads itself.
const (
	DNSImage   = "devcluster.local/coredns:1"
	PauseImage = "devcluster.local/pause:1"
)

// Install creates the objects. It is called once, on an empty cluster.
func Install(ctx context.Context, client kubernetes.Interface, cfg layout.Config) error {
	if err := role(ctx, client, "devcluster:network-policy", rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "devcluster:network-policy"},
		rule("", "pods", "namespaces"), rule("networking.k8s.io", "networkpolicies")); err != nil {
		return fmt.Errorf("permissions of the network policy enforcer: %w", err)
	}
	if cfg.GVisor() {
		if err := installGVisor(ctx, client); err != nil {
			return fmt.Errorf("the RuntimeClass of gVisor: %w", err)
		}
	}
	if err := installDNS(ctx, client, cfg); err != nil {
		return fmt.Errorf("cluster DNS: %w", err)
	}
	return nil
}

func rule(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"list", "watch"}}
}

func role(ctx context.Context, client kubernetes.Interface, name string, to rbacv1.Subject, rules ...rbacv1.PolicyRule) error {
	meta := metav1.ObjectMeta{Name: name}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{to},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}, metav1.CreateOptions{})
	return err
}

// GVisorClass is the RuntimeClass of pods that run on gVisor. Its handler is a runtime in containerd's configuration.
const GVisorClass = "gvisor"

func installGVisor(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.NodeV1().RuntimeClasses().Create(ctx, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: GVisorClass}, Handler: "runsc"}, metav1.CreateOptions{})
	return err
}

const dnsNamespace = "kube-system"

// corefile returns the configuration that serves cluster.local, and forwards everything else to the given servers, if
// any.
func corefile(servers []string) string {
	forward := ""
	if len(servers) > 0 {
		forward = "  forward . " + strings.Join(servers, " ") + "\n"
	}
	return `.:53 {
  errors
  ready
  kubernetes cluster.local in-addr.arpa {
    pods insecure
    fallthrough in-addr.arpa
    ttl 5
  }
` + forward + `  cache 5
}
`
}

// installDNS runs CoreDNS as an ordinary, restricted pod, with the names and labels that NetworkPolicies for other
// clusters select.
func installDNS(ctx context.Context, client kubernetes.Interface, cfg layout.Config) error {
	labels := map[string]string{"k8s-app": "kube-dns"}
	meta := metav1.ObjectMeta{Name: "coredns", Namespace: dnsNamespace, Labels: labels}
	if err := role(ctx, client, "system:coredns", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: meta.Name, Namespace: meta.Namespace},
		rule("", "services", "pods", "namespaces"), rule("discovery.k8s.io", "endpointslices")); err != nil {
		return err
	}
	if _, err := client.CoreV1().ServiceAccounts(dnsNamespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.CoreV1().ConfigMaps(dnsNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: meta, Data: map[string]string{"Corefile": corefile(cfg.Nameservers)}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	port := func(name string, proto corev1.Protocol, n int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: proto, Port: n, TargetPort: intstr.FromString(name)}
	}
	if _, err := client.CoreV1().Services(dnsNamespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Namespace: dnsNamespace, Labels: labels},
		Spec: corev1.ServiceSpec{ClusterIP: cfg.DNSServiceIP().String(), Selector: labels,
			Ports: []corev1.ServicePort{port("dns", corev1.ProtocolUDP, 53), port("dns-tcp", corev1.ProtocolTCP, 53)}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := client.AppsV1().Deployments(dnsNamespace).Create(ctx, dnsDeployment(meta), metav1.CreateOptions{})
	return err
}

func dnsDeployment(meta metav1.ObjectMeta) *appsv1.Deployment {
	yes, no, user := true, false, int64(65532)
	return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels},
			Spec: corev1.PodSpec{
				ServiceAccountName: meta.Name, PriorityClassName: "system-cluster-critical", DNSPolicy: corev1.DNSDefault,
				SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user,
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
				Containers: []corev1.Container{{
					Name: "coredns", Image: DNSImage, ImagePullPolicy: corev1.PullNever, Args: []string{"-conf", "/config/Corefile"},
					Ports: []corev1.ContainerPort{
						{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP},
						{Name: "dns-tcp", ContainerPort: 53, Protocol: corev1.ProtocolTCP},
					},
					ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
						HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8181)}}},
					SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
						Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
					VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/config"}},
				}},
				Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: meta.Name}}}}},
			},
		},
	}}
}
