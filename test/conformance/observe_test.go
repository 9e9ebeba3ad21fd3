package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Observing threads", func() {
	It("gives many watchers the present value, then patches that lead to what the API says", Label("EVT-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.On("go", harness.Answer("gone"))})
		c, err := runtimeclient.New(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		thread := c.Thread(ns, t.Name)
		say(ctx, t, 1, "go") // the thread rests: it is loaded and followed
		Expect(t.SetValue(ctx, "color", `"red"`)).To(Succeed())

		begun := make(chan struct{}, 20)
		var watching sync.WaitGroup
		for range 20 {
			watching.Go(func() {
				defer GinkgoRecover()
				first := true
				for seen, err := range thread.Observe(ctx, runtimeclient.ObserveOptions{Include: []string{"messages", "values"}}) {
					Expect(err).NotTo(HaveOccurred())
					value, err := seen.Thread()
					Expect(err).NotTo(HaveOccurred())
					if first {
						Expect(seen.Value).NotTo(BeEmpty())
						Expect(texts(value.Messages)).To(Equal([]string{"user: go", "assistant: gone"}))
						Expect(string(value.Values["color"])).To(Equal(`"red"`))
						first = false
						begun <- struct{}{}
						continue
					}
					Expect(seen.Patch).NotTo(BeEmpty())
					if len(value.Messages) == 4 && value.Thread.LastRun.Status == runtimev1.RunSucceeded && string(value.Values["color"]) == `"blue"` {
						Expect(text(value.Messages[3])).To(Equal("assistant: gone"))
						return
					}
				}
				Fail("the stream ended: " + fmt.Sprint(ctx.Err()))
			})
		}
		for range 20 {
			Eventually(ctx, begun).Should(Receive())
		}
		say(ctx, t, 2, "go")
		Expect(t.SetValue(ctx, "color", `"blue"`)).To(Succeed())
		watching.Wait()

		out, err := cluster.Plugin(ctx, "-n", ns, "observe", t.Name, "--once", "--include=values")
		Expect(err).NotTo(HaveOccurred(), out)
		var line runtimev1.Observation
		Expect(json.Unmarshal([]byte(out), &line)).To(Succeed())
		Expect(line.Value).To(ContainSubstring(`"values":{"color":"blue"}`))
		out, err = cluster.Plugin(ctx, "-n", ns, "observe", t.Name, "--include=everything")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("--include=everything: it must be one or more of messages, state, values"))
	}, SpecTimeout(5*time.Minute))

	It("begins with the value of a thread that no process has loaded, after a crash and a restart, for twenty watchers at once", Label("EVT-02", "THR-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.On("go", harness.Answer("gone"))})
		say(ctx, t, 1, "go")
		Expect(t.SetValue(ctx, "color", `"red"`)).To(Succeed())
		manager.Kill()
		Expect(manager.Start(ctx)).To(Succeed())
		c, err := runtimeclient.New(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		thread := c.Thread(ns, t.Name)
		begun := make(chan struct{}, 20)
		var watching sync.WaitGroup
		for range 20 {
			watching.Go(func() {
				defer GinkgoRecover()
				first := true
				for {
					for seen, err := range thread.Observe(ctx, runtimeclient.ObserveOptions{Include: []string{"messages", "values"}}) {
						if first && apierrors.IsServiceUnavailable(err) {
							break // the API server has not found the new process yet
						}
						Expect(err).NotTo(HaveOccurred())
						value, err := seen.Thread()
						Expect(err).NotTo(HaveOccurred())
						if first {
							Expect(texts(value.Messages)).To(Equal([]string{"user: go", "assistant: gone"}))
							Expect(string(value.Values["color"])).To(Equal(`"red"`))
							first = false
							begun <- struct{}{}
						}
						if len(value.Messages) == 4 && value.Thread.LastRun.Status == runtimev1.RunSucceeded {
							return
						}
					}
					Expect(ctx.Err()).NotTo(HaveOccurred())
				}
			})
		}
		for range 20 {
			Eventually(ctx, begun).Should(Receive())
		}
		say(ctx, t, 2, "go") // it is followed, too
		watching.Wait()
		for _, err := range c.Thread(ns, "absent").Observe(ctx, runtimeclient.ObserveOptions{}) {
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		}
	}, SpecTimeout(5*time.Minute))

	It("serves WebSockets, behind the right of its own", Label("EVT-02", "K8S-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.On("go", harness.Answer("gone"))})
		conn := dialThread(ctx, t, "observe", runtimev1.ObserveSubprotocol)
		conn.SetReadLimit(16 << 20)
		read := func() (o runtimev1.Observation) {
			GinkgoHelper()
			_, body, err := conn.Read(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(json.Unmarshal(body, &o)).To(Succeed())
			return o
		}
		Expect(string(read().Value)).To(ContainSubstring(`"messages":[]`))
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, func() string { return string(read().Patch) }).Should(ContainSubstring(`"content":"gone"`))
	}, SpecTimeout(5*time.Minute))

	It("waits for versions, and tells which threads of a list have changed", Label("EVT-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.On("go", harness.Answer("gone"))})
		c, err := runtimeclient.New(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		thread := c.Thread(ns, t.Name)
		rec, err := thread.Get(ctx)
		Expect(err).NotTo(HaveOccurred())

		browser, err := rest.HTTPClientFor(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, cluster.Config.Host+"/apis/runtime.skein.dev/v1alpha1/namespaces/"+ns+"/history?watch=true", nil)
		Expect(err).NotTo(HaveOccurred())
		resp, err := browser.Do(req)
		Expect(err).NotTo(HaveOccurred())
		defer resp.Body.Close()
		Expect(resp.StatusCode).To(Equal(http.StatusOK))
		var waiting sync.WaitGroup
		for range 20 {
			waiting.Go(func() {
				defer GinkgoRecover()
				v, err := thread.FlushVersion(ctx, rec.V+3)
				Expect(err).NotTo(HaveOccurred())
				Expect(v).To(BeNumerically(">=", rec.V+3))
			})
		}
		say(ctx, t, 1, "go")
		waiting.Wait()
		now, err := thread.Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, err = thread.FlushVersion(ctx, now.V+1000)
		Expect(apierrors.IsTimeout(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(fmt.Sprintf("after 5s, and version %d had not been written", now.V+1000))))

		told := func(data string) bool {
			var list runtimev1.ThreadHistoryList
			Expect(json.Unmarshal([]byte(data), &list)).To(Succeed())
			return slices.ContainsFunc(list.Items, func(i runtimev1.ThreadHistory) bool {
				Expect(i.Namespace).To(Equal(ns))
				return i.ThreadID == rec.ThreadID && i.SummaryStats.MessageCount == 2
			})
		}
		for lines := bufio.NewScanner(resp.Body); ; {
			Expect(lines.Scan()).To(BeTrue(), "the stream ended: %v", lines.Err())
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && told(data) {
				break
			}
		}
	}, SpecTimeout(5*time.Minute))
})
