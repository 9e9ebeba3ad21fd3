package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// deliver posts a delivery of GitHub to the receiver each until it is accepted, as GitHub's redelivery does.
func deliver(ctx context.Context, ns, id, body string) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+door+"/"+ns+"/each/v1/webhook", strings.NewReader(body))
		Expect(err).NotTo(HaveOccurred())
		for name, value := range map[string]string{
			"Content-Type": "application/json", "X-GitHub-Event": "push", "X-GitHub-Delivery": id, "X-Hub-Signature-256": gitHubSignature(firstKey, body),
		} {
			req.Header.Set(name, value)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusAccepted {
				return
			}
		}
		lasts(ctx, 50*time.Millisecond)
	}
}

var _ = Describe("Webhooks while the manager is killed", Serial, outages, Label("EVT-05"), func() {
	It("make one Thread and one message of each delivery, and tell the outside of each run", func(ctx SpecContext) {
		const batches, size = 3, 7
		ns, outside := namespace(ctx), newEar()
		keys := []corev1.SecretKeySelector{gatewayKey("first")}
		w := &skeinv1.Webhook{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ci"}, Spec: skeinv1.WebhookSpec{
			URL: outside.URL, Events: []skeinv1.WebhookEvent{"run.ended"}, SigningKeys: keys, MaxAttempts: 20}}
		r := &skeinv1.WebhookReceiver{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "each"}, Spec: skeinv1.WebhookReceiverSpec{
			Form: skeinv1.WebhookGitHub, SigningKeys: keys, AgentRef: &skeinv1.LocalRef{Name: "agent"}, PerMinute: 10_000, MaxBytes: 1000}}
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"), gatewayKeys(ns), w, r)
		isReady(ctx, w, func() []metav1.Condition { return w.Status.Conditions })
		isReady(ctx, r, func() []metav1.Condition { return r.Status.Conditions })

		var accepted atomic.Int64
		var senders sync.WaitGroup
		for batch := range batches {
			before := accepted.Load()
			for i := range size {
				senders.Go(func() {
					defer GinkgoRecover()
					deliver(ctx, ns, fmt.Sprintf("delivery-%d-%d", batch, i), fmt.Sprintf(`{"n": "%d-%d"}`, batch, i))
					accepted.Add(1)
				})
			}
			Eventually(ctx, accepted.Load).Should(BeNumerically(">", before))
			manager.Kill()
			Expect(manager.Start(ctx)).To(Succeed())
			served(ctx)
		}
		senders.Wait()

		Eventually(ctx, func(g Gomega) {
			var made skeinv1.ThreadList
			g.Expect(cluster.Client.List(ctx, &made, client.InNamespace(ns), client.MatchingLabels{skeinv1.LabelReceiver: "each"})).To(Succeed())
			g.Expect(made.Items).To(HaveLen(batches * size))
			seen := map[string]int{}
			for i := range made.Items {
				ms, err := cluster.Thread(ns, made.Items[i].Name).Messages(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(ms).To(HaveExactElements(HaveField("Role", runtimev1.RoleUser), HaveField("Role", runtimev1.RoleAssistant)))
				seen[*ms[0].Content]++
			}
			g.Expect(seen).To(And(HaveLen(batches*size), HaveEach(1)))
		}).Should(Succeed())
		c, err := runtimeclient.New(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			list, err := c.WebhookDeliveries(ctx, ns, runtimeclient.DeliveryPage{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list.Deliveries).To(And(HaveLen(batches*size), HaveEach(HaveField("Status", runtimev1.DeliveryDelivered))))
		}).Should(Succeed(), "each run has one delivery")
		ids := map[string]bool{}
		for _, d := range outside.all() {
			ids[d.header.Get("webhook-id")] = true
		}
		Expect(ids).To(HaveLen(batches*size), "a repeat has the id of the first try")
	}, SpecTimeout(10*time.Minute))
})
