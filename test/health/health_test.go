package health_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/test/health"
)

const root = "../.."

func TestHealth(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Health")
}

// set is one condition that a controller sets.
type set struct {
	kind    string
	status  metav1.ConditionStatus
	reason  string
	message string
}

func ready(reason, message string) set {
	return set{skeinv1.ConditionReady, metav1.ConditionTrue, reason, message}
}

func unready(reason, message string) set {
	return set{skeinv1.ConditionReady, metav1.ConditionFalse, reason, message}
}

// object is one of a kind after a controller set these conditions.
func object(kind string, sets []set, edit ...func(status map[string]any)) *unstructured.Unstructured {
	GinkgoHelper()
	var list []metav1.Condition
	w := conditions.Writer{List: &list, Generation: 2, Now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	for _, s := range sets {
		w.Set(s.kind, s.status, s.reason, s.message)
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&skeinv1.DefinitionStatus{ObservedGeneration: 2, Conditions: list})
	Expect(err).NotTo(HaveOccurred())
	for _, f := range edit {
		f(status)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": skeinv1.GroupVersion.String(), "kind": kind,
		"metadata": map[string]any{"name": "x", "generation": int64(2)},
		"status":   status,
	}}
}

func phase(p string) func(map[string]any) {
	return func(status map[string]any) { status["phase"] = p }
}

