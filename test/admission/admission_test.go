package admission

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"sigs.k8s.io/yaml"
)

const config = "../../config"

func TestAdmission(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Admission")
}

// kind is a kind as its CRD has it.
type kind struct {
	name, resource string
	spec           apiextensionsv1.JSONSchemaProps
}

func kinds() []kind {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join(config, "crd", "bases", "*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(files).NotTo(BeEmpty())
	var out []kind
	for _, f := range files {
		data, err := os.ReadFile(f)
		Expect(err).NotTo(HaveOccurred())
		var crd apiextensionsv1.CustomResourceDefinition
		Expect(yaml.Unmarshal(data, &crd)).To(Succeed())
		out = append(out, kind{crd.Spec.Names.Kind, crd.Spec.Names.Plural, crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]})
	}
	return out
}

var secretive = regexp.MustCompile(`(?i)secret`)

// secretReferences returns the paths in a schema at which an object can name a Secret, such as spec.env[].valueFrom.secretKeyRef:
// selectors of a Secret's key under any field name, and fields with the word in their own name.
func secretReferences(path string, s apiextensionsv1.JSONSchemaProps) []string {
	if _, named := s.Properties["name"]; named && (secretive.MatchString(path[strings.LastIndex(path, ".")+1:]) || secretive.MatchString(s.Properties["key"].Description)) {
		return []string{path}
	}
	var out []string
	for name, p := range s.Properties {
		if secretive.MatchString(name) && p.Type == "string" {
			out = append(out, path+"."+name)
		}
		out = append(out, secretReferences(path+"."+name, p)...)
	}
	if s.Items != nil && s.Items.Schema != nil {
		out = append(out, secretReferences(path+"[]", *s.Items.Schema)...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		out = append(out, secretReferences(path+"{}", *s.AdditionalProperties.Schema)...)
	}
	slices.Sort(out)
	return out
}

// naming returns an object that names Secrets at a path and has nothing else.
func naming(k kind, path string, names ...string) *unstructured.Unstructured {
	var build func(steps []string) []any
	build = func(steps []string) []any {
		var out []any
		if len(steps) == 0 {
			for _, n := range names {
				out = append(out, map[string]any{"name": n, "key": "k"})
			}
			return out
		}
		inner := build(steps[1:])
		if field, list := strings.CutSuffix(steps[0], "[]"); list {
			return []any{map[string]any{field: inner}}
		}
		for _, i := range inner {
			out = append(out, map[string]any{strings.TrimSuffix(steps[0], "{}"): i})
		}
		return out
	}
	spec := build(strings.Split(path, ".")[1:])[0]
	return object(k.name, spec)
}

func object(kind string, spec any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "skein.dev/v1alpha1", "kind": kind, "metadata": map[string]any{"name": "x", "namespace": "team"}, "spec": spec}}
}

// compiled returns the policies of config/admission by name, as the API server runs them.
var compiled = sync.OnceValues(func() (map[string]validating.Validator, error) {
	found, err := policies(filepath.Join(config, "admission"))
	if err != nil {
		return nil, err
	}
	all := map[string]validating.Validator{}
	for name, p := range found {
		if all[name], err = compile(p); err != nil {
			return nil, err
		}
	}
	return all, nil
})

// refused returns what a policy answers to a user: nothing when it lets the request pass.
func refused(ctx context.Context, policy string, r *rights, resource string, o, old *unstructured.Unstructured) []string {
	GinkgoHelper()
	all, err := compiled()
	Expect(err).NotTo(HaveOccurred())
	out, err := ask(ctx, all[policy], r, resource, o, old)
	Expect(err).NotTo(HaveOccurred(), "%s costs too much, or cannot be evaluated, for %v", policy, o.Object)
	return out
}

