package conformance

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// undecodable is an object of each kind that the manager's types cannot decode, with what its condition must say.
var undecodable = []struct{ kind, name, spec, says string }{
	{"Agent", "agent", `{sideA: {promptRef: {name: prompt}}, threadIdleExpiry: a week, limits: {maxSteps: many}}`,
		"spec.threadIdleExpiry: use a duration such as 10s, 5m or 1h30m; spec.limits.maxSteps: use a whole number"},
	{"Prompt", "prompt", `{text: 7, modelRef: {name: model}}`, "spec.text: use a string"},
	{"Model", "model", `{provider: scripted, script: {steps: none}, timeout: 2 minutes}`, "spec.timeout: use a duration such as 10s, 5m or 1h30m"},
	{"Tool", "tool", `{description: x, code: {inline: "export default () => 1"}, timeout: 10 seconds}`, "spec.timeout: use a duration such as 10s, 5m or 1h30m"},
	{"Effect", "effect", `{code: {inline: "export default () => 1"}, timeout: 1d}`, "spec.timeout: use a duration"},
	{"ThreadEndpoint", "endpoint", `{path: /x, code: {inline: "export default () => 1"}, timeout: [1]}`, "spec.timeout: use a duration"},
	{"ThreadGateway", "door", `{agentRef: {name: agent}, signingKeys: [{name: keys, key: k}], answerTimeout: soon}`, "spec.answerTimeout: use a duration"},
	{"Webhook", "told", `{url: "https://a.example/x", events: [run.ended], signingKeys: [{name: keys, key: k}], maxAttempts: many}`, "spec.maxAttempts: use a whole number"},
	{"WebhookReceiver", "takes", `{form: GitHub, signingKeys: [{name: keys, key: k}], agentRef: {name: agent}, maxBytes: "1"}`, "spec.maxBytes: use a whole number"},
	{"Thread", "thread", `{agentRef: {name: agent}, idleExpiry: 30d, limits: {maxCost: "1e-999999999"}, deletionPolicy: Delete}`, "spec.limits.maxCost: use a quantity"},
	{"Subagent", "subagent", `{parentRef: {name: thread}, agentRef: {name: agent}, name: x, blocking: "yes"}`, "spec.blocking: use true or false"},
	{"ScheduledEffect", "at", `{threadRef: {name: thread}, effect: effect, at: soon}`, `spec.at: "soon" is not a time: use one such as 2027-01-31T09:00:00Z`},
	{"ScheduledEffect", "after", `{threadRef: {name: thread}, effect: effect, after: "*/5 * * * *"}`, "spec.after: use a duration"},
	{"ThreadQuota", "quota", `{hard: {threads: many, bytes: plenty}}`, "; spec.hard.bytes: use a quantity"},
	{"SandboxPool", "pool", `{warm: two, idleTimeout: 300}`, "spec.warm: use a whole number"},
}

func undecodableKinds() (kinds []string) {
	for _, o := range undecodable {
		kinds = append(kinds, o.kind)
	}
	return kinds
}

func manifestOf(ns, kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: skein.dev/v1alpha1\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec: %s\n", kind, name, ns, spec)
}

// loosen takes the schemas away until the spec or its caller restores them: the API server then accepts every object, as
// it did before a schema was made stricter.
func loosen(ctx context.Context) (restore func(ctx context.Context)) {
	GinkgoHelper()
	restored := false
	restore = func(ctx context.Context) {
		GinkgoHelper()
		if !restored {
			_, err := cluster.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(harness.Root(), "config", "crd"))
			Expect(err).NotTo(HaveOccurred())
			restored = true
			// A new schema is in force a moment after it was written.
			Eventually(ctx, func() error {
				_, err := cluster.KubectlIn(ctx, manifestOf("default", "Tool", "probe", "{nothing: 1}"), "apply", "--dry-run=server", "-f", "-")
				return err
			}).Should(HaveOccurred())
		}
	}
	DeferCleanup(func(ctx SpecContext) { restore(ctx) }, NodeTimeout(patience))
	out, err := cluster.Kubectl(ctx, "get", "crd", "-l", "app.kubernetes.io/part-of=skein", "-o", "name")
	Expect(err).NotTo(HaveOccurred())
	for _, name := range strings.Fields(out) {
		_, err := cluster.Kubectl(ctx, "patch", name, "--type=json", "-p",
			`[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema","value":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}]`)
		Expect(err).NotTo(HaveOccurred())
	}
	return restore
}

