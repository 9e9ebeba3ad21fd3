package kube

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// MakeOnce creates an object whose name follows from its cause. When the API server does not take it, MakeOnce returns the error and
// reports whether an object of that name exists, which it reads into have: an earlier attempt may have made it. That is so for a refusal
// too, because admission comes first: a quota that the object itself has filled refuses each repeat. The caller checks whether it is the one.
// live reads from the API server, past any cache.
func MakeOnce(ctx context.Context, c client.Client, live client.Reader, want, have client.Object) (found bool, err error) {
	err = c.Create(ctx, want)
	if err == nil || !IsRefused(err) && !apierrors.IsForbidden(err) && !apierrors.IsAlreadyExists(err) {
		return false, err
	}
	switch failed := live.Get(ctx, client.ObjectKeyFromObject(want), have); {
	case failed == nil:
		return true, err
	case !apierrors.IsNotFound(failed):
		return false, fmt.Errorf("read %q: %w", want.GetName(), failed) // the object may exist, so this is no refusal
	case apierrors.IsAlreadyExists(err) && !IsDenied(err):
		return false, apierrors.NewServiceUnavailable(fmt.Sprintf("%q existed and was deleted meanwhile: try again", want.GetName()))
	}
	return false, err
}

// sameCause reports whether two objects were made for the same cause.
func sameCause(have, want client.Object) bool {
	return have.GetAnnotations()[skeinv1.AnnotationIdempotencyKey] == want.GetAnnotations()[skeinv1.AnnotationIdempotencyKey]
}

// IsRefused reports whether the API server does not take an object: because of a quota, an admission rule, missing rights,
// or its name. To try again would not help.
func IsRefused(err error) bool {
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), uncounted) {
		return false
	}
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || IsDenied(err)
}

// uncounted is what the API server says while Kubernetes has not counted yet what a new ResourceQuota bounds, which takes a moment.
const uncounted = "status unknown for quota"

// IsDenied reports whether an admission webhook refused an object. A webhook chooses the status of its refusal, also one that
// the API server gives for a conflict, an object that exists, or a failure of its own. Only the text tells them apart.
func IsDenied(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && denial.MatchString(status.Status().Message)
}

// denial is how the API server begins the message of a refusal by a webhook. The message of a webhook that it could not call
// begins with "failed calling webhook".
var denial = regexp.MustCompile(`^admission webhook ".+" denied the request`)
