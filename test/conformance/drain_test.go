package conformance

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// draining runs two replicas on a database of their own, which let what is under way finish for a time. It returns a token for their API.
func draining(ctx context.Context, ns, timeout string) (token string, all []*replica) {
	GinkgoHelper()
	_, _, options := postgresFor(ctx, ns)
	token, err := cluster.Token(ctx, ns, "replicas")
	Expect(err).NotTo(HaveOccurred())
	for range 2 {
		o := options()
		o.Args = append(o.Args, "--drain-timeout="+timeout)
		m, err := cluster.NewManager(o)
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Start(ctx)).To(Succeed())
		DeferCleanup(m.Stop)
		api, err := cluster.Direct(ctx, m, token)
		Expect(err).NotTo(HaveOccurred())
		all = append(all, &replica{m, api})
	}
	served(ctx)
	return token, all
}

// post sends a request to one replica, once: clients of Kubernetes repeat it by themselves.
func post(ctx context.Context, r *replica, token, path string, body any) (*http.Response, metav1.Status) {
	GinkgoHelper()
	b, err := json.Marshal(body)
	Expect(err).NotTo(HaveOccurred())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+r.RuntimeAddress()+path, bytes.NewReader(b))
	Expect(err).NotTo(HaveOccurred())
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	once := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // a process of this test, on loopback
	defer once.CloseIdleConnections()
	resp, err := once.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = resp.Body.Close() }()
	var status metav1.Status
	answer, err := io.ReadAll(resp.Body)
	Expect(err).NotTo(HaveOccurred())
	_ = json.Unmarshal(answer, &status)
	return resp, status
}

