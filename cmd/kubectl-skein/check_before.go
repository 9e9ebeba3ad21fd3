package main

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
)

// before are the checks of a cluster in which Skein is to be installed.
var before = []check{
	{"Kubernetes", checkKubernetes},
	{"APIs", checkAPIs},
	{"rights", checkRights},
	{"nodes", checkNodes},
	{"storage", checkStorage},
}

// minKubernetes is the oldest version with everything that config/ uses: ValidatingAdmissionPolicies came with it.
var minKubernetes = version.MustParseGeneric("1.30.0")

func checkKubernetes(_ context.Context, c *checker, say say) error {
	v, err := c.discovery.ServerVersion()
	if err != nil {
		return fmt.Errorf("the API server does not answer: %w", err)
	}
	have, err := version.ParseGeneric(v.GitVersion)
	switch {
	case err != nil:
		say(levelWarning, "", "the API server's version %q cannot be read", v.GitVersion)
	case have.LessThan(minKubernetes):
		say(levelError, "Upgrade the cluster.", "the API server has version %s, Skein needs %s", v.GitVersion, minKubernetes)
	default:
		say(levelOK, "", "version %s", v.GitVersion)
	}
	return nil
}

// checkAPIs looks for the kinds of Kubernetes that config/ uses and that a cluster may lack.
func checkAPIs(_ context.Context, c *checker, say say) error {
	missing := false
	for _, one := range []struct {
		kind   schema.GroupVersionKind
		remedy string
	}{
		{schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}, "Enable the aggregation layer of the API server: the runtime API is behind it."},
		{schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"}, "Enable admissionregistration.k8s.io/v1: it keeps tenants apart."},
		{schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}, "Use a network plugin that enforces NetworkPolicies: they isolate the sandboxes."},
	} {
		_, err := c.client.RESTMapper().RESTMapping(one.kind.GroupKind(), one.kind.Version)
		switch {
		case meta.IsNoMatchError(err):
			missing = true
			say(levelError, one.remedy, "the API server has no %s", one.kind.Kind)
		case err != nil:
			return err
		}
	}
	if !missing {
		say(levelOK, "", "aggregation, admission policies and network policies exist; this check cannot tell whether the network plugin enforces network policies")
	}
	return nil
}

// checkRights asks whether the caller may make what config/default contains.
func checkRights(ctx context.Context, c *checker, say say) error {
	var refused []string
	for _, r := range []authorizationv1.ResourceAttributes{
		{Resource: "namespaces"},
		{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
		{Group: "rbac.authorization.k8s.io", Resource: "rolebindings", Namespace: "kube-system"},
		{Group: "apiregistration.k8s.io", Resource: "apiservices"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"},
		{Group: "apps", Resource: "deployments", Namespace: c.system},
		{Group: "networking.k8s.io", Resource: "networkpolicies", Namespace: c.system},
	} {
		r.Verb = "create"
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &r}}
		if err := c.client.Create(ctx, review); err != nil {
			return err
		}
		if review.Status.Allowed {
			continue
		}
		what := schema.GroupResource{Group: r.Group, Resource: r.Resource}.String()
		if r.Namespace != "" {
			what += " in " + r.Namespace
		}
		refused = append(refused, what)
	}
	if len(refused) > 0 {
		say(levelError, "Ask a cluster administrator to install Skein, or for the ClusterRole cluster-admin.", "you may not create %s", strings.Join(refused, ", "))
		return nil
	}
	say(levelOK, "", "you may create everything that the installation contains")
	return nil
}

func checkNodes(ctx context.Context, c *checker, say say) error {
	var list corev1.NodeList
	if err := c.client.List(ctx, &list); err != nil {
		return err
	}
	usable, other := 0, []string{}
	for i := range list.Items {
		n := &list.Items[i]
		info := n.Status.NodeInfo
		if info.OperatingSystem != "linux" || info.Architecture != "amd64" && info.Architecture != "arm64" {
			other = append(other, fmt.Sprintf("%s (%s/%s)", n.Name, info.OperatingSystem, info.Architecture))
			continue
		}
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue && !n.Spec.Unschedulable {
				usable++
			}
		}
	}
	switch {
	case usable == 0:
		say(levelError, "Add a node with Linux on amd64 or arm64: the manager and the sandboxes run there.", "none of %d nodes is ready and can run them", len(list.Items))
	case len(other) > 0:
		say(levelOK, "", "%d can run Skein; these cannot: %s", usable, strings.Join(other, ", "))
	default:
		say(levelOK, "", "%d can run Skein", usable)
	}
	return nil
}

// annotationDefaultClass marks the storage class of claims that name none.
const annotationDefaultClass = "storageclass.kubernetes.io/is-default-class"

func checkStorage(ctx context.Context, c *checker, say say) error {
	var list storagev1.StorageClassList
	if err := c.client.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		if list.Items[i].Annotations[annotationDefaultClass] == "true" {
			say(levelOK, "", "the default storage class is %s", list.Items[i].Name)
			return nil
		}
	}
	say(levelWarning, "Install config/postgres, or name a storage class in an overlay of config/persistent.", "there is no default storage class, which config/persistent needs")
	return nil
}
