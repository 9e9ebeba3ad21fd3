package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("The kubectl of Debian", Label("K8S-04", "THR-04"), func() {
	// It is older than the API server by many releases, and knows nothing of Skein.
	It("applies definitions, gets them and their threads, and makes raw requests to the runtime API, twenty at once", func(ctx SpecContext) {
		find := exec.CommandContext(ctx, filepath.Join(harness.Root(), "hack", "kubectl.sh"), "bin")
		find.Stderr = GinkgoWriter
		out, err := find.Output()
		Expect(err).NotTo(HaveOccurred())
		program := strings.TrimSpace(string(out))
		ns := namespace(ctx)
		run := func(stdin string, args ...string) (string, error) {
			cmd := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", cluster.Kubeconfig, "-n", ns, "--cache-dir", GinkgoT().TempDir()}, args...)...)
			cmd.Stdin = strings.NewReader(stdin)
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		do := func(stdin string, args ...string) string {
			GinkgoHelper()
			out, err := run(stdin, args...)
			Expect(err).NotTo(HaveOccurred(), "kubectl %s: %s", strings.Join(args, " "), out)
			return out
		}
		const definitions = `apiVersion: skein.dev/v1alpha1
kind: Model
metadata: {name: model}
spec: {provider: scripted, script: {steps: [{content: 'echo: {{.Last.Content}}', times: 0}]}}
---
apiVersion: skein.dev/v1alpha1
kind: Prompt
metadata: {name: prompt}
spec: {modelRef: {name: model}, text: Repeat what is said.}
---
apiVersion: skein.dev/v1alpha1
kind: Agent
metadata: {name: agent}
spec: {sideA: {promptRef: {name: prompt}}}
---
apiVersion: skein.dev/v1alpha1
kind: Thread
metadata: {name: orders}
spec: {agentRef: {name: agent}}
`
		Expect(do(definitions, "apply", "-f", "-")).To(ContainSubstring("thread.skein.dev/orders created"))
		Expect(do(definitions, "apply", "-f", "-")).To(ContainSubstring("thread.skein.dev/orders unchanged"))
		Expect(do(definitions, "apply", "--server-side", "--force-conflicts", "-f", "-")).To(ContainSubstring("agent.skein.dev/agent serverside-applied"))
		do("", "wait", "--for=condition=Ready", "thread/orders", "--timeout=2m")
		Expect(do("", "get", "threads")).To(And(MatchRegexp(`(?m)^NAME .*READY`), MatchRegexp(`(?m)^orders .*True`)))
		Expect(do("", "get", "agents,models,prompts", "-o", "name")).To(And(ContainSubstring("agent.skein.dev/agent"), ContainSubstring("model.skein.dev/model")))
		Expect(do("", "get", "thread", "orders", "-o", "jsonpath={.status.threadID}")).NotTo(BeEmpty())
		Expect(do("", "get", "skein", "-o", "name")).To(ContainSubstring("thread.skein.dev/orders"))
		Expect(do("", "explain", "threads.spec.agentRef")).To(ContainSubstring("AgentRef"))
		do("", "label", "thread", "orders", "a=b")

		raw := "/apis/" + runtimev1.GroupVersion.String() + "/namespaces/" + ns + "/threads/orders/"
		Expect(do("", "get", "--raw", raw+"messages")).To(ContainSubstring(`"messages":[]`))
		Expect(do(`{"content":"hello"}`, "create", "--raw", raw+"queue", "-f", "-")).To(ContainSubstring(`"hello"`))
		Eventually(ctx, func() string { return do("", "get", "--raw", raw+"messages") }).Should(ContainSubstring("echo: hello"))
		var everybody sync.WaitGroup
		for i := range 20 {
			everybody.Go(func() {
				defer GinkgoRecover()
				key := fmt.Sprintf("key-%d", i)
				do(fmt.Sprintf(`{"value":%d}`, i), "replace", "--raw", raw+"kv/"+key, "-f", "-")
				Expect(do("", "get", "--raw", raw+"kv/"+key)).To(ContainSubstring(fmt.Sprint(i)))
			})
		}
		everybody.Wait()
		var keys struct{ Keys []string }
		Expect(json.Unmarshal([]byte(do("", "get", "--raw", raw+"kv")), &keys)).To(Succeed())
		Expect(keys.Keys).To(HaveLen(20))
		do("", "delete", "--raw", raw+"kv/key-0")
		Expect(json.Unmarshal([]byte(do("", "get", "--raw", raw+"kv")), &keys)).To(Succeed())
		Expect(keys.Keys).To(HaveLen(19))

		By("with what cannot work")
		for _, row := range []struct {
			stdin, says string
			args        []string
		}{
			{strings.Replace(definitions, "agentRef: {name: agent}", "agentRef: {}", 1), `missing required field "name"`, []string{"apply", "-f", "-"}},
			{"", `"absent" not found`, []string{"get", "thread", "absent"}},
			{"", "absent", []string{"get", "--raw", strings.Replace(raw, "orders", "absent", 1) + "messages"}},
			{`{"content":""}`, "content", []string{"create", "--raw", raw + "queue", "-f", "-"}},
			{"", "nothing is served at this path", []string{"get", "--raw", raw + "nothing"}},
		} {
			out, err := run(row.stdin, row.args...)
			Expect(err).To(HaveOccurred(), "%v: %s", row.args, out)
			Expect(out).To(ContainSubstring(row.says), "%v", row.args)
		}
		Expect(do(definitions, "delete", "-f", "-", "--wait=false")).To(ContainSubstring(`thread.skein.dev "orders" deleted`))
		Eventually(ctx, func(ctx context.Context) string { out, _ := run("", "get", "threads", "-o", "name"); return out }).WithContext(ctx).Should(BeEmpty())
	}, SpecTimeout(5*time.Minute))
})