var _ = Describe("the policies about authors", Label("K8S-04"), func() {
	It("finds each reference to a Secret that the schemas have", func(ctx SpecContext) {
		seen := 0
		for _, k := range kinds() {
			for _, path := range secretReferences("spec", k.spec) {
				seen++
				o := naming(k, path, "vault")
				Expect(refused(ctx, "skein-secrets", &rights{user: "eve"}, k.resource, o, nil)).To(ConsistOf(
					ContainSubstring(`this object names the Secret "vault": a user who names a Secret here must be allowed to get it, and the user "eve" cannot get it in the namespace "team"`)),
					"%s of %s names a Secret, and config/admission/secrets.yaml does not see it", path, k.resource)
				Expect(refused(ctx, "skein-secrets", &rights{user: "eve", may: []string{"get secrets other"}}, k.resource, o, nil)).To(HaveLen(1))
				Expect(refused(ctx, "skein-secrets", &rights{user: "eve", may: []string{"get secrets vault"}}, k.resource, o, nil)).To(BeEmpty())
				changed := naming(k, path, "second")
				Expect(refused(ctx, "skein-secrets", &rights{user: "eve", may: []string{"get secrets vault"}}, k.resource, changed, o)).To(ConsistOf(ContainSubstring(`"second"`)), "%s of %s", path, k.resource)
				all := &rights{user: "eve", may: []string{"get secrets"}}
				Expect(refused(ctx, "skein-secrets", all, k.resource, o, nil)).To(BeEmpty())
				Expect(all.checks).To(Equal([]string{"get secrets"}), "one check is enough for whoever may get all Secrets")

				By("allowing changes outside the spec, and the manager")
				labelled := o.DeepCopy()
				labelled.SetLabels(map[string]string{"team": "blue"})
				labelled.SetFinalizers([]string{"x"})
				nobody := &rights{user: "system:serviceaccount:kube-system:generic-garbage-collector"}
				Expect(refused(ctx, "skein-secrets", nobody, k.resource, labelled, o)).To(BeEmpty())
				Expect(nobody.checks).To(BeEmpty())
				Expect(refused(ctx, "skein-secrets", &rights{user: "system:serviceaccount:skein-system:skein-manager"}, k.resource, o, nil)).To(BeEmpty())
			}
		}
		Expect(seen).To(BeNumerically(">=", 18), "the walk of the schemas finds references")
	})

	It("looks at objects of every kind", func() {
		found, err := policies(filepath.Join(config, "admission"))
		Expect(err).NotTo(HaveOccurred())
		var want []string
		for _, k := range kinds() {
			want = append(want, k.resource)
		}
		Expect(found["skein-secrets"].Spec.MatchConstraints.ResourceRules[0].Resources).To(ConsistOf(want))
		for name, p := range found {
			Expect(p.Spec.FailurePolicy).To(HaveValue(BeEquivalentTo("Fail")), name)
		}
	})

	It("exempts the service account that config/manager runs the manager as", func() {
		data, err := os.ReadFile(filepath.Join(config, "rbac", "service_account.yaml"))
		Expect(err).NotTo(HaveOccurred())
		var account corev1.ServiceAccount
		Expect(yaml.Unmarshal(data, &account)).To(Succeed())
		found, err := policies(filepath.Join(config, "admission"))
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"skein-adoption", "skein-retention", "skein-secrets", "skein-users", "skein-work"} {
			Expect(found[name].Spec.MatchConditions[0].Expression).To(Equal(fmt.Sprintf("request.userInfo.username != 'system:serviceaccount:%s:%s'", account.Namespace, account.Name)))
		}
	})

	It("checks single Secrets up to a bound, within what CEL may cost", func(ctx SpecContext) {
		env := func(n int) map[string]any {
			var list []any
			for i := range n {
				list = append(list, map[string]any{"name": fmt.Sprint("V", i), "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": fmt.Sprint("s", i), "key": "k"}}})
			}
			return map[string]any{"env": list}
		}
		var each []string
		for i := range 100 {
			each = append(each, fmt.Sprint("get secrets s", i))
		}
		r := func() *rights { return &rights{user: "eve", may: each} }
		Expect(refused(ctx, "skein-secrets", r(), "threads", object("Thread", env(8)), nil)).To(BeEmpty())
		Expect(refused(ctx, "skein-secrets", r(), "threads", object("Thread", env(9)), nil)).To(ConsistOf(
			`this change names more than 8 Secrets, and single ones are checked up to 8: put the values into fewer Secrets, or let a user make it who may get all Secrets of the namespace "team"`))
		Expect(refused(ctx, "skein-secrets", &rights{user: "eve"}, "threads", object("Thread", env(100)), nil)).To(HaveLen(9), "the dearest request: nothing is allowed")
		Expect(refused(ctx, "skein-secrets", &rights{user: "eve", may: []string{"get secrets"}}, "threads", object("Thread", env(100)), nil)).To(BeEmpty())

		By("counting a Secret that is named a hundred times once")
		same := env(100)
		for _, e := range same["env"].([]any) {
			e.(map[string]any)["valueFrom"].(map[string]any)["secretKeyRef"].(map[string]any)["name"] = "s1"
		}
		few := r()
		Expect(refused(ctx, "skein-secrets", few, "threads", object("Thread", same), nil)).To(BeEmpty())
		Expect(few.checks).To(Equal([]string{"get secrets", "get secrets s1"}))

		By("comparing long lists on an update")
		template := map[string]any{"env": env(100)["env"], "threadTemplate": map[string]any{"spec": env(100)}}
		changed := object("ScheduledEffect", template).DeepCopy()
		_ = unstructured.SetNestedField(changed.Object, "x", "spec", "effect")
		Expect(refused(ctx, "skein-secrets", &rights{user: "eve"}, "scheduledeffects", changed, object("ScheduledEffect", template))).To(BeEmpty())
	})

	It("judges what an update changes", func(ctx SpecContext) {
		key := map[string]any{"secretKeyRef": map[string]any{"name": "vault", "key": "k"}}
		model := func(more map[string]any) *unstructured.Unstructured {
			spec := map[string]any{"provider": "openai", "model": "m", "endpoint": "https://a", "credentials": key, "maxRetries": int64(1)}
			for k, v := range more {
				spec[k] = v
			}
			return object("Model", spec)
		}
		tool := func(description, url string) *unstructured.Unstructured {
			return object("Tool", map[string]any{"description": description, "http": map[string]any{"url": url, "auth": map[string]any{"bearer": key}}})
		}
		gateway := func(agent, url string) *unstructured.Unstructured {
			return object("ThreadGateway", map[string]any{"agentRef": map[string]any{"name": agent}, "idProvider": map[string]any{"http": map[string]any{"url": url, "token": key["secretKeyRef"]}}})
		}
		env := func(typ string, more ...any) *unstructured.Unstructured {
			return object("Thread", map[string]any{"title": fmt.Sprint(len(more)), "env": append([]any{map[string]any{"name": "A", "type": typ, "valueFrom": key}}, more...)})
		}
		eve := &rights{user: "eve"}
		plain := map[string]any{"name": "B", "value": "1"}
		for _, c := range []struct {
			what    string
			o, old  *unstructured.Unstructured
			refused int
		}{
			{"models: where the key goes", model(map[string]any{"endpoint": "https://b"}), model(nil), 1},
			{"models: a header that goes with it", model(map[string]any{"headers": []any{map[string]any{"name": "X", "value": "y"}}}), model(nil), 1},
			{"models: without what was there", model(nil), model(map[string]any{"headers": []any{}}), 1},
			{"models: how often it is tried", model(map[string]any{"maxRetries": int64(5), "timeout": "5s"}), model(nil), 0},
			{"tools: where the token goes", tool("x", "https://b"), tool("x", "https://a"), 1},
			{"tools: what the model reads of it", tool("y", "https://a"), tool("x", "https://a"), 0},
			{"gateways: where the token of an id provider goes", gateway("a", "https://b"), gateway("a", "https://a"), 1},
			{"gateways: another agent", gateway("b", "https://a"), gateway("a", "https://a"), 0},
			{"threads: another variable", env("secret", plain), env("secret"), 0},
			{"threads: another type", env("text"), env("secret"), 1},
		} {
			resource := strings.ToLower(c.o.GetKind()) + "s"
			Expect(refused(ctx, "skein-secrets", eve, resource, c.o, c.old)).To(HaveLen(c.refused), c.what)
		}
	})

	It("requires the rights to read and to purge from a user who adopts retained data", func(ctx SpecContext) {
		const id = "0b0e8f0e-0000-4000-8000-000000000001"
		t := object("Thread", map[string]any{"threadID": id, "agentRef": map[string]any{"name": "a"}})
		Expect(refused(ctx, "skein-adoption", &rights{user: "eve"}, "threads", t, nil)).To(ConsistOf(
			ContainSubstring(`the user "eve" cannot get resource "threads/messages" of this name`), ContainSubstring(`the user "eve" cannot delete resource "retained" of this name`)))
		Expect(refused(ctx, "skein-adoption", &rights{user: "eve", may: []string{"get threads/messages"}}, "threads", t, nil)).To(HaveLen(1))
		Expect(refused(ctx, "skein-adoption", &rights{user: "eve", may: []string{"get threads/messages " + id, "delete retained " + id}}, "threads", t, nil)).To(BeEmpty())
		Expect(refused(ctx, "skein-adoption", &rights{user: "eve"}, "threads", object("Thread", map[string]any{"agentRef": map[string]any{"name": "a"}}), nil)).To(BeEmpty())
	})

	It("requires the right to purge from a user who ends the retention of a Thread's data", func(ctx SpecContext) {
		const id = "0b0e8f0e-0000-4000-8000-000000000001"
		thread := func(policy string) *unstructured.Unstructured {
			t := object("Thread", map[string]any{"deletionPolicy": policy})
			t.Object["status"] = map[string]any{"threadID": id}
			return t
		}
		eve := &rights{user: "eve"}
		Expect(refused(ctx, "skein-retention", eve, "threads", thread("Delete"), thread("Retain"))).To(ConsistOf(
			ContainSubstring(`the user "eve" cannot delete resource "retained"`)))
		left := thread("Retain")
		unstructured.RemoveNestedField(left.Object, "spec", "deletionPolicy")
		Expect(refused(ctx, "skein-retention", eve, "threads", left, thread("Retain"))).To(HaveLen(1), "Delete is the default")
		Expect(refused(ctx, "skein-retention", &rights{user: "eve", may: []string{"delete retained " + id}}, "threads", thread("Delete"), thread("Retain"))).To(BeEmpty())
		Expect(refused(ctx, "skein-retention", eve, "threads", thread("Retain"), thread("Delete"))).To(BeEmpty())
		Expect(refused(ctx, "skein-retention", eve, "threads", thread("Retain"), thread("Retain"))).To(BeEmpty(), "labellers pass")
		young := thread("Retain")
		delete(young.Object, "status")
		Expect(refused(ctx, "skein-retention", eve, "threads", thread("Delete"), young)).To(HaveLen(1), "a Thread without an id yet")
		Expect(refused(ctx, "skein-retention", &rights{user: "eve", may: []string{"delete retained"}}, "threads", thread("Delete"), young)).To(BeEmpty())

		By("counting the annotation like the policy")
		annotated := func(policy, value string) *unstructured.Unstructured {
			t := thread(policy)
			t.SetAnnotations(map[string]string{"skein.dev/retain": value, "other": "x"})
			return t
		}
		other := thread("Delete")
		other.SetAnnotations(map[string]string{"other": "x"})
		for _, without := range []*unstructured.Unstructured{thread("Delete"), other, annotated("Delete", "false"), left} {
			Expect(refused(ctx, "skein-retention", eve, "threads", without, annotated("Delete", "true"))).To(ConsistOf(
				ContainSubstring(`the user "eve" cannot delete resource "retained"`)), "%v", without.Object)
			Expect(refused(ctx, "skein-retention", &rights{user: "eve", may: []string{"delete retained " + id}}, "threads", without, annotated("Delete", "true"))).To(BeEmpty())
			Expect(refused(ctx, "skein-retention", eve, "threads", annotated("Delete", "true"), without)).To(BeEmpty())
		}
		deleting := func(t *unstructured.Unstructured) *unstructured.Unstructured {
			t.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1_900_000_000, 0)})
			t.SetFinalizers([]string{"skein.dev/purge"})
			return t
		}
		Expect(refused(ctx, "skein-retention", eve, "threads", deleting(thread("Delete")), deleting(annotated("Delete", "true")))).To(HaveLen(1), "the data is purged or kept at the end of the deletion")
		Expect(refused(ctx, "skein-retention", eve, "threads", annotated("Delete", "false"), annotated("Delete", "no"))).To(BeEmpty(), "only true retains")

		By("allowing changes that keep the data, and the exempt service accounts")
		Expect(refused(ctx, "skein-retention", eve, "threads", annotated("Delete", "true"), thread("Retain"))).To(BeEmpty())
		Expect(refused(ctx, "skein-retention", eve, "threads", thread("Retain"), annotated("Delete", "true"))).To(BeEmpty())
		Expect(refused(ctx, "skein-retention", eve, "threads", thread("Retain"), annotated("Retain", "true"))).To(BeEmpty())
		manager := &rights{user: "system:serviceaccount:skein-system:skein-manager"}
		Expect(refused(ctx, "skein-retention", manager, "threads", thread("Delete"), annotated("Delete", "true"))).To(BeEmpty())
		collector := &rights{user: "system:serviceaccount:kube-system:generic-garbage-collector"}
		orphaned := deleting(annotated("Delete", "true"))
		orphaned.SetFinalizers([]string{"skein.dev/purge", "foregroundDeletion"})
		Expect(refused(ctx, "skein-retention", collector, "threads", deleting(annotated("Delete", "true")), orphaned)).To(BeEmpty())
		Expect(collector.checks).To(BeEmpty())
	})

	It("keeps userID for those who may use it", func(ctx SpecContext) {
		t := object("Thread", map[string]any{"userID": "ada"})
		Expect(refused(ctx, "skein-users", &rights{user: "eve"}, "threads", t, nil)).To(ConsistOf(ContainSubstring(`to make threads of the user "ada" you need a right of its own: the user "eve" cannot use resource "users" of this name`)))
		Expect(refused(ctx, "skein-users", &rights{user: "eve", may: []string{"use users ada"}}, "threads", t, nil)).To(BeEmpty())
		Expect(refused(ctx, "skein-users", &rights{user: "eve", may: []string{"use users bob"}}, "threads", t, nil)).To(HaveLen(1))
		Expect(refused(ctx, "skein-users", &rights{user: "eve"}, "threads", object("Thread", map[string]any{}), nil)).To(BeEmpty())
		template := func(user string) *unstructured.Unstructured {
			return object("ScheduledEffect", map[string]any{"threadTemplate": map[string]any{"spec": map[string]any{"userID": user}}})
		}
		Expect(refused(ctx, "skein-users", &rights{user: "eve"}, "scheduledeffects", template("ada"), nil)).To(HaveLen(1))
		Expect(refused(ctx, "skein-users", &rights{user: "eve"}, "scheduledeffects", template("ada"), template("bob"))).To(HaveLen(1))
		other := template("ada")
		_ = unstructured.SetNestedField(other.Object, "@daily", "spec", "schedules")
		Expect(refused(ctx, "skein-users", &rights{user: "eve"}, "scheduledeffects", other, template("ada"))).To(BeEmpty(), "the user is as before")
	})
})