var _ = Describe("A replica that is told to stop", Serial, outages, Label("K8S-10"), func() {
	// A lease or a claim that was not given back expires after 15 seconds.
	const atOnce = 10 * time.Second

	It("lets its model call finish, begins nothing, and another one goes on at once: no call is made twice", Label("RUN-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		token, rs := draining(ctx, ns, "2m")
		var asked, cut atomic.Int64
		speak := make(chan struct{})
		chat := harness.NewChatServer(func(w http.ResponseWriter, r *http.Request, req harness.ChatRequest) {
			switch asked.Add(1) {
			case 1:
				select {
				case <-speak:
					harness.CallTool(w, req.Model, "call_1", "count", `{}`)
				case <-r.Context().Done():
					cut.Add(1)
				}
			default:
				harness.Say(w, req.Model, "done")
			}
		})
		DeferCleanup(chat.Close)
		model := harness.OpenAI(ns, "model", chat.URL+"/v1", "key")
		model.Spec.Timeout = &metav1.Duration{Duration: 5 * time.Minute}
		create(ctx, secretOf(ns, "key", nil, map[string]string{"apiKey": "k"}), model,
			harness.CodeTool(ns, "count", counting, nil), harness.Prompt(ns, "prompt", "model", "count"), harness.Agent(ns, "agent", "prompt"),
			harness.NewThread(ns, "thread", "agent"), harness.NewThread(ns, "other", "agent"))
		ready(ctx, cluster.Thread(ns, "thread"))
		ready(ctx, cluster.Thread(ns, "other"))
		rs[1].Stop() // the run is the first replica's: the other is not there when it begins
		_, err := rs[0].api.Thread(ns, "thread").Queue(ctx, runtimev1.NewMessage{Content: "hello"})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, asked.Load).Should(Equal(int64(1)))
		Expect(rs[1].Start(ctx)).To(Succeed())

		ended := rs[0].Terminate()
		Eventually(ctx, rs[0].Ready).Should(BeFalse())
		By("answering what is quick, and refusing what may take long")
		here, there := rs[0].api.Thread(ns, "thread"), rs[1].api.Thread(ns, "thread")
		Expect(newest(ctx, here).Status).To(Equal("running"))
		resp, status := post(ctx, rs[0], token, "/apis/runtime.skein.dev/v1alpha1/namespaces/"+ns+"/threads/thread/code", runtimev1.CodeRequest{Source: "1"})
		Expect(resp.StatusCode).To(Equal(http.StatusServiceUnavailable))
		Expect(resp.Header.Get("Retry-After")).To(Equal("1"))
		Expect(status.Message).To(ContainSubstring("is stopping, and nothing was done: try again"))
		_, err = rs[0].api.Thread(ns, "other").Queue(ctx, runtimev1.NewMessage{Content: "hello"})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			g.Expect(newestBy(ctx, g, rs[1].api.Thread(ns, "other")).Status).To(Equal("succeeded"))
		}).Should(Succeed(), "by the other replica")

		By("answering the model call")
		Expect(ended).NotTo(BeClosed())
		before := asked.Load()
		Expect(before).To(Equal(int64(2)))
		began := time.Now()
		close(speak)
		Eventually(ctx, func(g Gomega) { g.Expect(newestBy(ctx, g, there).Status).To(Equal("succeeded")) }).Should(Succeed())
		Expect(time.Since(began)).To(BeNumerically("<", atOnce), "the lease was handed over")
		Eventually(ctx, ended).Should(BeClosed(), "nothing is under way any more")
		Expect(asked.Load()-before).To(Equal(int64(1)), "the call that follows the tool, and no other")
		Expect(cut.Load()).To(BeZero())
		page, err := there.Messages(ctx, client.MessageOptions{Order: "asc"})
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(page.Messages)).To(Equal([]string{"user: hello", "assistant:", "tool: 1", "assistant: done"}))
		runs, err := there.Runs(ctx, client.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(runs.Runs).To(HaveLen(1), "it is one run")
		AddReportEntry("from the answer to the end of the run on the other replica", time.Since(began).String())
	}, NodeTimeout(6*patience))

	It("hands over the effects that it could not finish in its time, and another one runs them at once", Label("EFF-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		_, rs := draining(ctx, ns, "100ms")
		var calls atomic.Int32
		server := toolServer(func(w http.ResponseWriter, r *http.Request, _ string) {
			if calls.Add(1) == 1 {
				<-r.Context().Done()
				return
			}
			_, _ = io.WriteString(w, "counted")
		})
		create(ctx, harness.HTTPTool(ns, "count", skeinv1.HTTPTool{Method: "POST", URL: server.URL}, map[string]any{"n": map[string]any{"type": "integer"}}, "n"))
		rs[1].Stop()
		s := scheduled(ns, "count", skeinv1.ScheduledEffectSpec{
			CallTool: &skeinv1.EffectToolCall{Name: "count"}, Args: &runtime.RawExtension{Raw: []byte(`{"n":3}`)}, Schedules: never, RunOnCreation: true,
		})
		create(ctx, s)
		Eventually(ctx, calls.Load).Should(Equal(int32(1)))
		Expect(rs[1].Start(ctx)).To(Succeed())
		began := time.Now()
		Eventually(ctx, rs[0].Terminate()).Should(BeClosed())
		Eventually(ctx, calls.Load).Should(Equal(int32(2)))
		Expect(time.Since(began)).To(BeNumerically("<", atOnce), "the claim was handed over")
		Eventually(ctx, func(g Gomega) { g.Expect(effectStatus(ctx, s).LastOutcome).To(Equal("Succeeded")) }).Should(Succeed())
		requests := server.Requests()
		Expect(requests[1].Header.Get("Idempotency-Key")).To(Equal(requests[0].Header.Get("Idempotency-Key")))
		AddReportEntry("from SIGTERM to the effect on the other replica", time.Since(began).String())
	}, NodeTimeout(6*patience))

	It("ends at once when nothing is under way", func(ctx SpecContext) {
		ns := namespace(ctx)
		m := instead(ctx, harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Args: []string{"--namespaces=" + ns, "--drain-timeout=1h"}})
		Eventually(ctx, m.Terminate()).Should(BeClosed())
	}, NodeTimeout(3*patience))
})

// counting is a tool that counts its calls in the thread.
const counting = `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'counts', execute: async (state) => {
  const n = ((await state.getValue('n')) ?? 0) + 1;
  await state.setValue('n', n);
  return { status: 'success', result: String(n) };
} });`
