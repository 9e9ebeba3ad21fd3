package conformance

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// author is a kind of user of docs/security.md: the ClusterRoles that he has in the namespace, and what else he may there.
type author struct {
	roles []string
	also  []rbacv1.PolicyRule
}

var authors = map[string]author{
	"viewer":                              {roles: []string{"skein-viewer"}},
	"editor":                              {roles: []string{"skein-viewer", "skein-editor"}},
	"editor, `get secrets`":               {roles: []string{"skein-viewer", "skein-editor"}, also: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"vault"}, Verbs: []string{"get"}}}},
	"editor, `skein-conversation-writer`": {roles: []string{"skein-viewer", "skein-editor", "skein-conversation-writer"}},
	"editor, `skein-user-delegate`":       {roles: []string{"skein-viewer", "skein-editor", "skein-user-delegate"}},
	"`admin` of the namespace":            {roles: []string{"admin"}},
	"cluster admin":                       {},
}

// declaration is an object of Skein from YAML without apiVersion and name.
func declaration(doc string) client.Object {
	GinkgoHelper()
	var head struct{ Kind string }
	Expect(yaml.Unmarshal([]byte(doc), &head)).To(Succeed())
	o, err := harness.Scheme().New(skeinv1.GroupVersion.WithKind(head.Kind))
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.UnmarshalStrict([]byte(doc), o)).To(Succeed())
	out := o.(client.Object)
	out.SetName("declared")
	return out
}

const (
	vaultKey = `secretKeyRef: {name: vault, key: k}`
	vaultEnv = `env: [{name: A, valueFrom: {` + vaultKey + `}}]`
	openai   = `{kind: Model, spec: {provider: openai, model: m, endpoint: "https://models.example.com/v1"`
)

// declared are the objects of each row of docs/security.md.
var declared = map[string][]string{
	"an Agent, a Prompt, a Tool or a Thread without Secrets": {
		`{kind: Agent, spec: {sideA: {promptRef: {name: p}}}}`, `{kind: Prompt, spec: {text: t, modelRef: {name: m}}}`,
		`{kind: Tool, spec: {description: d, http: {url: "https://example.com", method: GET}}}`, `{kind: Thread, spec: {agentRef: {name: a}}}`,
	},
	"a Model with `credentials`": {openai + `, credentials: {` + vaultKey + `}}}`},
	"a Tool with a Secret in `auth`, `headers` or `signing`": {
		`{kind: Tool, spec: {description: d, http: {url: "https://example.com", auth: {bearer: {` + vaultKey + `}}}}}`,
		`{kind: Tool, spec: {description: d, http: {url: "https://example.com", headers: [{name: X-Key, ` + vaultKey + `}]}}}`,
		`{kind: Tool, spec: {description: d, http: {url: "https://example.com", signing: {` + vaultKey + `}}}}`,
		`{kind: Tool, spec: {description: d, mcp: {url: "https://example.com", auth: {bearer: {` + vaultKey + `}}}}}`,
	},
	"`env` from a Secret, of an Agent, a Prompt, a Thread or a ScheduledEffect": {
		`{kind: Agent, spec: {sideA: {promptRef: {name: p}}, ` + vaultEnv + `}}`, `{kind: Prompt, spec: {text: t, modelRef: {name: m}, ` + vaultEnv + `}}`,
		`{kind: Thread, spec: {agentRef: {name: a}, ` + vaultEnv + `}}`, `{kind: ScheduledEffect, spec: {effect: e, after: 1h, ` + vaultEnv + `}}`,
		`{kind: ScheduledEffect, spec: {after: 1h, threadTemplate: {spec: {agentRef: {name: a}, message: m, ` + vaultEnv + `}}}}`,
	},
	"a SandboxPool with `imagePullSecrets`": {`{kind: SandboxPool, spec: {warm: 0, imagePullSecrets: [{name: vault}]}}`},
	"a SandboxPool with `image`, `tolerations`, `priorityClassName`, `runtimeClassName` or annotations of pods": {
		`{kind: SandboxPool, spec: {image: "registry.example.com/sandbox@sha256:0123"}}`, `{kind: SandboxPool, spec: {tolerations: [{operator: Exists}]}}`,
		`{kind: SandboxPool, spec: {priorityClassName: high}}`, `{kind: SandboxPool, spec: {runtimeClassName: own}}`, `{kind: SandboxPool, spec: {podMetadata: {annotations: {a: b}}}}`,
	},
	"a SandboxPool with other settings":                      {`{kind: SandboxPool, spec: {warm: 2, podMetadata: {labels: {a: b}}}}`},
	"a Thread with `userID`":                                 {`{kind: Thread, spec: {agentRef: {name: a}, userID: ada}}`},
	"a ScheduledEffect that makes threads with `userID`":     {`{kind: ScheduledEffect, spec: {after: 1h, threadTemplate: {spec: {agentRef: {name: a}, message: m, userID: ada}}}}`},
	"a ScheduledEffect without a thread":                     {`{kind: ScheduledEffect, spec: {effect: e, after: 1h}}`},
	"a ScheduledEffect with `threadRef` or `threadSelector`": {`{kind: ScheduledEffect, spec: {effect: e, after: 1h, threadRef: {name: t}}}`, `{kind: ScheduledEffect, spec: {message: {content: m}, after: 1h, threadSelector: {matchLabels: {a: b}}}}`},
	"a Subagent":               {`{kind: Subagent, spec: {parentRef: {name: t}, agentRef: {name: a}, name: child}}`},
	"a Thread with `forkFrom`": {`{kind: Thread, spec: {agentRef: {name: a}, forkFrom: {threadRef: {name: t}}}}`},
	"a ThreadGateway":          {`{kind: ThreadGateway, spec: {agentRef: {name: a}, signingKeys: [{name: vault, key: k}]}}`},
	"another `endpoint` for a Model that has `credentials`":                           nil,
	"labels on a Model that has `credentials`":                                        nil,
	"`deletionPolicy: Delete` for a Thread that has `Retain`":                         nil,
	"a Thread without the annotation `skein.dev/retain` that it had":                  nil,
	"`suspend: true` or other times, for a ScheduledEffect that has `threadSelector`": nil,
	"another `message` for a ScheduledEffect that has `threadSelector`":               nil,
}