var _ = Describe("Health", Label("K8S-01"), func() {
	var scripts map[string]string
	BeforeEach(func() {
		var err error
		scripts, err = health.ArgoScripts(root)
		Expect(err).NotTo(HaveOccurred())
	})
	argo := func(o *unstructured.Unstructured) (string, string) {
		GinkgoHelper()
		script := scripts[health.ArgoKey(o)]
		Expect(script).NotTo(BeEmpty(), "there is no health check for %s", o.GetKind())
		status, message, err := health.Argo(script, o)
		Expect(err).NotTo(HaveOccurred())
		return status, message
	}

	It("has a check for every kind, in a ConfigMap key that Kubernetes takes", func() {
		files, err := filepath.Glob(root + "/config/crd/bases/*.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(scripts).To(HaveLen(len(files)))
		for _, f := range files {
			b, err := os.ReadFile(f)
			Expect(err).NotTo(HaveOccurred())
			_, kind, _ := strings.Cut(string(b), "\n    kind: ")
			kind, _, _ = strings.Cut(kind, "\n")
			Expect(scripts).To(HaveKey("resource.customizations.health.skein.dev_" + kind))
		}
	})

	It("is in progress for an object of any kind that no controller has seen", func() {
		for key := range scripts {
			kind := key[strings.LastIndex(key, "_")+1:]
			o := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": skeinv1.GroupVersion.String(), "kind": kind, "metadata": map[string]any{"name": "x", "generation": int64(1)},
				"status": map[string]any{"observedGeneration": int64(-1)}, // as the CRD's default has it
			}}
			verdict, _ := health.KStatus(o)
			Expect(verdict).To(Equal(health.InProgress), kind)
			status, _ := argo(o)
			Expect(status).To(Equal("Progressing"), kind)
			delete(o.Object, "status") // an object from before that default
			status, _ = argo(o)
			Expect(status).To(Equal("Progressing"), kind)
		}
	})

	It("is in progress for a spec that was edited a moment ago", func() {
		o := object("Tool", []set{ready(skeinv1.ReasonReady, "")})
		o.SetGeneration(3)
		verdict, _ := health.KStatus(o)
		Expect(verdict).To(Equal(health.InProgress))
		status, _ := argo(o)
		Expect(status).To(Equal("Progressing"))
	})

	DescribeTable("is read alike by kstatus and Argo CD", func(o *unstructured.Unstructured, kstatus, argocd, text string) {
		verdict, _ := health.KStatus(o)
		Expect(verdict).To(Equal(kstatus))
		status, message := argo(o)
		Expect(status).To(Equal(argocd))
		Expect(message).To(ContainSubstring(text))
	},
		Entry("a Tool that works", object("Tool", []set{ready(skeinv1.ReasonReady, "")}), health.Current, "Healthy", ""),
		Entry("a Tool that does not compile", object("Tool", []set{unready(skeinv1.ReasonCompileFailed, "t.ts:1:2: oops")}), health.Failed, "Degraded", "t.ts:1:2"),
		Entry("a Tool that was mended", object("Tool", []set{unready(skeinv1.ReasonCompileFailed, "oops"), ready(skeinv1.ReasonReady, "")}), health.Current, "Healthy", ""),
		Entry("a Tool with code that cannot run", object("Tool", []set{unready(skeinv1.ReasonInvalidCode, "nanoid")}), health.Failed, "Degraded", "nanoid"),
		Entry("a Tool whose address is not allowed yet", object("Tool", []set{unready(skeinv1.ReasonAddressNotAllowed, "annotate")}), health.InProgress, "Progressing", "annotate"),
		Entry("a Tool with a forbidden address", object("Tool", []set{unready(skeinv1.ReasonAddressForbidden, "metadata")}), health.Failed, "Degraded", "metadata"),
		Entry("a Model whose Secret is missing", object("Model", []set{unready(skeinv1.ReasonReferenceNotFound, "Secret")}), health.InProgress, "Progressing", "Secret"),
		Entry("a Prompt that lists a Prompt as a tool which is none", object("Prompt", []set{unready(skeinv1.ReasonNotExposed, "exposeAsTool")}), health.Failed, "Degraded", "exposeAsTool"),
		Entry("a Prompt that includes itself", object("Prompt", []set{unready(skeinv1.ReasonIncludeCycle, "circle")}), health.Failed, "Degraded", "circle"),
		Entry("an Agent whose Prompt is not ready", object("Agent", []set{unready(skeinv1.ReasonReferenceNotReady, "Prompt")}), health.InProgress, "Progressing", "Prompt"),
		Entry("an Effect that Skein failed to check", object("Effect", []set{unready(skeinv1.ReasonInternalError, "later")}), health.InProgress, "Progressing", "later"),
		Entry("an endpoint whose path is taken", object("ThreadEndpoint", []set{unready(skeinv1.ReasonPathTaken, "older")}), health.Failed, "Degraded", "older"),
		Entry("a Thread at rest", object("Thread", []set{ready(skeinv1.ReasonReady, "")}, phase("Idle")), health.Current, "Healthy", ""),
		Entry("a Thread with arguments that do not fit", object("Thread", []set{unready(skeinv1.ReasonInvalidArguments, "language")}), health.Failed, "Degraded", "language"),
		Entry("a Thread whose agent is missing", object("Thread", []set{unready(skeinv1.ReasonReferenceNotFound, "Agent")}), health.InProgress, "Progressing", "Agent"),
		Entry("a Thread that works", object("Thread", []set{ready(skeinv1.ReasonReady, ""), {skeinv1.ConditionExecuting, metav1.ConditionTrue, skeinv1.ReasonRunning, ""}}, phase("Running")), health.Current, "Healthy", ""),
		Entry("a Thread that waits for an approval", object("Thread", []set{ready(skeinv1.ReasonReady, ""), {skeinv1.ConditionExecuting, metav1.ConditionTrue, skeinv1.ReasonWaitingForApproval, "pay"}}, phase("Waiting")), health.Current, "Suspended", "pay"),
		Entry("a Thread that waits for a variable", object("Thread", []set{ready(skeinv1.ReasonReady, ""), {skeinv1.ConditionExecuting, metav1.ConditionTrue, skeinv1.ReasonEnvMissing, "TOKEN"}}, phase("Waiting")), health.Current, "Suspended", "TOKEN"),
		Entry("a parked Thread", object("Thread", []set{ready(skeinv1.ReasonReady, "")}, phase("Parked")), health.Current, "Suspended", "wait"),
		Entry("a Thread that has ended", object("Thread", []set{ready(skeinv1.ReasonReady, ""), {skeinv1.ConditionTerminated, metav1.ConditionTrue, skeinv1.ReasonTerminatedByRequest, ""}}, phase("Terminated")), health.Current, "Healthy", "ended"),
		Entry("a Subagent that is being made", object("Subagent", []set{unready(skeinv1.ReasonProgressing, "being made")}), health.InProgress, "Progressing", "being made"),
		Entry("a Subagent that works", object("Subagent", []set{ready(skeinv1.ReasonReady, "")}), health.Current, "Healthy", ""),
		Entry("a Subagent that has ended", object("Subagent", []set{ready(skeinv1.ReasonReady, ""), {skeinv1.ConditionTerminated, metav1.ConditionTrue, skeinv1.ReasonSessionEnded, ""}}), health.Current, "Healthy", "ended"),
		Entry("an effect that waits for its time", object("ScheduledEffect", []set{ready(skeinv1.ReasonReady, ""), {skeinv1.ConditionComplete, metav1.ConditionFalse, skeinv1.ReasonPending, ""}}), health.Current, "Healthy", ""),
		Entry("an effect that failed", object("ScheduledEffect", []set{unready(skeinv1.ReasonFailed, "the handler failed"), {skeinv1.ConditionComplete, metav1.ConditionTrue, skeinv1.ReasonFailed, "no such file"}}), health.Failed, "Degraded", "no such file"),
		Entry("an effect that has succeeded", object("ScheduledEffect", []set{ready(skeinv1.ReasonReady, ""), {skeinv1.ConditionComplete, metav1.ConditionTrue, skeinv1.ReasonSucceeded, ""}}), health.Current, "Healthy", "Succeeded"),
		Entry("a warm pool", object("SandboxPool", []set{ready(skeinv1.ReasonWarm, "")}), health.Current, "Healthy", ""),
		Entry("a pool that starts pods", object("SandboxPool", []set{unready(skeinv1.ReasonScaling, "1 of 2")}), health.InProgress, "Progressing", "1 of 2"),
		Entry("a pool whose image cannot be had", object("SandboxPool", []set{unready(skeinv1.ReasonImageUnavailable, "pull")}), health.InProgress, "Degraded", "pull"),
		Entry("a pool whose pods are refused", object("SandboxPool", []set{unready(skeinv1.ReasonPodsRefused, "policy")}), health.Failed, "Degraded", "policy"),
	)
})
