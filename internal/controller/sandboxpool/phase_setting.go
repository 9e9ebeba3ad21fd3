package sandboxpool

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

// Annotations of a pool's Secret. They show whether it is current without reading its key.
const (
	annotationAuthority = "skein.dev/authority"
	annotationRenewAt   = "skein.dev/renew-at"
)

// metadataOnly keeps a write of a Secret from starting a cache of all Secrets with their contents. A client that
// reads its own writes would otherwise start one.
const metadataOnly = client.DisableReadYourWritesConsistency

// ensureCertificate maintains the Secret with the pods' server certificate. It renews the certificate before it ends, and
// when the authority changes. Running pods get the new one through their volume and use it for the next connection.
func (r *Reconciler) ensureCertificate(ctx context.Context, s *scope) error {
	next, err := r.Authority.Keep(ctx)
	if err != nil {
		return err
	}
	s.look(next.Sub(s.at))
	name := sandboxpod.SecretName(s.object.Name)
	have := objects.MetadataOf("Secret")
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: name}, have)
	if client.IgnoreNotFound(err) != nil {
		return r.secretProblem(s, "read", err)
	}
	missing := err != nil
	if !missing && !metav1.IsControlledBy(have, s.object) {
		return fmt.Errorf("a Secret %q exists already and is not this pool's: delete or rename it", name)
	}
	// Read the fingerprint before the certificate is issued: if the authority changes in between, the certificate is
	// issued again.
	authority := r.Authority.Fingerprint()
	if !missing && have.Annotations[annotationAuthority] == authority {
		if at, err := time.Parse(time.RFC3339, have.Annotations[annotationRenewAt]); err == nil && at.After(s.at) {
			s.look(at.Sub(s.at))
			return nil
		}
	}
	data, renewAt, err := r.Authority.Server(s.object.Name, s.object.Namespace)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       s.object.Namespace,
			Name:            name,
			Labels:          map[string]string{skeinv1.LabelManagedBy: skeinv1.ManagedByValue, skeinv1.LabelPool: s.object.Name},
			Annotations:     map[string]string{annotationAuthority: authority, annotationRenewAt: renewAt.UTC().Format(time.RFC3339)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.object, skeinv1.GroupVersion.WithKind("SandboxPool"))},
		},
		Type: corev1.SecretTypeTLS,
		Data: data,
	}
	s.look(renewAt.Sub(s.at))
	if missing {
		err = r.Client.Create(ctx, secret, metadataOnly)
		if apierrors.IsAlreadyExists(err) {
			return nil // the cache is behind; its event causes another reconcile
		}
	} else {
		before := &corev1.Secret{ObjectMeta: *have.ObjectMeta.DeepCopy(), Type: corev1.SecretTypeTLS}
		secret.ResourceVersion = have.ResourceVersion
		err = r.Client.Patch(ctx, secret, client.MergeFrom(before), metadataOnly)
	}
	if err != nil {
		return r.secretProblem(s, "write", err)
	}
	return nil
}

// secretProblem is the error of a request for a pool's Secret. When the manager has no right to it, the error says what to bind. Quotas
// and policies refuse a Secret with the same code, and no binding changes that: the words of the API server's authorizer tell them apart.
func (r *Reconciler) secretProblem(s *scope, verb string, err error) error {
	name := sandboxpod.SecretName(s.object.Name)
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), `resource "secrets"`) {
		return objects.NotReady(skeinv1.ReasonSecretForbidden, "its pods need a certificate in Secret %q, which the manager may not %s in namespace %q: %s",
			name, verb, s.object.Namespace, r.Account.Bind(objects.RoleSandboxCertificates, s.object.Namespace))
	}
	return fmt.Errorf("%s Secret %q: %w", verb, name, err)
}

// isolate maintains the NetworkPolicy of the pool's pods: no egress, and ingress only from the manager.
func (r *Reconciler) isolate(ctx context.Context, s *scope) error {
	want := r.policy(s.object)
	have := &networkingv1.NetworkPolicy{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case apierrors.IsNotFound(err):
		// The cache holds only NetworkPolicies of Skein. One that exists and is not in the cache may belong to any other
		// tool. No pod starts before it is known to be this pool's.
		if err := r.Client.Create(ctx, want); apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("a NetworkPolicy %q exists already and is not known to be this pool's: delete or rename it if it was not made by Skein", want.Name)
		} else if err != nil {
			return fmt.Errorf("create NetworkPolicy %q: %w", want.Name, err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("read NetworkPolicy %q: %w", want.Name, err)
	case !metav1.IsControlledBy(have, s.object):
		return fmt.Errorf("a NetworkPolicy %q exists already and is not this pool's: delete or rename it", want.Name)
	case equality.Semantic.DeepEqual(have.Spec, want.Spec):
		return nil
	}
	before := have.DeepCopy()
	have.Spec = want.Spec
	if err := r.Client.Patch(ctx, have, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write NetworkPolicy %q: %w", want.Name, err)
	}
	return nil
}

func (r *Reconciler) policy(pool *skeinv1.SandboxPool) *networkingv1.NetworkPolicy {
	from := []networkingv1.NetworkPolicyPeer{{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: r.ManagerNamespace}},
		PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
			"app.kubernetes.io/name":      "skein",
			"app.kubernetes.io/component": "manager",
		}},
	}}
	if r.ManagerNamespace == "" { // a manager outside the cluster has no labels; its certificate authenticates it
		from = nil
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       pool.Namespace,
			Name:            sandboxpod.PolicyName(pool.Name),
			Labels:          map[string]string{skeinv1.LabelManagedBy: skeinv1.ManagedByValue, skeinv1.LabelPool: pool.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, skeinv1.GroupVersion.WithKind("SandboxPool"))},
		},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{skeinv1.LabelPool: pool.Name}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				From:  from,
				Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(sandboxpod.Port))}},
			}},
		},
	}
}
