package boundsecrets

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/internal/kube/objects"
)

// WhoAmI asks the API server for the manager's name.
func WhoAmI(ctx context.Context, live client.Client) (objects.Account, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := live.Create(ctx, review); err != nil {
		return "", fmt.Errorf("ask the API server who this manager is: %w", err)
	}
	return objects.Account(review.Status.UserInfo.Username), nil
}

// MayRead returns a function that asks the API server whether the manager may read the Secrets of a namespace. Every identity may
// ask about itself, and a question does not count as a refused request.
func MayRead(live client.Client) func(ctx context.Context, namespace string) (bool, error) {
	return func(ctx context.Context, namespace string) (bool, error) {
		for _, verb := range []string{"list", "watch", "get"} {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Version: "v1", Resource: "secrets", Verb: verb},
			}}
			if err := live.Create(ctx, review); err != nil || !review.Status.Allowed {
				return false, err
			}
		}
		return true, nil
	}
}
