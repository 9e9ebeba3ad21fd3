// Package conformance proves the rows of docs/specification.md through the public API: kubectl, the custom resources and
// the runtime API of a manager that runs as a process of its own. Each spec carries the ids of its rows.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/scratch"
	chromium "github.com/skein-dev/skein/test/browser"
	"github.com/skein-dev/skein/test/harness"
)

// patience bounds how long something that must happen may take on a loaded machine of two cores; it is
// never what a spec measures.
const patience = time.Minute

var (
	cluster *harness.Cluster
	manager *harness.Manager
	logFile *os.File
	// door is the address of the manager's gateway for end users.
	door string
	// figures is the address of the manager's metrics.
	figures string
)

func TestConformance(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(25 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	suite, reporter := GinkgoConfiguration()
	if onV8 && suite.LabelFilter == "" {
		suite.LabelFilter = rowsOfCode
	}
	if os.Getenv(chaosEnv) != "" || os.Getenv(treesEnv) != "" {
		suite.Timeout = 6 * time.Hour // longer than the spec may take
	}
	if text := os.Getenv(seedEnv); text != "" {
		seed, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: write a number: %v", seedEnv, err)
		}
		suite.RandomSeed = seed
	}
	RunSpecs(t, "Conformance", suite, reporter)
}

// outages marks the specs that stop managers, databases or networks. They mostly wait, so they run beside the others in a
// tier of their own.
var outages = Label("outages")

var _ = BeforeSuite(func(ctx SpecContext) {
	dir := GinkgoT().TempDir()
	var err error
	logFile, err = os.Create(filepath.Join(dir, "manager.log"))
	Expect(err).NotTo(HaveOccurred())
	cluster, err = harness.Up(ctx, harness.ClusterOptions{Name: clusterName(), AuditLog: os.Getenv(rightsEnv) != "", Log: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) { Expect(cluster.Down(ctx)).To(Succeed()) }, NodeTimeout(2*time.Minute))
	_, err = cluster.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(harness.Root(), "config", "crd"))
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "-l", "app.kubernetes.io/part-of=skein", "--timeout=2m")
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(harness.Root(), "config", "admission"))
	Expect(err).NotTo(HaveOccurred())
	port, err := scratch.Port()
	Expect(err).NotTo(HaveOccurred())
	door = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	port, err = scratch.Port()
	Expect(err).NotTo(HaveOccurred())
	figures = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	manager, err = cluster.NewManager(harness.ManagerOptions{Dir: filepath.Join(dir, "data"), Log: logFile, Args: append(append(engineArgs(), auditArgs(dir)...),
		"--tool-private-hosts=127.0.0.1", "--gateway-bind-address="+door, "--metrics-bind-address="+figures, "--gateway-trusted-proxies=127.0.0.1")})
	Expect(err).NotTo(HaveOccurred())
	Expect(manager.Start(ctx)).To(Succeed())
	DeferCleanup(manager.Stop)
	DeferCleanup(chromium.Stop) // it starts with the first page that a spec opens
	Eventually(func() error {
		_, err := cluster.Kubectl(ctx, "get", "--raw", "/apis/runtime.skein.dev/v1alpha1")
		return err
	}).Should(Succeed(), "the aggregation layer reaches the manager")
}, NodeTimeout(30*time.Minute))

// clusterName returns the name of the suite's cluster. The specs of outages, and those on the engine v8, run beside the
// others, each in a cluster of their own.
func clusterName() string {
	suite, _ := GinkgoConfiguration()
	switch {
	case suite.LabelFilter == "outages":
		return "outages"
	case onV8:
		return "conformance-v8"
	default:
		return "conformance"
	}
}

// Without the manager that they share, all later specs would wait in vain, one after the other.
var _ = BeforeEach(func() {
	Expect(manager.Ended()).To(BeFalse(), "the manager that the specs share has ended, or could not be started again: its log says why")
})

// The manager's log goes into the report when something failed.
var _ = ReportAfterEach(func(r SpecReport) {
	if r.Failed() && logFile != nil {
		b, _ := os.ReadFile(logFile.Name())
		if len(b) > 20_000 {
			b = b[len(b)-20_000:]
		}
		AddReportEntry("the end of the manager's log", ReportEntryVisibilityFailureOrVerbose, string(b))
	}
})

