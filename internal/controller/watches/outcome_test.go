package watches_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/skein-dev/skein/internal/controller/watches"
)

func TestOutcomeOfAnErrorHasNoTime(t *testing.T) {
	g := NewWithT(t)
	failed := errors.New("failed")
	result, err := watches.Outcome(ctrl.Result{RequeueAfter: time.Second}, nil, failed)
	g.Expect(err).To(MatchError(failed))
	g.Expect(result.RequeueAfter).To(BeZero())
	result, err = watches.Outcome(ctrl.Result{RequeueAfter: time.Second}, nil, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(Equal(time.Second))
}

func TestOutcomeOfOrdinaryErrorsIsNoError(t *testing.T) {
	g := NewWithT(t)
	conflict := fmt.Errorf("patch: %w", apierrors.NewConflict(schema.GroupResource{Resource: "sandboxpools"}, "p", errors.New("changed")))
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	result, err := watches.Outcome(ctrl.Result{RequeueAfter: time.Hour}, conflict, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(BeNumerically("<", time.Second), "it is read again")
	g.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
	result, err = watches.Outcome(ctrl.Result{}, terminating)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(BeNumerically(">", time.Second))
	failed := errors.New("failed")
	_, err = watches.Outcome(ctrl.Result{}, conflict, failed)
	g.Expect(err).To(MatchError(failed))
}
