package conformance

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// household is a namespace with a parent that waits for its child, which waits for approval; files, values, variables, a title that code
// set, and effects that have fired, are due later, and come again.
func household(ctx SpecContext, ns string) (parent *harness.Thread, child string) {
	GinkgoHelper()
	worker := harness.Prompt(ns, "worker", "worker", "builtin:kv")
	worker.Spec.Tools[0].RequiresApproval = true
	create(ctx,
		harness.Scripted(ns, "parent", harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "add 2 and 3", "name": "Sum"})),
			harness.After("subagent_create", harness.Answer("the child said: {{ .Last.Content }}")), harness.Echo()),
		harness.Prompt(ns, "parent", "parent", "builtin:subagents"),
		harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) {
			s.Subagents = []skeinv1.AgentSubagent{helper(func(s *skeinv1.AgentSubagent) { s.Blocking, s.Resumable = true, true })}
		}),
		harness.Scripted(ns, "worker", harness.On("add", harness.Calls("set_value", map[string]any{"key": "sum", "value": 5})), harness.After("set_value", harness.Answer("it is 5"))),
		worker, harness.Agent(ns, "worker", "worker"),
		harness.NewThread(ns, "thread", "parent"),
	)
	parent = ready(ctx, cluster.Thread(ns, "thread"))
	say(ctx, parent, 1, "hello")
	t := golang(parent)
	Expect(parent.WriteFile(ctx, "/notes/a.txt", "text/plain", []byte("kept"))).To(Succeed())
	Expect(parent.SetValue(ctx, "color", `"blue"`)).To(Succeed())
	Expect(t.SetState(ctx, "step", 3)).To(Succeed())
	Expect(t.SetEnv(ctx, "REGION", "north", "text")).To(Succeed())
	_, err := t.Update(ctx, runtimev1.ThreadPatch{Title: ptr.To("found out later")})
	Expect(err).NotTo(HaveOccurred())
	tick := func(name, text string, edit func(*skeinv1.ScheduledEffectSpec)) {
		spec := skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: "thread"}, Message: &skeinv1.EffectMessage{Content: text, Silent: true}}
		edit(&spec)
		create(ctx, scheduled(ns, name, spec))
	}
	tick("fired", "tick", func(s *skeinv1.ScheduledEffectSpec) {
		s.After, s.TTLSecondsAfterFinished = &metav1.Duration{}, ptr.To[int32](86400)
	})
	tick("later", "later", func(s *skeinv1.ScheduledEffectSpec) { s.After = &metav1.Duration{Duration: 24 * time.Hour} })
	tick("hourly", "created", func(s *skeinv1.ScheduledEffectSpec) { s.Schedules, s.RunOnCreation = []string{"@every 24h"}, true })
	Eventually(ctx, func(g Gomega) {
		g.Expect(everyText(ctx, g, parent)).To(ContainElements("user: tick", "user: created"))
		var fired skeinv1.ScheduledEffect
		g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "fired"}, &fired)).To(Succeed())
		g.Expect(fired.Status.Phase).To(Equal("Finished"))
	}).Should(Succeed())
	Expect(parent.Say(ctx, "go")).To(Succeed())
	child = onlyChild(ctx, ns).Name
	awaiting(ctx, golang(cluster.Thread(ns, child)), 1)
	Eventually(ctx, func(g Gomega) {
		runs, err := t.Runs(ctx, runtimeclient.Page{Limit: 1})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(runs.Runs).To(HaveExactElements(HaveField("Status", "waiting")))
	}).Should(Succeed())
	return parent, child
}

// heard returns all messages of a thread, silent ones too.
func everyText(ctx context.Context, g Gomega, t *harness.Thread) []string {
	page, err := t.Page(ctx, "includeSilent=true&limit=1000&order=asc")
	g.Expect(err).NotTo(HaveOccurred())
	return texts(page.Messages)
}

// facts returns what a person sees of a household, in a form to be compared.
func facts(ctx SpecContext, ns, child string) map[string]any {
	GinkgoHelper()
	g := NewWithT(GinkgoT())
	out := map[string]any{}
	for _, name := range []string{"thread", child} {
		h := cluster.Thread(ns, name)
		t := golang(h)
		out[name+" messages"] = everyText(ctx, g, h)
		rec := must(t.Get(ctx))
		out[name+" record"] = []any{rec.ThreadID, rec.AgentID, rec.Title, rec.MessageCount, rec.QueuedCount, rec.CreatedAt}
		out[name+" runs"] = must(t.Runs(ctx, runtimeclient.Page{})).Runs
		out[name+" env"] = must(t.ListEnv(ctx, runtimeclient.Page{})).Variables
	}
	t := golang(cluster.Thread(ns, "thread"))
	out["file"] = string(must(cluster.Thread(ns, "thread").ReadFile(ctx, "/notes/a.txt")))
	out["value"] = must(cluster.Thread(ns, "thread").Value(ctx, "color"))
	out["state"] = must(t.State(ctx, runtimeclient.Page{})).Entries
	out["children"] = must(t.Children(ctx, runtimeclient.Page{})).Children
	out["approvals"] = must(golang(cluster.Thread(ns, child)).Approvals(ctx, runtimeclient.Page{})).Approvals
	out["usage"] = must(t.Usage(ctx, true))
	return out
}

