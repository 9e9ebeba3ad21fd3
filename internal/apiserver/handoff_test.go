package apiserver

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("a context handoff", Label("REL-03", "K8S-04"), func() {
	It("needs the rights to create threads and to read what the new one gets", func() {
		e := newEnv()
		e.thread("hello")
		const body = `{"goal":"x","files":["/f"]}`
		e.rights.allow = map[string]bool{}
		for _, step := range []struct{ right, missing string }{
			{"bob create threads/handoff ns/hello", "create threads.skein.dev"},
			{"bob create threads/ ns/", "threads.runtime.skein.dev/messages"},
			{"bob get threads/messages ns/hello", "threads.runtime.skein.dev/files"},
		} {
			e.rights.allow[step.right] = true
			s := e.refused("bob", http.MethodPost, at("hello", "/handoff"), body, "application/json")
			Expect(s.Reason).To(Equal(metav1.StatusReasonForbidden))
			Expect(s.Message).To(ContainSubstring(step.missing))
		}
		e.rights.allow["bob get threads/files ns/hello"] = true
		Expect(e.refused("bob", http.MethodPost, at("hello", "/handoff"), body, "application/json").Reason).To(Equal(metav1.StatusReasonServiceUnavailable),
			"the engine of this test makes no threads")
	})
})