// namespace makes one for the spec; it goes when the spec ends.
func namespace(ctx context.Context) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "row-"}}
	Expect(cluster.Client.Create(ctx, ns)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(cluster.Client.Delete(ctx, ns))).To(Succeed())
	}, NodeTimeout(patience))
	if onV8 {
		defaultPool(ctx, ns.Name, skeinv1.SandboxPoolSpec{})
	}
	return ns.Name
}

func create(ctx context.Context, objs ...client.Object) {
	GinkgoHelper()
	for _, o := range objs {
		Expect(cluster.Client.Create(ctx, o)).To(Succeed(), "%T %s", o, o.GetName())
	}
}

// converse declares an agent over a script with tools, and a thread of it, and waits until it is ready.
func converse(ctx context.Context, ns string, tools []string, steps []skeinv1.ScriptStep, edit ...func(*skeinv1.ThreadSpec)) *harness.Thread {
	GinkgoHelper()
	return converseWith(ctx, ns, harness.Scripted(ns, "model", steps...), tools, edit...)
}

// converseWith is converse with a model of the name model.
func converseWith(ctx context.Context, ns string, model *skeinv1.Model, tools []string, edit ...func(*skeinv1.ThreadSpec)) *harness.Thread {
	GinkgoHelper()
	create(ctx,
		model,
		harness.Prompt(ns, "prompt", "model", tools...),
		harness.Agent(ns, "agent", "prompt"),
		harness.NewThread(ns, "thread", "agent", edit...),
	)
	return ready(ctx, cluster.Thread(ns, "thread"))
}

func ready(ctx context.Context, t *harness.Thread) *harness.Thread {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		o, err := t.Object(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(o.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionTrue)))
	}).Should(Succeed())
	return t
}

// stored looks at all files that the manager has, but for those that go while it looks.
func stored(look func(path string, data []byte)) {
	GinkgoHelper()
	files := 0
	Expect(filepath.WalkDir(manager.Dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var data []byte
			if data, err = os.ReadFile(path); err == nil {
				look(path, data)
				files++
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})).To(Succeed())
	Expect(files).NotTo(BeZero())
}

// condition matches a condition by type and status, and by reason when given.
func condition(kind string, status metav1.ConditionStatus, reason ...string) OmegaMatcher {
	m := And(HaveField("Type", kind), HaveField("Status", status))
	if len(reason) > 0 {
		m = And(m, HaveField("Reason", reason[0]))
	}
	return m
}

// settled waits until the thread has so many ended runs and none under way, and gives the messages.
func settled(ctx context.Context, t *harness.Thread, runs int) []runtimev1.Message {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		rs, err := t.Runs(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(rs)).To(BeNumerically(">=", runs), "runs so far: %+v", rs)
		for _, r := range rs {
			g.Expect(r.Ended()).To(BeTrue(), "run %s is %s", r.ID, r.Status)
		}
	}).Should(Succeed())
	ms, err := t.Messages(ctx)
	Expect(err).NotTo(HaveOccurred())
	return ms
}

// say sends a message and waits until the thread is at rest again; runs counts the ended runs to wait for.
func say(ctx context.Context, t *harness.Thread, runs int, text string) []runtimev1.Message {
	GinkgoHelper()
	Eventually(ctx, func() error {
		err := t.Say(ctx, text)
		if err != nil && !apierrors.IsServiceUnavailable(err) {
			return StopTrying("the message was refused").Wrap(err)
		}
		return err
	}).Should(Succeed())
	return settled(ctx, t, runs)
}

// text is a message in short: "role: content".
func text(m runtimev1.Message) string {
	if m.Content == nil {
		return m.Role + ":"
	}
	return fmt.Sprintf("%s: %s", m.Role, *m.Content)
}

func texts(ms []runtimev1.Message) []string {
	out := make([]string, 0, len(ms))
	for _, m := range ms {
		out = append(out, text(m))
	}
	return out
}

// last gives the content of the newest message.
func last(ms []runtimev1.Message) string {
	GinkgoHelper()
	Expect(ms).NotTo(BeEmpty())
	Expect(ms[len(ms)-1].Content).NotTo(BeNil())
	return *ms[len(ms)-1].Content
}

// result gives the content and status of the newest result of a tool.
func result(ms []runtimev1.Message, tool string) (content, status string) {
	GinkgoHelper()
	for i := len(ms) - 1; i >= 0; i-- {
		if ms[i].Role == runtimev1.RoleTool && ms[i].Name == tool {
			Expect(ms[i].Content).NotTo(BeNil())
			return *ms[i].Content, ms[i].ToolStatus
		}
	}
	Fail("no result of the tool " + tool)
	return "", ""
}