var _ = Describe("What authors may declare", Label("K8S-04"), func() {
	It("is what the table in docs/security.md says, for each kind of user", func(ctx SpecContext) {
		ns := namespace(ctx)
		for _, file := range []string{"viewer_role.yaml", "editor_role.yaml", "conversation_writer_role.yaml", "user_delegate_role.yaml"} {
			_, err := cluster.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(harness.Root(), "config", "rbac", file))
			Expect(err).NotTo(HaveOccurred())
		}
		model := declaration(declared["a Model with `credentials`"][0]).(*skeinv1.Model)
		model.Namespace, model.Name = ns, "existing"
		retained := declaration(`{kind: Thread, spec: {agentRef: {name: a}, deletionPolicy: Retain}}`).(*skeinv1.Thread)
		retained.Namespace, retained.Name = ns, "retained"
		annotated := declaration(`{kind: Thread, spec: {agentRef: {name: a}}}`).(*skeinv1.Thread)
		annotated.Namespace, annotated.Name, annotated.Annotations = ns, "annotated", map[string]string{skeinv1.AnnotationRetain: "true"}
		scheduled := declaration(`{kind: ScheduledEffect, spec: {message: {content: m}, schedules: ["@yearly"], threadSelector: {matchLabels: {a: b}}}}`).(*skeinv1.ScheduledEffect)
		scheduled.Namespace, scheduled.Name = ns, "scheduled"
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "vault"}, StringData: map[string]string{"k": "v"}}, model, retained, annotated, scheduled)

		clients := map[string]client.Client{}
		for name, a := range authors {
			user := regexp.MustCompile(`[^a-z]+`).ReplaceAllString(name, "-") + "-of-" + ns
			subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
			bind := func(kind, role string) {
				create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "author-"}, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}})
			}
			for _, r := range a.roles {
				bind("ClusterRole", r)
			}
			if a.also != nil {
				role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "author-"}, Rules: a.also}
				create(ctx, role)
				bind("Role", role.Name)
			}
			cfg := rest.CopyConfig(cluster.Config)
			cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
			if name == "cluster admin" {
				cfg.Impersonate.Groups = append(cfg.Impersonate.Groups, "system:masters")
			}
			var err error
			clients[name], err = client.New(cfg, client.Options{Scheme: harness.Scheme()})
			Expect(err).NotTo(HaveOccurred())
		}
		// may declares every object of a row, without effect, and says whether all are taken or all are refused.
		may := func(ctx context.Context, c client.Client, row string) func(Gomega) string {
			return func(g Gomega) string {
				var answers []string
				answer := func(err error) {
					g.Expect(err).To(Or(BeNil(), Satisfy(apierrors.IsForbidden)), row)
					if err == nil {
						answers = append(answers, "yes")
						return
					}
					answers = append(answers, "no")
				}
				switch {
				case strings.HasPrefix(row, "another `endpoint`"):
					o := model.DeepCopy()
					o.Spec.Endpoint = "https://thief.example.com/v1"
					answer(c.Patch(ctx, o, client.MergeFrom(model), client.DryRunAll))
				case strings.HasPrefix(row, "`suspend"):
					for _, spec := range []string{`{"suspend":true}`, `{"schedules":["@monthly"],"timeZone":"Europe/Berlin"}`} {
						patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))
						answer(c.Patch(ctx, scheduled.DeepCopy(), patch, client.DryRunAll))
					}
				case strings.HasPrefix(row, "another `message`"):
					patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"message":{"content":"other"}}}`))
					answer(c.Patch(ctx, scheduled.DeepCopy(), patch, client.DryRunAll))
				case strings.HasPrefix(row, "labels"):
					o := model.DeepCopy()
					o.Labels = map[string]string{"team": "blue"}
					answer(c.Patch(ctx, o, client.MergeFrom(model), client.DryRunAll))
				case strings.HasPrefix(row, "`deletionPolicy"):
					patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deletionPolicy":"Delete"}}`))
					answer(c.Patch(ctx, retained.DeepCopy(), patch, client.DryRunAll))
				case strings.HasPrefix(row, "a Thread without the annotation"):
					o := annotated.DeepCopy()
					o.Annotations = nil
					answer(c.Patch(ctx, o, client.MergeFrom(annotated), client.DryRunAll))
				default:
					g.Expect(declared).To(HaveKey(row), "docs/security.md has a row that this test does not know")
					for _, doc := range declared[row] {
						o := declaration(doc)
						o.SetNamespace(ns)
						answer(c.Create(ctx, o, client.DryRunAll))
					}
				}
				for _, a := range answers[1:] {
					g.Expect(a).To(Equal(answers[0]), "%s: %v", row, answers)
				}
				return answers[0]
			}
		}
		page, err := os.ReadFile(filepath.Join(harness.Root(), "docs", "security.md"))
		Expect(err).NotTo(HaveOccurred())
		var columns []string
		rows := map[string]bool{}
		for line := range strings.Lines(string(page)) {
			if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
				continue
			}
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			if columns == nil {
				columns = cells
				continue
			}
			if len(cells) != len(columns) {
				break
			}
			rows[cells[0]] = true
			for i, want := range cells[1:] {
				Expect(clients).To(HaveKey(columns[i+1]))
				Eventually(ctx, may(ctx, clients[columns[i+1]], cells[0])).Should(Equal(want), "%s: %s", columns[i+1], cells[0])
			}
		}
		for row := range declared {
			Expect(rows).To(HaveKey(row), "docs/security.md lacks a row")
		}
		Expect(columns).To(HaveLen(len(authors) + 1))

		By("saying what is missing")
		o := declaration(declared["a Model with `credentials`"][0])
		o.SetNamespace(ns)
		Expect(clients["editor"].Create(ctx, o)).To(MatchError(And(ContainSubstring(`this object names the Secret "vault"`), ContainSubstring(`cannot get it in the namespace "`+ns+`"`))))
	}, SpecTimeout(4*patience))

	It("is checked by policies whose types fit the schemas", func(ctx SpecContext) {
		out, err := cluster.Kubectl(ctx, "get", "validatingadmissionpolicies", "-o", `jsonpath={range .items[*]}{.metadata.name}{" "}{.status.typeChecking}{"\n"}{end}`)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).NotTo(ContainSubstring("expressionWarnings"))
	}, SpecTimeout(patience))
})
