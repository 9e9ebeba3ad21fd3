package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Two neighbouring versions", Serial, outages, Label("K8S-10"), func() {
	var earlier string
	// No time limit covers the build, which takes minutes where nothing of it is compiled.
	BeforeEach(func(ctx SpecContext) {
		var err error
		earlier, err = harness.BuildEarlier(ctx)
		if errors.Is(err, harness.ErrNoHistory) {
			Skip(err.Error())
		}
		Expect(err).NotTo(HaveOccurred())
	})

	It("run side by side on one database, with each other's sandboxes, and pass runs on to each other", func(ctx SpecContext) {
		ns := namespace(ctx)
		_, _, options := postgresFor(ctx, ns)
		token, err := cluster.Token(ctx, ns, "replicas")
		Expect(err).NotTo(HaveOccurred())
		// start starts a manager that uses the sandboxes of the other version.
		start := func(manager, sandbox string) *replica {
			GinkgoHelper()
			program, remove, err := harness.Beside(manager, sandbox)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(remove)
			o := options()
			o.Program, o.Args = program, append(o.Args, "--drain-timeout=2m")
			m, err := cluster.NewManager(o)
			Expect(err).NotTo(HaveOccurred())
			Expect(m.Start(ctx)).To(Succeed())
			DeferCleanup(m.Stop)
			api, err := cluster.Direct(ctx, m, token)
			Expect(err).NotTo(HaveOccurred())
			return &replica{m, api}
		}
		var asked, cut atomic.Int64
		speak := make(chan struct{})
		chat := harness.NewChatServer(func(w http.ResponseWriter, r *http.Request, req harness.ChatRequest) {
			n := asked.Add(1)
			last := req.Messages[len(req.Messages)-1]
			switch {
			case last.Role == "tool":
				harness.Say(w, req.Model, "counted")
			case string(last.Content) == `"slowly"`:
				select {
				case <-speak:
					harness.CallTool(w, req.Model, fmt.Sprintf("call_%d", n), "count", `{}`)
				case <-r.Context().Done():
					cut.Add(1)
				}
			default:
				harness.CallTool(w, req.Model, fmt.Sprintf("call_%d", n), "count", `{}`)
			}
		})
		DeferCleanup(chat.Close)
		model := harness.OpenAI(ns, "model", chat.URL+"/v1", "key")
		model.Spec.Timeout = &metav1.Duration{Duration: 5 * time.Minute}

		By("starting the new version first: the schema is its own")
		latest := start(harness.Bin("manager"), filepath.Join(earlier, "sandbox"))
		before := start(filepath.Join(earlier, "manager"), harness.Bin("sandbox"))
		served(ctx)
		create(ctx, secretOf(ns, "key", nil, map[string]string{"apiKey": "k"}), model,
			harness.CodeTool(ns, "count", counting, nil), harness.Prompt(ns, "prompt", "model", "count"), harness.Agent(ns, "agent", "prompt"),
			harness.NewThread(ns, "thread", "agent"))
		ready(ctx, cluster.Thread(ns, "thread"))
		turns := 0
		// converse sends a message to one replica, and reads the answer at another one.
		converse := func(to, from *replica) {
			GinkgoHelper()
			turns++
			_, err := to.api.Thread(ns, "thread").Queue(ctx, runtimev1.NewMessage{Content: "count"})
			Expect(err).NotTo(HaveOccurred())
			succeeded(ctx, from.api.Thread(ns, "thread"), turns)
		}
		By("talking to both")
		converse(before, latest)
		converse(latest, before)

		By("talking to each alone")
		latest.Stop()
		converse(before, before)
		before.Stop()
		Expect(before.Start(ctx)).To(Succeed(), "it starts again on the newer schema")
		converse(before, before)
		Expect(latest.Start(ctx)).To(Succeed())
		before.Stop()
		converse(latest, latest)

		By("passing a run on, in both directions")
		for _, pair := range [][2]*replica{{latest, before}, {before, latest}} {
			first, second := pair[0], pair[1]
			turns++
			count := asked.Load()
			_, err := first.api.Thread(ns, "thread").Queue(ctx, runtimev1.NewMessage{Content: "slowly"})
			Expect(err).NotTo(HaveOccurred())
			Eventually(ctx, asked.Load).Should(Equal(count + 1))
			Expect(second.Start(ctx)).To(Succeed())
			gone := first.Terminate()
			Eventually(ctx, first.Ready).Should(BeFalse())
			speak <- struct{}{}
			succeeded(ctx, second.api.Thread(ns, "thread"), turns)
			Eventually(ctx, gone).Should(BeClosed())
			first.Stop() // it is known to have ended
			Expect(asked.Load()).To(Equal(count+2), "no call was made twice")
		}
		Expect(cut.Load()).To(BeZero())
		page, err := latest.api.Thread(ns, "thread").Messages(ctx, client.MessageOptions{Order: "asc", Page: client.Page{Limit: 100}})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).To(HaveLen(4 * turns))
		for i := range turns {
			Expect(texts(page.Messages)[4*i+2]).To(Equal(fmt.Sprint("tool: ", i+1)))
		}
	}, NodeTimeout(12*patience))
})

// succeeded waits until a thread has so many runs, and all of them have succeeded.
func succeeded(ctx context.Context, t *client.Thread, runs int) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		list, err := t.Runs(ctx, client.Page{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(list.Runs).To(HaveLen(runs))
		for _, r := range list.Runs {
			g.Expect(r.Status).To(Equal("succeeded"), "%+v", r)
		}
	}).WithTimeout(2 * patience).Should(Succeed())
}
