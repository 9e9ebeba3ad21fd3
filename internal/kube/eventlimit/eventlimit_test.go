package eventlimit_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/eventlimit"
)

func TestEventLimit(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Events")
}

// written counts Events by namespace and reason.
type written map[string]int

func (w written) Eventf(about, _ runtime.Object, _, reason, _, note string, args ...any) {
	namespace := "approvals"
	if t, ok := about.(*skeinv1.Thread); ok {
		namespace = t.Namespace
	}
	w[namespace+" "+reason+" "+fmt.Sprintf(note, args...)]++
}

func droppedSoFar() float64 {
	GinkgoHelper()
	families, err := metrics.Registry.(prometheus.Gatherer).Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		if f.GetName() == "skein_events_dropped_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	Fail("there is no metric of dropped Events")
	return 0
}

var _ = Describe("Events about a namespace", Label("K8S-12"), func() {
	It("are bounded over all objects and recorders, without a bound on those of other reasons or namespaces", func() {
		clock := testingclock.NewFakePassiveClock(time.Unix(1, 0))
		limiter := eventlimit.New(clock)
		got := written{}
		one, other := limiter.Recorder(got), limiter.Recorder(got)
		failing := func(namespace, reason string, n int) {
			for i := range n {
				t := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("t", i)}}
				one.Eventf(t, nil, corev1.EventTypeWarning, reason, "Check", "%s is wrong", "it")
				other.Eventf(t, nil, corev1.EventTypeWarning, reason, "Check", "%s is wrong", "it")
			}
		}
		before := droppedSoFar()
		failing("flood", "InvalidSpec", 5000)
		Expect(got).To(Equal(written{"flood InvalidSpec it is wrong": 100}))
		Expect(droppedSoFar() - before).To(BeEquivalentTo(9900))

		By("writing what is about the same namespace for another reason, and about others")
		about := &corev1.ObjectReference{Namespace: "flood", Name: "t"}
		one.Eventf(about, nil, corev1.EventTypeNormal, skeinv1.ReasonCallApproved, "Approve", "ada approved")
		failing("calm", "InvalidSpec", 2)
		Expect(got).To(And(HaveKeyWithValue("approvals CallApproved ada approved", 1), HaveKeyWithValue("calm InvalidSpec it is wrong", 4)))

		By("bounding all reasons together")
		for i := range 10 {
			failing("flood", fmt.Sprint("Reason", i), 100)
		}
		sum := 0
		for key, n := range got {
			if key != "calm InvalidSpec it is wrong" {
				sum += n
			}
		}
		Expect(sum).To(Equal(300))

		By("writing again after a while")
		clock.SetTime(time.Unix(11, 0))
		failing("flood", "InvalidSpec", 100)
		Expect(got).To(HaveKeyWithValue("flood InvalidSpec it is wrong", 110))
	})

	It("have no bound without a limiter", func() {
		var none *eventlimit.Limiter
		got := &written{}
		Expect(none.Recorder(got)).To(BeIdenticalTo(got))
	})
})
