package client_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/skein-dev/skein/api/runtime/client"
)

func TestImpatientReadsAreSentOnce(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "not set up yet", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	c, err := client.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Thread("ns", "t").Impatient().Get(t.Context()); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("the error is %v", err)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests were sent", n)
	}
}
