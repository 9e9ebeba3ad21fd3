package apiserver

import (
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("a relationship", Label("REL-01", "K8S-04"), func() {
	It("needs the right for both threads, because it is stored at both", func() {
		e := newEnv()
		e.thread("own")
		other, _ := e.thread("other")
		link := func(id string) (*http.Response, string) {
			GinkgoHelper()
			return e.do("POST", at("own", "/relationships"), strings.NewReader(`{"threadID":"`+id+`","type":"mention","role":"parent"}`),
				"Content-Type", "application/json", "Authorization", "Bearer bob")
		}
		e.rights.allow = map[string]bool{"bob create threads/relationships ns/own": true}
		for _, id := range []string{"other", other.ID()} {
			resp, body := link(id)
			Expect(resp.StatusCode).To(Equal(http.StatusForbidden), body)
			Expect(body).To(ContainSubstring("threads/relationships"))
		}
		_, body := e.do("GET", at("other", "/relationships"), nil)
		Expect(body).To(ContainSubstring(`"relationships":[]`))
		e.rights.mu.Lock()
		e.rights.allow["bob create threads/relationships ns/other"] = true
		e.rights.mu.Unlock()
		resp, body := link("other")
		Expect(resp.StatusCode).To(Equal(http.StatusCreated), body)
	})
})
