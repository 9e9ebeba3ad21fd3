package conformance

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store/storetest/pgtest"
	"github.com/skein-dev/skein/test/harness"
)

// replica is one of several managers on one database, with a client that speaks to it alone.
type replica struct {
	*harness.Manager
	api *client.Client
}

// onPostgres runs n replicas on a database of their own in place of the suite's manager.
func onPostgres(ctx context.Context, ns string, n int) (*pgtest.Server, []*replica) {
	GinkgoHelper()
	server, _, options := postgresFor(ctx, ns)
	token, err := cluster.Token(ctx, ns, "replicas")
	Expect(err).NotTo(HaveOccurred())
	var all []*replica
	for range n {
		m, err := cluster.NewManager(options())
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Start(ctx)).To(Succeed())
		DeferCleanup(m.Stop)
		api, err := cluster.Direct(ctx, m, token)
		Expect(err).NotTo(HaveOccurred())
		all = append(all, &replica{m, api})
	}
	served(ctx)
	return server, all
}

// postgresFor starts a database for the replicas that take the place of the suite's manager. It returns the server, the name of the
// database, and a function that makes the options of a replica.
func postgresFor(ctx context.Context, ns string, edit ...func(*pgtest.Options)) (*pgtest.Server, string, func() harness.ManagerOptions) {
	GinkgoHelper()
	var o pgtest.Options
	for _, f := range edit {
		f(&o)
	}
	server, err := pgtest.Start(ctx, o)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(server.Stop()).To(Succeed()) })
	name, err := server.NewDatabase(ctx, "")
	Expect(err).NotTo(HaveOccurred())
	bucket := GinkgoT().TempDir()
	manager.Stop()
	DeferCleanup(func(ctx SpecContext) {
		Expect(manager.Start(ctx)).To(Succeed())
		served(ctx)
	}, NodeTimeout(2*patience))
	made := 0
	return server, name, func() harness.ManagerOptions {
		made++
		return harness.ManagerOptions{
			Dir: filepath.Join(GinkgoT().TempDir(), fmt.Sprint(made)), Log: logFile, Env: []string{"SKEIN_DATABASE_URL=" + server.URL(name)},
			Args: []string{"--store=postgres", "--leader-elect", "--namespaces=" + ns, "--blob-url=file://" + bucket, "--tool-private-hosts=127.0.0.1"},
		}
	}
}

// hangs is a model that answers nothing until it is told to, and tells when a caller gave up.
type hangs struct {
	*harness.ChatServer
	asked, gone atomic.Int64
	speak       chan struct{}
}

func newHanging() *hangs {
	h := &hangs{speak: make(chan struct{})}
	h.ChatServer = harness.NewChatServer(func(w http.ResponseWriter, r *http.Request, req harness.ChatRequest) {
		h.asked.Add(1)
		select {
		case <-r.Context().Done():
			h.gone.Add(1)
		case <-h.speak:
			harness.Say(w, req.Model, "well")
		}
	})
	DeferCleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return h
}

// hanging declares an agent of the model, and ready threads of it.
func hanging(ctx context.Context, ns string, h *hangs, names ...string) {
	GinkgoHelper()
	model := harness.OpenAI(ns, "model", h.URL+"/v1", "key")
	model.Spec.Timeout = &metav1.Duration{Duration: 5 * time.Minute}
	create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}, StringData: map[string]string{"apiKey": "k"}},
		model, harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"))
	for _, name := range names {
		create(ctx, harness.NewThread(ns, name, "agent"))
		ready(ctx, cluster.Thread(ns, name))
	}
}

func newest(ctx context.Context, t *client.Thread) runtimev1.Run {
	GinkgoHelper()
	return newestBy(ctx, NewGomega(Fail), t)
}

