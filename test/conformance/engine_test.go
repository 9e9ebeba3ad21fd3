package conformance

import (
	"context"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// The rows that speak of code hold on the engine v8 too: SKEIN_TEST_ENGINE=v8 gives each namespace a default pool that
// has it, and SKEIN_TEST_DENO the manager the program (`make test-v8`).
var onV8 = os.Getenv("SKEIN_TEST_ENGINE") == string(skeinv1.SandboxEngineV8)

// rowsOfCode are those that an engine has a part in.
const rowsOfCode = `/^COD-0[1-7]$/ || TOL-03 || TOL-04 || STA-08 || HOK-01 || END-01 || AGT-09`

// engineArgs are the manager's flags for the engine.
func engineArgs() []string {
	if !onV8 {
		return nil
	}
	return []string{"--sandbox-deno=" + os.Getenv("SKEIN_TEST_DENO")}
}

// defaultPool makes the namespace's default pool what the spec wants, on the engine that is tested.
func defaultPool(ctx context.Context, ns string, spec skeinv1.SandboxPoolSpec) {
	GinkgoHelper()
	p := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}, Spec: spec}
	if !onV8 {
		create(ctx, p)
		return
	}
	p.Spec.Engine = skeinv1.SandboxEngineV8
	made := &skeinv1.SandboxPool{}
	if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), made); err != nil {
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		create(ctx, p)
		return
	}
	before := made.DeepCopy()
	made.Spec = p.Spec
	Expect(cluster.Client.Patch(ctx, made, client.MergeFrom(before))).To(Succeed())
}

// engineName is how the tested engine is called in pools.
func engineName() string {
	if onV8 {
		return string(skeinv1.SandboxEngineV8)
	}
	return string(skeinv1.SandboxEngineQuickJS)
}
