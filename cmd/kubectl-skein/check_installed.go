package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/version"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// installed are the checks of an installation.
var installed = []check{
	{"Kubernetes", checkKubernetes},
	{"definitions", checkCRDs},
	{"manager", checkManager},
	{"versions", checkVersions},
	{"leader", checkLeader},
	{"runtime API", checkRuntimeAPI},
	{"certificates", checkCertificates},
	{"policies", checkPolicies},
	{"sandbox pools", checkPools},
	{"objects", checkObjects},
}

// Names in config/.
const (
	managerName   = "skein-manager"
	leaseName     = "manager.skein.dev"
	reinstallHint = "Apply config/ of the version that you install again: kubectl apply -k config/default, or your overlay."
)

func checkCRDs(ctx context.Context, c *checker, say say) error {
	var missing, broken []string
	names := resources()
	for _, resource := range names {
		var crd apiextensionsv1.CustomResourceDefinition
		name := resource + "." + skeinv1.GroupVersion.Group
		switch err := c.client.Get(ctx, client.ObjectKey{Name: name}, &crd); {
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
			continue
		case err != nil:
			return err
		}
		serves := slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == skeinv1.GroupVersion.Version && v.Served
		})
		established := slices.ContainsFunc(crd.Status.Conditions, func(x apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return x.Type == apiextensionsv1.Established && x.Status == apiextensionsv1.ConditionTrue
		})
		if !serves || !established {
			broken = append(broken, name)
		}
	}
	if len(missing) > 0 {
		say(levelError, reinstallHint, "these CustomResourceDefinitions are missing: %s", strings.Join(missing, ", "))
	}
	if len(broken) > 0 {
		say(levelError, reinstallHint, "these CustomResourceDefinitions are not established, or do not serve %s: %s", skeinv1.GroupVersion.Version, strings.Join(broken, ", "))
	}
	if len(missing)+len(broken) == 0 {
		say(levelOK, "", "all %d kinds serve %s", len(names), skeinv1.GroupVersion)
	}
	return nil
}

func checkManager(ctx context.Context, c *checker, say say) error {
	var d appsv1.Deployment
	err := c.client.Get(ctx, client.ObjectKey{Namespace: c.system, Name: managerName}, &d)
	if apierrors.IsNotFound(err) {
		say(levelError, "Name its namespace with --system-namespace, or see docs/install.md.", "there is no Deployment %s in the namespace %s", managerName, c.system)
		return nil
	}
	if err != nil {
		return err
	}
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	image := managerImage(&d)
	if ready := d.Status.ReadyReplicas; ready < wanted || wanted == 0 {
		level := levelError
		if ready > 0 {
			level = levelWarning
		}
		say(level, fmt.Sprintf("kubectl -n %s logs deployment/%s", c.system, managerName), "%d of %d replicas of %s are ready%s", ready, wanted, image, c.waiting(ctx, &d))
		return nil
	}
	say(levelOK, "", "%d of %d replicas of %s are ready: their caches are filled and their database answers", d.Status.ReadyReplicas, wanted, image)
	return nil
}

// managerImage returns the image of the manager, or "".
func managerImage(d *appsv1.Deployment) string {
	for _, container := range d.Spec.Template.Spec.Containers {
		if container.Name == "manager" {
			return container.Image
		}
	}
	return ""
}

func checkVersions(ctx context.Context, c *checker, say say) error {
	var d appsv1.Deployment
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: c.system, Name: managerName}, &d); err != nil {
		return client.IgnoreNotFound(err) // the check of the manager says that
	}
	compareVersions(buildVersion(), managerImage(&d), say)
	return nil
}

// compareVersions says whether the plugin and the manager fit. Neighbouring minor versions do, as the manager's own replicas do.
func compareVersions(plugin, image string, say say) {
	text, _, _ := strings.Cut(plugin, " ") // the commit
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	tag, _, _ = strings.Cut(tag, "@")
	own, err := version.ParseSemantic(text)
	theirs, err2 := version.ParseSemantic(tag)
	switch {
	case err != nil, err2 != nil, own.PreRelease() != "", theirs.PreRelease() != "":
		say(levelOK, "", "the plugin is %s and the manager's image %s; only releases are compared", plugin, image)
	case own.Major() != theirs.Major(), max(own.Minor(), theirs.Minor())-min(own.Minor(), theirs.Minor()) > 1:
		say(levelWarning, "Use the plugin of the manager's release, or of one beside it.", "the plugin is %s and the manager %s: they are more than one minor release apart", text, tag)
	default:
		say(levelOK, "", "the plugin is %s and the manager %s", text, tag)
	}
}

// waiting says why pods of the manager are not ready, as far as the caller may read it.
func (c *checker) waiting(ctx context.Context, d *appsv1.Deployment) string {
	var pods corev1.PodList
	if c.client.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)) != nil {
		return ""
	}
	var out []string
	for i := range pods.Items {
		for _, s := range pods.Items[i].Status.ContainerStatuses {
			switch {
			case s.State.Waiting != nil:
				out = append(out, strings.TrimSpace(fmt.Sprintf("%s waits: %s %s", pods.Items[i].Name, s.State.Waiting.Reason, s.State.Waiting.Message)))
			case s.RestartCount > 0 && !s.Ready:
				out = append(out, fmt.Sprintf("%s was restarted %d times", pods.Items[i].Name, s.RestartCount))
			}
		}
	}
	if len(out) == 0 {
		return ""
	}
	return ": " + strings.Join(out, "; ")
}

