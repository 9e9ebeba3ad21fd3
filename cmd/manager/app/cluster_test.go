package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

func TestTheManagerWatchesWithoutManagedFields(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"metadata":{"name":"a","managedFields":[{"manager":"m"}]}}}`+"\n")
	}))
	defer server.Close()
	cfg, err := (&Options{Config: &rest.Config{Host: server.URL}}).restConfig()
	g.Expect(err).NotTo(HaveOccurred())
	c, err := rest.HTTPClientFor(cfg)
	g.Expect(err).NotTo(HaveOccurred())
	resp, err := c.Get(server.URL + "/apis/skein.dev/v1alpha1/threads?watch=true")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(resp.Body.Close()).To(Succeed()) }()
	data, err := io.ReadAll(resp.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(data)).To(Equal(`{"type":"ADDED","object":{"metadata":{"name":"a","managedFields":[]}}}` + "\n"))
}
