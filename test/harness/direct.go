package harness

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
)

// Token makes a service account in the namespace that may do everything there, and gives a token of it once the API
// server knows of the right.
func (c *Cluster) Token(ctx context.Context, ns, name string) (string, error) {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	if err := c.Client.Create(ctx, sa); err != nil {
		return "", err
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
	}
	if err := c.Client.Create(ctx, binding); err != nil {
		return "", err
	}
	if err := c.knows(ctx, "system:serviceaccount:"+ns+":"+name, authorizationv1.ResourceAttributes{Namespace: ns, Group: "*", Resource: "*", Verb: "*"}); err != nil {
		return "", err
	}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(4 * 3600))}}
	err := c.Client.SubResource("token").Create(ctx, sa, token)
	return token.Status.Token, err
}

// knows waits until the API server lets a user do something: roles reach its authorizer a little after they are made, and
// a client that asked too early is told the same for a while.
func (c *Cluster) knows(ctx context.Context, user string, may authorizationv1.ResourceAttributes) error {
	for {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &may}}
		if err := c.Client.Create(ctx, review); err != nil {
			return err
		}
		if review.Status.Allowed {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s may not yet do what a role lets it: %w", user, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Direct gives a client that goes straight to one manager, past the aggregation layer.
func (c *Cluster) Direct(ctx context.Context, m *Manager, token string) (*runtimeclient.Client, error) {
	var s corev1.Secret
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: SystemNamespace, Name: "skein-runtime-api-tls"}, &s); err != nil {
		return nil, fmt.Errorf("the authority of the runtime API: %w", err)
	}
	return runtimeclient.NewDirect("https://"+m.api, token, s.Data["ca.crt"])
}
