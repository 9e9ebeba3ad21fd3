package status

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Clients of Kubernetes repeat a request ten times while an answer says after how long to.
func TestNotStoredIsRepeatedOnlyWhenItLastsAMoment(t *testing.T) {
	g := NewWithT(t)
	_, repeat := apierrors.SuggestsClientDelay(NotStored("hello", ""))
	g.Expect(repeat).To(BeTrue())
	waiting := NotStored("hello", "ReferenceNotFound: the agent does not exist")
	_, repeat = apierrors.SuggestsClientDelay(waiting)
	g.Expect(repeat).To(BeFalse())
	g.Expect(waiting).To(MatchError(`thread "hello" exists but is not set up yet (ReferenceNotFound: the agent does not exist): try again once it is`))
	g.Expect(apierrors.IsServiceUnavailable(waiting)).To(BeTrue())
}
