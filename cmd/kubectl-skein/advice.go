package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// deniedByRBAC matches the message of a request that RBAC refuses. Quotas and admission answer Forbidden too, but no
// role helps against those.
var deniedByRBAC = regexp.MustCompile(`cannot (\S+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?`)

// advice returns advice about an error of the server that the server itself cannot know, or "".
func advice(s metav1.Status) string {
	if s.Reason == metav1.StatusReasonNotFound && s.Details != nil && s.Details.Group == skeinv1.GroupVersion.Group && s.Details.Kind != "" {
		return fmt.Sprintf("Check the name and the namespace: kubectl get %s lists those that exist.", s.Details.Kind)
	}
	m := deniedByRBAC.FindStringSubmatch(s.Message)
	if s.Reason != metav1.StatusReasonForbidden || m == nil {
		return ""
	}
	verb, resource, group, namespace := m[1], m[2], m[3], m[4]
	role := roleFor(verb, resource, group)
	if role != "" && s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == causeSends }) {
		role = "skein-conversation-writer"
	}
	if role == "" {
		return ""
	}
	if namespace == "" {
		return fmt.Sprintf("The ClusterRole %s has this right: ask for a ClusterRoleBinding to it, or name one namespace with -n.", role)
	}
	return fmt.Sprintf("The ClusterRole %s has this right: ask for a RoleBinding to it in the namespace %s.", role, namespace)
}

// causeSends marks the refusal of a read that belongs to sending a message: the role for reading alone is no help.
const causeSends metav1.CauseType = "Sends"

// toSend marks an error of a read before a message is sent.
func toSend(err error) error {
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsForbidden(err) {
		return err
	}
	marked := *status
	marked.ErrStatus.Details = &metav1.StatusDetails{}
	if status.ErrStatus.Details != nil {
		marked.ErrStatus.Details = status.ErrStatus.Details.DeepCopy()
	}
	marked.ErrStatus.Details.Causes = append(marked.ErrStatus.Details.Causes, metav1.StatusCause{Type: causeSends})
	return &marked
}

// roleFor returns the ClusterRole of config/rbac with the fewest rights that includes this one, or "" for rights
// outside Skein.
func roleFor(verb, resource, group string) string {
	reads := verb == "get" || verb == "list" || verb == "watch"
	switch {
	case group == skeinv1.GroupVersion.Group && resource == "*":
		return "skein-backup"
	case group == skeinv1.GroupVersion.Group && reads:
		return "skein-viewer"
	case group == skeinv1.GroupVersion.Group && resource == "threadquotas":
		return "skein-quota-editor"
	case group == skeinv1.GroupVersion.Group && slices.Contains([]string{"threadgateways", "webhooks", "webhookreceivers"}, resource):
		return "skein-gateway-editor"
	case group == skeinv1.GroupVersion.Group:
		return "skein-editor"
	case group != runtimev1.GroupVersion.Group:
		return ""
	}
	view, _, _ := strings.Cut(resource, "/")
	switch sub := func(s runtimev1.Subresource) string { return runtimev1.ThreadsResource + "/" + string(s) }; {
	case resource == "users":
		return "skein-user-delegate"
	case resource == string(runtimev1.ViewFirings)+"/"+runtimev1.ActionCancelFiring:
		return "skein-editor"
	case slices.Contains([]string{"backups", "restores", "orphans"}, view):
		return "skein-backup"
	case resource == sub(runtimev1.SubresourceEnv):
		return "skein-env-editor"
	case resource == sub(runtimev1.SubresourceApprovals) && !reads:
		return "skein-approver"
	case resource == string(runtimev1.ViewLookups), resource == string(runtimev1.ViewSearches):
		return "skein-lookup"
	case reads && resource != sub(runtimev1.SubresourceCode):
		return "skein-conversation-reader"
	}
	return "skein-conversation-writer"
}