func checkLeader(ctx context.Context, c *checker, say say) error {
	var l coordinationv1.Lease
	err := c.client.Get(ctx, client.ObjectKey{Namespace: c.system, Name: leaseName}, &l)
	if apierrors.IsNotFound(err) {
		say(levelError, "", "no manager has ever led: there is no Lease %s in the namespace %s", leaseName, c.system)
		return nil
	}
	if err != nil {
		return err
	}
	if l.Spec.RenewTime == nil || l.Spec.HolderIdentity == nil || l.Spec.LeaseDurationSeconds == nil || *l.Spec.HolderIdentity == "" {
		say(levelWarning, "", "no manager leads at the moment")
		return nil
	}
	age := c.now.Sub(l.Spec.RenewTime.Time)
	if age > 2*time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second {
		say(levelError, "See the manager's log: without a leader no object is reconciled.", "%s led, and has not renewed its lease for %s", *l.Spec.HolderIdentity, duration.HumanDuration(age))
		return nil
	}
	say(levelOK, "", "%s leads", *l.Spec.HolderIdentity)
	return nil
}

// certificateRest is the rest of a certificate's life at which a check warns. The manager renews its own earlier.
const certificateRest = 7 * 24 * time.Hour

func checkRuntimeAPI(ctx context.Context, c *checker, say say) error {
	gv := runtimev1.GroupVersion
	name := gv.Version + "." + gv.Group
	var s apiregistrationv1.APIService
	err := c.client.Get(ctx, client.ObjectKey{Name: name}, &s)
	if apierrors.IsNotFound(err) {
		say(levelError, reinstallHint, "there is no APIService %s", name)
		return nil
	}
	if err != nil {
		return err
	}
	for _, condition := range s.Status.Conditions {
		if condition.Type == apiregistrationv1.Available && condition.Status != apiregistrationv1.ConditionTrue {
			say(levelError, fmt.Sprintf("kubectl -n %s logs deployment/%s; a network policy or a firewall may keep the API server from port 8444 of the manager.", c.system, managerName),
				"the APIService %s is not available: %s: %s", name, condition.Reason, condition.Message)
			return nil
		}
	}
	checkAuthority(s.Spec.CABundle, c.now, say)
	if _, err := c.discovery.ServerResourcesForGroupVersion(gv.String()); err != nil {
		return fmt.Errorf("%s does not answer: %w", gv, err)
	}
	say(levelOK, "", "%s answers", gv)
	return nil
}

// checkAuthority says when a bundle of certificates ends, if that is soon.
func checkAuthority(bundle []byte, now time.Time, say say) {
	end := expiry(bundle)
	rest := end.Sub(now)
	if end.IsZero() || rest >= certificateRest {
		return
	}
	level := levelWarning
	if rest <= 0 {
		level = levelError
	}
	say(level, "The manager renews it. If it does not, see its log.", "the certificate authority of the APIService ends at %s", end.Format(time.RFC3339))
}

// expiry returns when the last of the certificates ends, or the zero time.
func expiry(bundle []byte) (last time.Time) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && cert.NotAfter.After(last) {
			last = cert.NotAfter
		}
	}
	return last
}

// admissionPolicies are the ValidatingAdmissionPolicies of config/admission.
var admissionPolicies = []string{"skein-adoption", "skein-forks", "skein-pools", "skein-retention", "skein-secrets", "skein-users", "skein-work"}

func checkPolicies(ctx context.Context, c *checker, say say) error {
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	if err := c.client.List(ctx, &bindings); err != nil {
		return err
	}
	denies := map[string]bool{}
	for i := range bindings.Items {
		if b := &bindings.Items[i].Spec; slices.Contains(b.ValidationActions, admissionv1.Deny) {
			denies[b.PolicyName] = true
		}
	}
	var weak []string
	for _, name := range admissionPolicies {
		err := c.client.Get(ctx, client.ObjectKey{Name: name}, &admissionv1.ValidatingAdmissionPolicy{})
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err != nil || !denies[name] {
			weak = append(weak, name)
		}
	}
	if len(weak) > 0 {
		say(levelError, "kubectl apply -k config/admission",
			"these ValidatingAdmissionPolicies refuse nothing, because they do not exist or are not bound with the action Deny: %s; authors may reach what they have no right to", strings.Join(weak, ", "))
	}
	var policies networkingv1.NetworkPolicyList
	if err := c.client.List(ctx, &policies, client.InNamespace(c.system)); err != nil {
		return err
	}
	if len(policies.Items) == 0 {
		say(levelWarning, "kubectl apply -k config/network", "no NetworkPolicy protects the manager in the namespace %s", c.system)
	}
	if len(weak) == 0 && len(policies.Items) > 0 {
		say(levelOK, "", "%d admission policies are bound, and %d network policies are in %s", len(admissionPolicies), len(policies.Items), c.system)
	}
	return nil
}

func checkPools(ctx context.Context, c *checker, say say) error {
	var list skeinv1.SandboxPoolList
	if err := c.client.List(ctx, &list); err != nil {
		return ignoreNoKind(err)
	}
	if len(list.Items) == 0 {
		say(levelWarning, "Apply a SandboxPool, such as config/samples/sandboxpool.yaml.", "no namespace has a SandboxPool: agents without code work, tools in TypeScript do not")
		return nil
	}
	ready := 0
	for i := range list.Items {
		pool := &list.Items[i]
		if reason := unready(pool.Status.Conditions); reason != "" {
			say(levelWarning, fmt.Sprintf("kubectl -n %s describe sandboxpool %s", pool.Namespace, pool.Name), "%s/%s is not ready: %s", pool.Namespace, pool.Name, reason)
			continue
		}
		ready++
	}
	if ready > 0 {
		say(levelOK, "", "%d of %d are ready", ready, len(list.Items))
	}
	return nil
}
