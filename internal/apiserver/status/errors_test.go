package status

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
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
	g.Expect(apierrors.HasStatusCause(waiting, runtimev1.CauseNotSetUp)).To(BeTrue())
}

// kubectl begins the text of an error with the kind and the name that it has.
func TestInvalidNamesNoThreadWhereThereIsNone(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Invalid("hello", "", "limit", "too large").ErrStatus.Details.Kind).To(Equal("Thread"))
	none := Invalid("", "", "q", "nothing to search for")
	g.Expect([]string{none.ErrStatus.Details.Group, none.ErrStatus.Details.Kind, none.ErrStatus.Message}).To(Equal([]string{"", "", "q: nothing to search for"}))
}
