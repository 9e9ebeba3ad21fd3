package watches_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
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