// goesOnAs checks that a restored household continues where it was.
func goesOnAs(ctx SpecContext, ns, child string, before map[string]any) {
	GinkgoHelper()
	after := facts(ctx, ns, child)
	for what, was := range before {
		Expect(must(json.Marshal(after[what]))).To(MatchJSON(must(json.Marshal(was))), what)
	}
	worker := golang(cluster.Thread(ns, child))
	_, err := worker.Approve(ctx, must(worker.Approvals(ctx, runtimeclient.Page{})).Approvals[0].ToolCallID, "", nil)
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, func(g Gomega) {
		g.Expect(everyText(ctx, g, cluster.Thread(ns, "thread"))).To(ContainElement(And(HavePrefix("assistant: the child said: "), ContainSubstring("it is 5"))))
		all := strings.Join(everyText(ctx, g, cluster.Thread(ns, "thread")), "\n")
		g.Expect(strings.Count(all, "user: tick")).To(Equal(1), "what fired does not fire again")
		g.Expect(strings.Count(all, "user: created")).To(Equal(1))
		var later skeinv1.ScheduledEffect
		g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "later"}, &later)).To(Succeed())
		g.Expect(later.Status.Phase).To(BeElementOf("Active", "Pending"))
		g.Expect(later.Annotations).NotTo(HaveKey(skeinv1.AnnotationRestoring))
	}).Should(Succeed())
	parent := must(cluster.Thread(ns, "thread").Object(ctx))
	subs := subagents(ctx, ns)
	Expect(subs).To(HaveLen(1))
	Expect(metav1.IsControlledBy(&subs[0], parent)).To(BeTrue())
	Expect(metav1.IsControlledBy(must(cluster.Thread(ns, child).Object(ctx)), &subs[0])).To(BeTrue())
	Expect(parent.Spec.ThreadID).NotTo(Equal(string(parent.UID)))
	Expect(cluster.Thread(ns, "thread").Say(ctx, "and now?")).To(Succeed())
	Eventually(ctx, func(g Gomega) {
		g.Expect(everyText(ctx, g, cluster.Thread(ns, "thread"))).To(ContainElement("assistant: echo: and now?"))
	}).Should(Succeed())
}

