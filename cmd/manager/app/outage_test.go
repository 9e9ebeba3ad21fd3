package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/skein-dev/skein/internal/apiserver/serving"
)

func TestAManagerWaitsForAnAPIServerThatIsAway(t *testing.T) {
	g := NewWithT(t)
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler) // the connection ends without an answer
		default:
			w.WriteHeader(http.StatusUnauthorized) // it answers, which is enough: later requests report the missing credentials
		}
	}))
	defer s.Close()
	o := parse(t)
	o.Logger = logr.Discard()
	g.Expect(o.reachCluster(t.Context(), &rest.Config{Host: s.URL})).To(Succeed())
	g.Expect(asked.Load()).To(BeNumerically(">=", 3)) // client-go itself repeats a read whose connection ended
}

func TestTheRuntimeAPIIsRegisteredWhenTheAPIServerIsThereAgain(t *testing.T) {
	g := NewWithT(t)
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer s.Close()
	o := parse(t)
	o.Logger = logr.Discard()
	_, err := o.register(t.Context(), &rest.Config{Host: s.URL}, serving.Options{})
	g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
}

func TestAConnectionThatIsLostSaysThatTheAPIServerIsAway(t *testing.T) {
	g := NewWithT(t)
	for _, text := range []string{"http2: client connection lost", "http2: client connection force closed via ClientConn.Close"} {
		g.Expect(clusterAway(&url.Error{Op: "Get", URL: "https://10.0.0.1/api", Err: errors.New(text)})).To(BeTrue(), text)
	}
	g.Expect(clusterAway(&url.Error{Op: "Get", URL: "ftp://10.0.0.1/api", Err: errors.New("unsupported protocol scheme")})).To(BeFalse())
}

func TestAManagerEndsWhenItsClusterIsNotWhatItTrusts(t *testing.T) {
	g := NewWithT(t)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	o := parse(t)
	o.Logger = logr.Discard()
	g.Expect(o.reachCluster(t.Context(), &rest.Config{Host: secure.URL})).To(MatchError(ContainSubstring("certificate")))
	g.Expect(o.reachCluster(t.Context(), &rest.Config{Host: "https://" + plain.Listener.Addr().String()})).To(MatchError(ContainSubstring("reach the cluster at https://")))
}

func TestAManagerThatWaitsEndsWhenItIsToldTo(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := reach(ctx, logr.Discard(), "a thing", func(error) bool { return true }, func() error {
		cancel()
		return errors.New("it is away")
	})
	g.Expect(err).To(MatchError("it is away"))
	g.Expect(ctx.Err()).To(HaveOccurred())
}
