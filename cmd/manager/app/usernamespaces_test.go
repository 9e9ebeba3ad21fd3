package app

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestUserNamespacesNeedEveryNode expects that a single node without user namespaces, or one that does not say, counts (COD-08).
func TestUserNamespacesNeedEveryNode(t *testing.T) {
	node := func(name string, handlers ...corev1.NodeRuntimeHandler) client.Object {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{RuntimeHandlers: handlers}}
	}
	handler := func(name string, has bool) corev1.NodeRuntimeHandler {
		return corev1.NodeRuntimeHandler{Name: name, Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: ptr.To(has)}}
	}
	able := node("able", handler("runsc", false), handler("", true))
	for name, c := range map[string]struct {
		nodes []client.Object
		want  bool
	}{
		"no nodes":                    {nil, false},
		"one that has them":           {[]client.Object{able}, true},
		"one that has not":            {[]client.Object{able, node("unable", handler("", false))}, false},
		"one that does not say":       {[]client.Object{able, node("silent")}, false},
		"one with another runtime":    {[]client.Object{able, node("other", handler("runsc", true))}, false},
		"a handler without a feature": {[]client.Object{node("old", corev1.NodeRuntimeHandler{})}, false},
	} {
		t.Run(name, func(t *testing.T) {
			reader := fake.NewClientBuilder().WithObjects(c.nodes...).Build()
			NewWithT(t).Expect(userNamespaces(reader)()).To(Equal(c.want))
		})
	}
}
