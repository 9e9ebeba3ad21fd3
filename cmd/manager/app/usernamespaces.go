package app

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// userNamespaces returns a function that reports whether pods can have user namespaces of their own on every node, with the
// runtime that pods get when they name none. One node without them would otherwise fail to start the pods that are placed on it,
// because the scheduler does not consider this.
func userNamespaces(nodes client.Reader) func() bool {
	return func() bool {
		var list corev1.NodeList
		if err := nodes.List(context.Background(), &list, client.UnsafeDisableDeepCopy); err != nil || len(list.Items) == 0 {
			return false
		}
		for i := range list.Items {
			if !defaultHandlerHas(list.Items[i].Status.RuntimeHandlers) {
				return false
			}
		}
		return true
	}
}

func defaultHandlerHas(handlers []corev1.NodeRuntimeHandler) bool {
	for _, h := range handlers {
		if h.Name == "" {
			return h.Features != nil && h.Features.UserNamespaces != nil && *h.Features.UserNamespaces
		}
	}
	return false
}
