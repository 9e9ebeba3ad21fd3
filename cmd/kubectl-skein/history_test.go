package main

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

var _ = Describe("What the history says of relationships", Label("THR-15"), func() {
	It("has the names of threads that are listed, and the ids of others", func() {
		names := map[string]string{"id-1": "orders"}
		Expect(related(&runtimev1.ThreadHistory{}, names)).To(BeEmpty())
		Expect(related(&runtimev1.ThreadHistory{MainThreadID: "id-1", ParentRelationships: []runtimev1.Relationship{
			{ThreadID: "id-1", Type: "fork", MessageIndex: ptr.To[int64](7)}, {ThreadID: "id-2", Type: "handoff", MessageIndex: ptr.To[int64](0)}, {ThreadID: "id-1", Type: "mention"},
		}}, names)).To(Equal("below orders, fork of orders at 7, handoff of id-2 at 0, mentioned by orders"))
	})
})
