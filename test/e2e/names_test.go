package e2e

import (
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Sandboxes of threads of one name in two namespaces", Label("THR-01", "COD-08", "SUB-08"), func() {
	It("are each their own, with what code keeps, and go with their own thread", func(ctx SpecContext) {
		spaces := []string{namespace(ctx), namespace(ctx)}
		var threads [2]*harness.Thread
		for i, ns := range spaces {
			pool(ctx, ns, 1)
			create(ctx, harness.CodeTool(ns, "count", `export default async (state: any) => {
				const n = ((await state.getValue('n')) ?? 0) + 1;
				await state.setValue('n', n);
				return JSON.stringify([n, state.threadId, new TextDecoder().decode(await state.readFile('/whose.txt'))]);
			}`, nil), harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model", "count"), harness.Agent(ns, "agent", "prompt"))
			threads[i] = thread(ctx, ns, "thread")
			Expect(threads[i].WriteFile(ctx, "/whose.txt", "text/plain", []byte(ns))).To(Succeed())
		}
		// run has the same tool called for a thread, which counts its calls, and returns what it says.
		run := func(t *harness.Thread) string {
			GinkgoHelper()
			c, err := runtimeclient.New(cluster.Config)
			Expect(err).NotTo(HaveOccurred())
			r, err := c.Thread(t.Namespace, t.Name).InvokeTool(ctx, "count", nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(r.Status).To(Equal(runtimev1.ToolSuccess), r.Error)
			return r.Result
		}
		// pod returns the one pod that was claimed in a namespace, which is its thread's.
		pod := func(i int) types.UID {
			GinkgoHelper()
			o, err := threads[i].Object(ctx)
			Expect(err).NotTo(HaveOccurred())
			pods := sandboxes(ctx, Default, spaces[i], claimed())
			Expect(pods).To(HaveLen(1))
			Expect(pods[0].OwnerReferences).To(ContainElement(HaveField("UID", o.UID)))
			return pods[0].UID
		}
		said := func(i, n int) string {
			GinkgoHelper()
			o, err := threads[i].Object(ctx)
			Expect(err).NotTo(HaveOccurred())
			return fmt.Sprintf("[%d,%q,%q]", n, o.Status.ThreadID, spaces[i])
		}
		for n := 1; n <= 3; n++ {
			var both sync.WaitGroup
			for i := range threads {
				both.Go(func() {
					defer GinkgoRecover()
					Expect(run(threads[i])).To(MatchJSON(said(i, n)))
				})
			}
			both.Wait()
		}
		kept := pod(1)
		Expect(pod(0)).NotTo(Equal(kept))

		By("deleting one, and making another of its name")
		Expect(threads[0].Delete(ctx)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			_, err := threads[0].Object(ctx)
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
			g.Expect(sandboxes(ctx, g, spaces[0], claimed())).To(BeEmpty())
		}).Should(Succeed())
		Expect(run(threads[1])).To(MatchJSON(said(1, 4)))
		Expect(pod(1)).To(Equal(kept), "it has the same pod")
		threads[0] = thread(ctx, spaces[0], "thread")
		Expect(threads[0].WriteFile(ctx, "/whose.txt", "text/plain", []byte(spaces[0]))).To(Succeed())
		Expect(run(threads[0])).To(MatchJSON(said(0, 1)), "it begins anew")
		Expect(run(threads[1])).To(MatchJSON(said(1, 5)))
	}, SpecTimeout(12*time.Minute))
})
