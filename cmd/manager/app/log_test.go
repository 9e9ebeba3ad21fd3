package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// The API server's probes leave before their answers, many times a minute. That is no error, and other errors still are.
func TestClientsThatLeaveAreNoErrors(t *testing.T) {
	g := NewWithT(t)
	var logged bytes.Buffer
	ctx := klog.NewContext(context.Background(), zap.New(zap.WriteTo(&logged)))
	before := utilruntime.ErrorHandlers
	defer func() { utilruntime.ErrorHandlers = before }()
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{withoutAborts(before[0])}

	leaves := filters.WithPanicRecovery(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		&request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis")})
	func() {
		defer func() { _ = recover() }() // as the HTTP server does
		leaves.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/runtime.skein.dev/v1alpha1", nil))
	}()
	const late = "Post-timeout activity" // what the library says of a handler that ends after its time
	utilruntime.HandleErrorWithContext(ctx, nil, late, "path", "/apis", "result", nil)
	for _, cause := range []error{http.ErrHandlerTimeout, errors.New("http2: stream closed")} {
		utilruntime.HandleErrorWithContext(ctx, fmt.Errorf("apiserver was unable to write a fallback application/json response: %w", cause), "Unhandled Error")
	}
	g.Expect(logged.String()).To(BeEmpty())

	utilruntime.HandleErrorWithContext(ctx, nil, late, "path", "/apis", "result", "a panic\nits stack")
	g.Expect(logged.String()).To(And(ContainSubstring("a panic"), ContainSubstring(`"level":"error"`)))
	logged.Reset()
	utilruntime.HandleErrorWithContext(ctx, errors.New("the disk is full"), "Cannot write")
	g.Expect(logged.String()).To(And(ContainSubstring("the disk is full"), ContainSubstring(`"level":"error"`)))
}

// A namespace that is being deleted takes no Events, which is no error. Other Events that the API server refuses are errors.
func TestEventsOfDeletedNamespacesAreNoErrors(t *testing.T) {
	g := NewWithT(t)
	namespaces := schema.GroupResource{Resource: "namespaces"}
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "e", errors.New("because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	refusals := map[string]*apierrors.StatusError{
		"terminating": terminating, "gone": apierrors.NewNotFound(namespaces, "gone"), "full": apierrors.NewForbidden(namespaces, "full", errors.New("exceeded quota")),
		"old": apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, "e"),
	}
	kube := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for namespace, refusal := range refusals {
			if strings.Contains(r.URL.Path, "/namespaces/"+namespace+"/") {
				refusal.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(int(refusal.ErrStatus.Code))
				_ = json.NewEncoder(w).Encode(refusal.ErrStatus)
			}
		}
	}))
	defer kube.Close()
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: kube.URL})
	g.Expect(err).NotTo(HaveOccurred())
	logged := gbytes.NewBuffer()
	logger := zap.New(zap.WriteTo(logged), zap.Level(zapcore.DebugLevel))
	ctx := klog.NewContext(t.Context(), logger.WithSink(lostEvents{logger.GetSink()}).WithName("events").WithValues("a", "b"))
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.EventsV1()})
	g.Expect(broadcaster.StartRecordingToSinkWithContext(ctx)).To(Succeed())
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(clientgoscheme.Scheme, "test")

	for namespace, level := range map[string]string{"terminating": "debug", "gone": "debug", "full": "error", "old": "error"} {
		recorder.Eventf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}, nil, "Normal", "Tested", "Test", "said")
		g.Eventually(logged, time.Minute).Should(gbytes.Say(`"level":"` + level + `".*`))
	}
	g.Expect(strings.Count(string(logged.Contents()), `"level":"error"`)).To(Equal(2))
}