var _ = Describe("A backup", Label("K8S-09"), Serial, outages, func() {
	var folder, file, passphrase string
	BeforeEach(func() {
		folder = GinkgoT().TempDir()
		file, passphrase = filepath.Join(folder, "backup.tar.gz"), filepath.Join(folder, "passphrase")
		Expect(os.WriteFile(passphrase, []byte("correct horse battery\n"), 0o600)).To(Succeed())
	})

	It("is restored into another installation, with another database and other keys, where objects have new UIDs", func(ctx SpecContext) {
		ns, into := namespace(ctx), namespace(ctx)
		_, child := household(ctx, ns)
		before := facts(ctx, ns, child)
		out, err := cluster.Plugin(ctx, "-n", ns, "backup", "-o", file, "--passphrase-file", passphrase)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(And(ContainSubstring("2 threads"), ContainSubstring("digest sha256:")))
		Expect(facts(ctx, ns, child)).To(HaveLen(len(before)), "the manager goes on")

		_, _, options := postgresFor(ctx, into)
		o := options()
		o.Args = append(o.Args, "--env-key-secret=keys-"+into)
		m, err := cluster.NewManager(o)
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Start(ctx)).To(Succeed())
		DeferCleanup(m.Stop)
		served(ctx)

		restore := []string{"restore", file, "--namespace-map", ns + "=" + into, "--secret", "keys-" + into}
		_, err = cluster.Plugin(ctx, restore...)
		Expect(err).To(MatchError(ContainSubstring("sealed under keys that this installation does not have")))
		Expect(api().Retained(ctx, into, "", 0)).To(HaveField("Threads", BeEmpty()))
		_, err = cluster.Plugin(ctx, append(restore, "--dry-run", "--passphrase-file", passphrase)...)
		Expect(err).NotTo(HaveOccurred())
		var threads skeinv1.ThreadList
		Expect(cluster.Client.List(ctx, &threads, client.InNamespace(into))).To(Succeed())
		Expect(threads.Items).To(BeEmpty())
		out, err = cluster.Plugin(ctx, append(restore, "--passphrase-file", passphrase)...)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring(into + ": restored"))
		_, err = cluster.Plugin(ctx, append(restore, "--passphrase-file", passphrase)...)
		Expect(err).NotTo(HaveOccurred(), "a repeat changes nothing")
		goesOnAs(ctx, into, child, before)
	}, SpecTimeout(5*time.Minute))

	It("replaces what was deleted, and nothing that is there; one that is not whole is refused", func(ctx SpecContext) {
		ns := namespace(ctx)
		parent, child := household(ctx, ns)
		before := facts(ctx, ns, child)
		_, err := cluster.Plugin(ctx, "-n", ns, "backup", "-o", file)
		Expect(err).NotTo(HaveOccurred())

		_, err = cluster.Plugin(ctx, "restore", file)
		Expect(err).To(MatchError(And(ContainSubstring("are stored here already"), ContainSubstring("nothing was restored"))))
		data := must(os.ReadFile(file))
		broken := filepath.Join(folder, "broken.tar.gz")
		for _, bytes := range [][]byte{data[:len(data)/2], data[:len(data)-1], append(append([]byte{}, data[:len(data)/2]...), append([]byte{data[len(data)/2] ^ 1}, data[len(data)/2+1:]...)...)} {
			Expect(os.WriteFile(broken, bytes, 0o600)).To(Succeed())
			_, err = cluster.Plugin(ctx, "restore", broken)
			Expect(err).To(MatchError(ContainSubstring("the backup is incomplete or damaged")))
		}
		_, err = cluster.Plugin(ctx, "restore", file, "--digest", "sha256:0")
		Expect(err).To(MatchError(ContainSubstring("it is another backup, or it was changed")))
		_, err = cluster.Plugin(ctx, "restore", file, "--namespace-map", "nowhere=x")
		Expect(err).To(MatchError(ContainSubstring("but the backup has: " + ns)))
		_, err = holding(ctx, ns, "wally", "conversation_writer_role.yaml").Backup(ctx, ns)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "a backup is a right of its own")

		Expect(parent.Delete(ctx)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			_, err := parent.Object(ctx)
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
			var effects skeinv1.ScheduledEffectList
			g.Expect(cluster.Client.List(ctx, &effects, client.InNamespace(ns))).To(Succeed())
			g.Expect(effects.Items).To(BeEmpty())
		}).Should(Succeed())
		_, err = cluster.Plugin(ctx, "restore", file)
		Expect(err).NotTo(HaveOccurred())
		delete(before, "usage") // what was purged is counted too
		goesOnAs(ctx, ns, child, before)
	}, SpecTimeout(5*time.Minute))

	It("can be restored by two commands at once: each succeeds or says that the other was faster, and nothing is lost", func(ctx SpecContext) {
		ns := namespace(ctx)
		parent, child := household(ctx, ns)
		before := facts(ctx, ns, child)
		_, err := cluster.Plugin(ctx, "-n", ns, "backup", "-o", file)
		Expect(err).NotTo(HaveOccurred())
		Expect(parent.Delete(ctx)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			_, err := parent.Object(ctx)
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
			var effects skeinv1.ScheduledEffectList
			g.Expect(cluster.Client.List(ctx, &effects, client.InNamespace(ns))).To(Succeed())
			g.Expect(effects.Items).To(BeEmpty())
		}).Should(Succeed())

		const commands = 4
		ended := make(chan error, commands)
		for range commands {
			go func() {
				_, err := cluster.Plugin(ctx, "restore", file)
				ended <- err
			}()
		}
		restored := 0
		for range commands {
			if err := <-ended; err != nil {
				Expect(err).To(MatchError(And(ContainSubstring("has restored this backup into the namespace meanwhile"), ContainSubstring("repeat the restore"))))
			} else {
				restored++
			}
		}
		Expect(restored).To(BeNumerically(">", 0))
		_, err = cluster.Plugin(ctx, "restore", file)
		Expect(err).NotTo(HaveOccurred(), "a repeat changes nothing")
		delete(before, "usage") // what was purged is counted too
		goesOnAs(ctx, ns, child, before)
	}, SpecTimeout(5*time.Minute))

	It("can be made and restored with the ClusterRole for it, and with the rights of authors where objects need those", func(ctx SpecContext) {
		ns := namespace(ctx)
		holding(ctx, ns, "bea", "backup_role.yaml")
		as := func(args ...string) error {
			_, err := cluster.Plugin(ctx, append(args, "--as", "bea")...)
			return err
		}
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		say(ctx, t, 1, "hello")
		later := scheduled(ns, "later", skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Message: &skeinv1.EffectMessage{Content: "later"},
			After: &metav1.Duration{Duration: 24 * time.Hour}})
		keyed := harness.OpenAI(ns, "keyed", "https://models.example.com/v1", "key")
		create(ctx, later, keyed)
		Eventually(ctx, func() string { return effectStatus(ctx, later).Phase }).Should(BeElementOf("Active", "Pending"))
		Eventually(ctx, func() error { return as("-n", ns, "backup", "-o", file, "--force") }).Should(Succeed())
		Expect(cluster.Client.Delete(ctx, keyed)).To(Succeed())
		Expect(t.Delete(ctx)).To(Succeed())
		gone := func(o client.Object) {
			GinkgoHelper()
			Eventually(ctx, func() bool {
				return apierrors.IsNotFound(cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), o))
			}).Should(BeTrue(), o.GetName())
		}
		thread := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: t.Name}}
		gone(thread)
		gone(later)

		for _, args := range [][]string{{"restore", file, "--dry-run"}, {"restore", file}} {
			Expect(as(args...)).To(MatchError(And(ContainSubstring(`Model "keyed"`), ContainSubstring(`names the Secret "key"`), ContainSubstring(`the user "bea" cannot get it`))))
		}
		Expect(api().Retained(ctx, ns, "", 0)).To(HaveField("Threads", BeEmpty()), "nothing was written")
		gone(thread)

		create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"key"}, Verbs: []string{"get"}}}},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "key"},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "bea"}}})
		Eventually(ctx, func() error { return as("restore", file, "--dry-run") }).Should(Succeed())
		Expect(as("restore", file)).To(Succeed())
		Expect(last(say(ctx, t, 2, "still there?"))).To(Equal("echo: still there?"))
		Expect(everyText(ctx, NewWithT(GinkgoT()), t)).To(ContainElement("user: hello"))
		for _, o := range []client.Object{later, keyed} {
			Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		}
	}, SpecTimeout(5*time.Minute))

	It("is not needed to adopt a conversation whose object was lost", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		say(ctx, t, 1, "hello")
		id := must(t.Object(ctx)).ThreadID()
		_, err := cluster.Plugin(ctx, "-n", ns, "adopt", id)
		Expect(err).To(MatchError(ContainSubstring("the thread has a Thread object")))

		manager.Stop() // as when a cluster is lost: no manager sees the deletion of the object
		_, err = cluster.Kubectl(ctx, "-n", ns, "patch", "thread", "thread", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		Expect(err).NotTo(HaveOccurred())
		Expect(t.Delete(ctx)).To(Succeed())
		Expect(manager.Start(ctx)).To(Succeed())
		served(ctx)

		out, err := cluster.Plugin(ctx, "-n", ns, "adopt", "--list")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(MatchRegexp(id + ` +thread +agent +2 +0`))
		_, err = holding(ctx, ns, "wally", "conversation_writer_role.yaml").Orphans(ctx, ns, "", 0)
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
		create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "bert"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"runtime.skein.dev"}, Resources: []string{"orphans"}, Verbs: []string{"create"}},
			{APIGroups: []string{"runtime.skein.dev"}, Resources: []string{"threads", "threads/messages"}, Verbs: []string{"get"}},
			{APIGroups: []string{"skein.dev"}, Resources: []string{"threads"}, Verbs: []string{"get", "create"}}}},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "bert"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "bert"},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "bert"}}})
		Eventually(ctx, func() error {
			_, err := cluster.Plugin(ctx, "-n", ns, "adopt", id, "--as", "bert")
			return err
		}).Should(MatchError(ContainSubstring(`the user "bert" cannot delete resource "retained"`)))
		Expect(api().Retained(ctx, ns, "", 0)).To(HaveField("Threads", BeEmpty()), "who may not adopt changes nothing")
		holding(ctx, ns, "bea", "backup_role.yaml")
		Eventually(ctx, func() error {
			_, err := cluster.Plugin(ctx, "-n", ns, "adopt", "--list", "--as", "bea")
			return err
		}).Should(Succeed())
		out, err = cluster.Plugin(ctx, "-n", ns, "adopt", id, "--name", "found", "--as", "bea")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(Equal("thread/found has the conversation " + id + "\n"))
		Expect(last(say(ctx, cluster.Thread(ns, "found"), 2, "still there?"))).To(Equal("echo: still there?"))
		Expect(texts(must(cluster.Thread(ns, "found").Messages(ctx)))).To(HaveLen(4))
	}, SpecTimeout(3*time.Minute))
})
