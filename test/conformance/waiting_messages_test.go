package conformance

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Messages to a thread whose run waits for a time", func() {
	// parked makes a thread whose run waits, and queues messages on it.
	parked := func(ctx SpecContext, messages int) (*harness.Thread, *runtimeclient.Thread) {
		GinkgoHelper()
		t := converse(ctx, namespace(ctx), []string{"builtin:wait"}, []skeinv1.ScriptStep{
			harness.On("^go$", harness.Calls("wait", map[string]any{"delayMs": time.Hour.Milliseconds()})), harness.Echo()})
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(t.Runs(ctx)).To(HaveExactElements(And(HaveField("Status", "waiting"), HaveField("Reason", skeinv1.ReasonWaitingForTime))))
		}).Should(Succeed())
		raw := api().Thread(t.Namespace, t.Name)
		for i := range messages {
			_, err := raw.Queue(ctx, runtimev1.NewMessage{Content: fmt.Sprint("waits ", i)})
			Expect(err).NotTo(HaveOccurred())
		}
		return t, raw
	}

	It("are five at most, stay there over a stop, and are answered after a continue", Label("MSG-07", "MSG-08"), func(ctx SpecContext) {
		t, raw := parked(ctx, 5)
		_, err := raw.Queue(ctx, runtimev1.NewMessage{Content: "one too many"})
		Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
		_, err = raw.Stop(ctx, "enough")
		Expect(err).NotTo(HaveOccurred())
		Expect(raw.Get(ctx)).To(And(HaveField("Parked", true), HaveField("QueuedCount", int64(5))))
		Eventually(ctx, func(g Gomega) {
			g.Expect(must(t.Object(ctx)).Status.Phase).To(Equal("Parked"))
		}).Should(Succeed())
		_, err = raw.Continue(ctx)
		Expect(err).NotTo(HaveOccurred())
		said := texts(settled(ctx, t, 2))
		Expect(said[2:]).To(Equal([]string{"assistant: (stopped by user)", "user: waits 0", "user: waits 1", "user: waits 2", "user: waits 3", "user: waits 4", "assistant: echo: waits 4"}))
	}, SpecTimeout(2*time.Minute))

	It("go on after a cancellation of the run", Label("MSG-05", "RUN-10"), func(ctx SpecContext) {
		t, raw := parked(ctx, 1)
		_, err := raw.CancelRun(ctx, must(t.Runs(ctx))[0].ID, "no more")
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(settled(ctx, t, 2))[2:]).To(Equal([]string{"assistant: (cancelled by user)", "user: waits 0", "assistant: echo: waits 0"}))
	}, SpecTimeout(2*time.Minute))
})
