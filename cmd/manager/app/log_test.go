package app

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
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
	g.Expect(logged.String()).To(BeEmpty())

	utilruntime.HandleErrorWithContext(ctx, errors.New("the disk is full"), "Cannot write")
	g.Expect(logged.String()).To(And(ContainSubstring("the disk is full"), ContainSubstring(`"level":"error"`)))
}
