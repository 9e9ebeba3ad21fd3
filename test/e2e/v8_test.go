package e2e

import (
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Sandboxes with the v8 engine", func() {
	It("run the same code, under the same standard, as the default ones", Label("COD-01", "COD-05", "COD-06", "COD-08"), func(ctx SpecContext) {
		loadV8(ctx)
		ns := namespace(ctx)
		pool(ctx, ns, 1)
		p := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: skeinv1.DefaultPoolName}}
		By("replacing the sandboxes that wait when the engine changes")
		Expect(cluster.Client.Patch(ctx, p, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"engine":"v8","maxWallTime":"5m"}}`)))).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			g.Expect(p.Status.ObservedGeneration).To(Equal(p.Generation))
			g.Expect(p.Status.Engine).To(Equal(skeinv1.SandboxEngineV8))
			g.Expect(p.Status.Outdated).To(BeZero())
			g.Expect(p.Status.Warm).To(BeEquivalentTo(1))
		}).Should(Succeed())
		echo(ctx, ns)
		t := thread(ctx, ns, "thread")

		By("computing as only an engine that compiles can")
		r, err := t.Code(ctx, runtimev1.CodeRequest{Source: "const fib = (n: number): number => n < 2 ? n : fib(n - 1) + fib(n - 2); report(1); export default () => [fib(32), typeof Deno, typeof process, typeof fetch, typeof WebAssembly]"})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "%+v", r.Error)
		Expect(r.Result).To(MatchJSON(`[2178309, "undefined", "undefined", "undefined", "undefined"]`))
		pods := sandboxes(ctx, Default, ns, claimed())
		Expect(pods).To(HaveLen(1))
		Expect(pods[0].Spec.Containers[0].Image).To(Equal("skein.dev/sandbox-v8:dev"))
		Expect(pods[0].Spec.Containers[0].Args).To(ContainElement("--engine=v8"))

		By("settling as the default engine does")
		for source, status := range map[string]string{
			"export default () => { throw new RangeError('no') }": runtimev1.CodeErrored,
			"import 'node:fs'": runtimev1.CodeLinkError,
			"const a = []; for (;;) a.push(new Array(1_000_000).fill({ a }))":                     runtimev1.CodeMemory,
			"export default async () => { await 0; for (;;); }":                                   runtimev1.CodeTerminated,
			"export default async () => (await import('node:fs')).readFileSync('/certs/tls.key')": runtimev1.CodeErrored,
		} {
			req := runtimev1.CodeRequest{Source: source}
			req.WallTime = &metav1.Duration{Duration: 4 * time.Minute}
			if status == runtimev1.CodeTerminated {
				req.WallTime = &metav1.Duration{Duration: 2 * time.Second}
			}
			r, err := t.Code(ctx, req)
			Expect(err).NotTo(HaveOccurred())
			Expect(r.Status).To(Equal(status), "%s: %+v", source, r.Error)
		}
		Expect(sandboxes(ctx, Default, ns, claimed())).To(HaveLen(1))
		Expect(sandboxes(ctx, Default, ns, claimed())[0].Name).To(Equal(pods[0].Name), "none of it took the sandbox down")
	}, SpecTimeout(12*time.Minute))
})

var v8Loaded bool

// loadV8 makes the image of the v8 engine and puts it into the node, once.
func loadV8(ctx SpecContext) {
	GinkgoHelper()
	if v8Loaded {
		return
	}
	files := filepath.Join(GinkgoT().TempDir(), "files")
	for _, args := range [][]string{{"install"}, {"files", files}} {
		out, err := exec.CommandContext(ctx, filepath.Join(harness.Root(), "hack", "deno.sh"), args...).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
	}
	Expect(cluster.LoadTree(ctx, "skein.dev/sandbox-v8:dev", harness.Bin("sandbox"), files)).To(Succeed())
	v8Loaded = true
}