// force puts objects past admission.
func force(ctx context.Context, ns string) {
	GinkgoHelper()
	for _, o := range undecodable {
		Eventually(ctx, func() error {
			_, err := cluster.KubectlIn(ctx, manifestOf(ns, o.kind, o.name, o.spec), "apply", "--server-side", "--validate=false", "-f", "-")
			return err
		}).Should(Succeed(), "%s %s", o.kind, o.name)
	}
}

// saysInvalid waits until every forced object says what is wrong with it: by an Event, and in its condition where the API
// server takes a status. It takes none while the type of a field is not the one that the schema says.
func saysInvalid(ctx context.Context, ns string, writable bool) {
	GinkgoHelper()
	for _, o := range undecodable {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(skeinv1.GroupVersion.WithKind(o.kind))
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: o.name}, u)).To(Succeed())
			list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
			if !writable && len(list) == 0 {
				_, err := cluster.Kubectl(ctx, "label", "-n", ns, strings.ToLower(o.kind), o.name, "touched=yes", "--overwrite", "--dry-run=server")
				g.Expect(err).To(MatchError(ContainSubstring("is invalid")), "the API server takes no write at all")
			} else {
				g.Expect(list).To(ContainElement(And(HaveKeyWithValue("type", "Ready"), HaveKeyWithValue("status", "False"), HaveKeyWithValue("reason", skeinv1.ReasonInvalidSpec),
					HaveKeyWithValue("message", ContainSubstring(o.says)))))
			}
			var events eventsv1.EventList
			g.Expect(cluster.Client.List(ctx, &events, client.InNamespace(ns))).To(Succeed())
			g.Expect(events.Items).To(ContainElement(And(HaveField("Regarding.Kind", o.kind), HaveField("Regarding.Name", o.name), HaveField("Reason", skeinv1.ReasonInvalidSpec),
				HaveField("Note", ContainSubstring(o.says)))))
		}).Should(Succeed(), "%s %s", o.kind, o.name)
	}
}

var _ = Describe("An object that the manager cannot decode", Serial, outages, Label("K8S-08"), func() {
	It("affects no other object, also after a restart, and recovers when corrected", func(ctx SpecContext) {
		ns := namespace(ctx)
		restore := loosen(ctx)
		force(ctx, ns)
		saysInvalid(ctx, ns, true)
		restore(ctx)
		kindsAreServed(ctx)

		By("restarting the manager, which finds more of them that the schemas refuse by now")
		manager.Kill()
		older := namespace(ctx)
		restore = loosen(ctx)
		force(ctx, older)
		restore(ctx)
		Expect(manager.Start(ctx)).To(Succeed())
		served(ctx)
		kindsAreServed(ctx)
		saysInvalid(ctx, ns, true)
		saysInvalid(ctx, older, false)

		By("correcting two of them")
		for _, o := range [][2]string{{"tool/tool", `{"spec":{"timeout":"10s"}}`}, {"scheduledeffect/at", ``}} {
			if o[1] == "" { // its spec cannot be changed
				_, err := cluster.Kubectl(ctx, "delete", "-n", ns, o[0])
				Expect(err).NotTo(HaveOccurred())
				continue
			}
			_, err := cluster.Kubectl(ctx, "patch", "-n", ns, o[0], "--type=merge", "-p", o[1])
			Expect(err).NotTo(HaveOccurred())
		}
		Eventually(ctx, func() (string, error) {
			return cluster.Kubectl(ctx, "get", "-n", ns, "tool/tool", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		}).Should(Equal("True"))

		By("deleting them all")
		_, err := cluster.Kubectl(ctx, "delete", "-n", ns, "--all", "--timeout=60s", "agents,prompts,models,tools,effects,threadendpoints,threadgateways,webhooks,webhookreceivers,subagents,scheduledeffects,sandboxpools,threadquotas,threads")
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(4*patience))
})
