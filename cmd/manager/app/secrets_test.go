package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

func TestAManagerWaitsForTheAnswerWhoItIs(t *testing.T) {
	g := NewWithT(t)
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"authentication.k8s.io/v1","resources":[{"name":"selfsubjectreviews","kind":"SelfSubjectReview","verbs":["create"]}]}`)
		case asked.Add(1) == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = io.WriteString(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"me"}}}`)
		}
	}))
	defer server.Close()
	o := parse(t)
	o.Logger, o.SecretsByBinding = logr.Discard(), true
	g.Expect(o.findAccount(t.Context(), &rest.Config{Host: server.URL})).To(Succeed())
	g.Expect(string(o.account)).To(Equal("me"))
}