// newestBy is newest for callers that try again when it fails.
func newestBy(ctx context.Context, g Gomega, t *client.Thread) runtimev1.Run {
	runs, err := t.Runs(ctx, client.Page{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(runs.Runs).NotTo(BeEmpty())
	return runs.Runs[0]
}

var _ = Describe("Replicas on one PostgreSQL database", Serial, outages, Label("K8S-05"), func() {
	// Without hints a replica looks every 15 seconds, and what is at once takes no such time.
	const atOnce = 10 * time.Second

	It("serve any thread each, and tell each other of changes at once", func(ctx SpecContext) {
		ns := namespace(ctx)
		_, rs := onPostgres(ctx, ns, 2)
		converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		for i, r := range rs {
			here, there := r.api.Thread(ns, "thread"), rs[1-i].api.Thread(ns, "thread")
			var text string
			heard := make(chan string)
			following, stop := context.WithCancel(ctx)
			DeferCleanup(stop)
			rec, err := there.Get(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(rec.Name).To(Equal("thread"))
			go func() {
				defer GinkgoRecover()
				for e, err := range there.Events(following, client.EventOptions{}) {
					if err == nil && e.Type == "message.created" {
						select {
						case heard <- string(e.Data):
						case <-following.Done():
						}
					}
				}
			}()
			// Several, one after the other: a replica that only polls has answered one and then waits for each of the
			// others as long as can be.
			const questions = 4
			var took [questions]time.Duration
			for n := range questions {
				began := time.Now()
				text = fmt.Sprintf("question %d to %d", n, i)
				_, err = here.Queue(ctx, runtimev1.NewMessage{Content: text})
				Expect(err).NotTo(HaveOccurred())
				Eventually(ctx, heard).Should(Receive(ContainSubstring("echo: " + text)))
				took[n] = time.Since(began)
			}
			fastest := slices.Min(took[1:])
			Expect(fastest).To(BeNumerically("<", atOnce), "%v", took)
			AddReportEntry("from a question here to the answer there", fastest.String())
			page, err := there.Messages(ctx, client.MessageOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(page.Messages[len(page.Messages)-1].Content).To(HaveValue(Equal("echo: " + text)))
			_, err = here.WriteFile(ctx, "/f", strings.NewReader(text), client.WriteFileOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(there.StatFile(ctx, "/f")).To(HaveField("Size", int64(len(text))))
		}
	}, NodeTimeout(6*patience))

	It("stop and terminate runs of each other at once", Label("RUN-04", "THR-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		_, rs := onPostgres(ctx, ns, 2)
		h := newHanging()
		hanging(ctx, ns, h, "to-stop", "to-terminate")
		for i, name := range []string{"to-stop", "to-terminate"} {
			here, there := rs[0].api.Thread(ns, name), rs[1].api.Thread(ns, name)
			// The run is the first replica's: the other is not there when it begins.
			rs[1].Stop()
			_, err := here.Queue(ctx, runtimev1.NewMessage{Content: "hello"})
			Expect(err).NotTo(HaveOccurred())
			Eventually(ctx, h.asked.Load).Should(Equal(int64(i + 1)))
			Expect(rs[1].Start(ctx)).To(Succeed())
			Expect(newest(ctx, there).Status).To(Equal("running"))
			Expect(h.gone.Load()).To(Equal(int64(i)))

			began := time.Now()
			if name == "to-stop" {
				_, err = there.Stop(ctx, "enough")
			} else {
				err = there.Terminate(ctx)
			}
			Expect(err).NotTo(HaveOccurred())
			Eventually(ctx, h.gone.Load).Should(Equal(int64(i+1)), "the replica that has the run gives up its model call")
			Expect(time.Since(began)).To(BeNumerically("<", atOnce))
			AddReportEntry(name, time.Since(began).String())
			for _, t := range []*client.Thread{here, there} {
				Eventually(ctx, func(g Gomega) { r := newestBy(ctx, g, t); g.Expect(r.Ended()).To(BeTrue()) }).Should(Succeed())
			}
		}
		Expect(newest(ctx, rs[0].api.Thread(ns, "to-stop"))).To(And(HaveField("Status", "stopped"), HaveField("Message", "enough")))
		Expect(newest(ctx, rs[0].api.Thread(ns, "to-terminate")).Status).To(Equal("terminated"))
		_, err := rs[0].api.Thread(ns, "to-terminate").Queue(ctx, runtimev1.NewMessage{Content: "late"})
		Expect(err).To(MatchError(ContainSubstring("is terminated and takes no new work")))
	}, NodeTimeout(6*patience))

	It("hold messages that meet a run of another to their policies", Label("RUN-09"), func(ctx SpecContext) {
		ns := namespace(ctx)
		_, rs := onPostgres(ctx, ns, 2)
		h := newHanging()
		names := []string{"interrupt", "rollback"}
		hanging(ctx, ns, h, names...)
		rs[1].Stop() // it is not there when the runs begin
		for _, name := range names {
			_, err := rs[0].api.Thread(ns, name).Queue(ctx, runtimev1.NewMessage{Content: "hello"})
			Expect(err).NotTo(HaveOccurred())
		}
		Eventually(ctx, h.asked.Load).Should(Equal(int64(2)))
		Expect(rs[1].Start(ctx)).To(Succeed())
		for i, name := range names {
			there := rs[1].api.Thread(ns, name)
			before := newest(ctx, there)
			Expect(before.Status).To(Equal("running"))
			_, err := there.Queue(ctx, runtimev1.NewMessage{Content: "refused", Policy: "reject"})
			Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			_, err = there.Queue(ctx, runtimev1.NewMessage{Content: "more", Policy: "enqueue"})
			Expect(err).NotTo(HaveOccurred())
			Expect(newest(ctx, there)).To(Equal(before), "it goes on")
			_, err = there.Queue(ctx, runtimev1.NewMessage{Content: "instead", Policy: name})
			Expect(err).NotTo(HaveOccurred())
			Expect(there.Run(ctx, before.ID)).To(And(HaveField("Status", "stopped"), HaveField("Reason", []string{"Interrupted", "RolledBack"}[i])))
			Eventually(ctx, h.gone.Load).Should(Equal(int64(i+1)), "the replica that has the run gives up its model call")
		}
		close(h.speak)
		for i, name := range names {
			there := rs[1].api.Thread(ns, name)
			Eventually(ctx, func(g Gomega) { g.Expect(newestBy(ctx, g, there).Status).To(Equal("succeeded")) }).WithTimeout(2 * patience).Should(Succeed())
			page, err := there.Messages(ctx, client.MessageOptions{})
			Expect(err).NotTo(HaveOccurred())
			said := append([]string{"user: hello", "assistant: (interrupted by a new message)"}, "user: more", "user: instead", "assistant: well")
			Expect(texts(page.Messages)).To(Equal(said[2*i:]), name)
		}
	}, NodeTimeout(6*patience))

	It("take over the run of one that was killed, and lose or repeat nothing", Label("RUN-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		_, rs := onPostgres(ctx, ns, 2)
		h := newHanging()
		hanging(ctx, ns, h, "thread")
		there := rs[1].api.Thread(ns, "thread")
		_, err := rs[0].api.Thread(ns, "thread").Queue(ctx, runtimev1.NewMessage{Content: "hello"})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, h.asked.Load).Should(Equal(int64(1)))
		before := newest(ctx, there)
		rs[0].Kill()
		close(h.speak)
		Eventually(ctx, func(g Gomega) { g.Expect(newestBy(ctx, g, there).Status).To(Equal("succeeded")) }).WithTimeout(2 * patience).Should(Succeed())
		Expect(newest(ctx, there).ID).To(Equal(before.ID), "it is the same run")
		page, err := there.Messages(ctx, client.MessageOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(page.Messages)).To(Equal([]string{"user: hello", "assistant: well"}))
	}, NodeTimeout(6*patience))

	It("say so while the database is gone, lose nothing that was acknowledged, and recover by themselves", Label("THR-18", "MSG-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		server, rs := onPostgres(ctx, ns, 2)
		h := newHanging()
		hanging(ctx, ns, h, "thread")
		pids := []int{rs[0].PID(), rs[1].PID()}
		_, err := rs[0].api.Thread(ns, "thread").Queue(ctx, runtimev1.NewMessage{Content: "hello"})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, h.asked.Load).Should(Equal(int64(1)))

		By("stopping the database while many write")
		var mu sync.Mutex
		var kept []string
		var refused atomic.Int64
		var wg sync.WaitGroup
		writing, enough := context.WithCancel(ctx)
		defer enough()
		for w := range 4 {
			wg.Go(func() {
				defer GinkgoRecover()
				t := rs[w%2].api.Thread(ns, "thread")
				for n := 0; writing.Err() == nil && refused.Load() < 8; n++ {
					id := fmt.Sprintf("m-%d-%d", w, n)
					_, err := t.Inject(ctx, runtimev1.NewMessage{ID: id, Role: runtimev1.RoleUser, Content: "x", Silent: true})
					if err == nil {
						mu.Lock()
						kept = append(kept, id)
						mu.Unlock()
						continue
					}
					refused.Add(1)
					Expect(apierrors.IsServiceUnavailable(err)).To(BeTrue(), "%v", err)
					Expect(err).To(MatchError(ContainSubstring("try again")))
					Expect(err).NotTo(MatchError(ContainSubstring("skein@")), "the database's URL")
				}
			})
		}
		Eventually(ctx, func() int { mu.Lock(); defer mu.Unlock(); return len(kept) }).Should(BeNumerically(">", 20))
		Expect(server.Down()).To(Succeed())
		wg.Wait()
		for _, r := range rs {
			Eventually(ctx, r.Ready).Should(BeFalse(), "it says that it cannot do its work")
		}
		close(h.speak) // the run that is under way cannot write its answer now

		By("starting it again")
		Expect(server.Up(ctx)).To(Succeed())
		for _, r := range rs {
			Eventually(ctx, r.Ready).Should(BeTrue())
		}
		there := rs[1].api.Thread(ns, "thread")
		Eventually(ctx, func(g Gomega) { g.Expect(newestBy(ctx, g, there).Status).To(Equal("succeeded")) }).WithTimeout(2 * patience).Should(Succeed())
		have := map[string]bool{}
		for m, err := range there.AllMessages(ctx, client.MessageOptions{IncludeSilent: true}) {
			Expect(err).NotTo(HaveOccurred())
			Expect(have[m.ID]).To(BeFalse())
			have[m.ID] = true
		}
		for _, id := range kept {
			Expect(have[id]).To(BeTrue(), "the acknowledged message %s is there", id)
		}
		AddReportEntry("acknowledged before the database went", len(kept))
		Expect([]int{rs[0].PID(), rs[1].PID()}).To(Equal(pids), "they were never restarted")
	}, NodeTimeout(6*patience))
})

var _ = Describe("A second replica on SQLite", Serial, outages, Label("K8S-05"), func() {
	It("does not become ready, and says that more than one needs PostgreSQL", func(ctx SpecContext) {
		ns := namespace(ctx)
		dir := GinkgoT().TempDir()
		log := &lines{}
		instead(ctx, harness.ManagerOptions{Dir: filepath.Join(dir, "a"), Args: []string{"--namespaces=" + ns, "--leader-elect"}})
		second, err := cluster.NewManager(harness.ManagerOptions{Dir: filepath.Join(dir, "b"), Log: log, Args: []string{"--namespaces=" + ns, "--leader-elect"}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(second.Stop)
		starting, cancel := context.WithTimeout(ctx, 2*patience)
		DeferCleanup(cancel)
		started := make(chan error, 1)
		go func() { started <- second.Start(starting) }()
		Eventually(ctx, log.String).WithTimeout(2 * patience).Should(ContainSubstring("--store=postgres"))
		cancel()
		Expect(<-started).To(MatchError(ContainSubstring("not ready")))

		// Of the same folder it does not even start.
		third, err := cluster.NewManager(harness.ManagerOptions{Dir: filepath.Join(dir, "a"), Log: log, Args: []string{"--namespaces=" + ns, "--leader-elect"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(third.Start(ctx)).NotTo(Succeed())
		Expect(log.String()).To(ContainSubstring("use PostgreSQL for more than one replica"))
	}, NodeTimeout(6*patience))
})

// lines is a log in memory.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
