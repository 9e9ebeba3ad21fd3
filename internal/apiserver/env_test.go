package apiserver

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("variables", func() {
	It("are set, shown when they are texts, and removed", Label("ENV-01", "ENV-02"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		Expect(t.SetEnv(ctx, "B", "visible", runtimev1.EnvText)).To(Succeed())
		Expect(t.SetEnv(ctx, "A", "not-visible", "")).To(Succeed())
		_, body := e.do(http.MethodGet, at("hello", "/env"), nil)
		Expect(body).To(And(ContainSubstring(`"visible"`), Not(ContainSubstring("not-visible"))))
		list, err := t.ListEnv(ctx, runtimeclient.Page{Limit: 1})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.HasMore).To(BeTrue())
		Expect(list.Variables).To(ConsistOf(And(HaveField("Name", "A"), HaveField("Type", "secret"), HaveField("Value", BeNil()), HaveField("Origin", "set"))))
		Expect(t.Env(ctx, "B")).To(Equal("visible"))
		Expect(t.UnsetEnv(ctx, "B")).To(BeTrue())
		Expect(e.status(http.MethodGet, at("hello", "/env/B"), "").Reason).To(Equal(metav1.StatusReasonNotFound))
		for _, bad := range []string{"", "{}", `{"value":1}`, `{"value":"x","kind":"text"}`} {
			s := e.status(http.MethodPut, at("hello", "/env/C"), bad)
			Expect(s.Code).To(BeNumerically("<", 500), bad)
		}
		req, err := t.PendingEnv(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(req.Variables).To(BeEmpty())
	})

	It("are set once under an idempotency key, of which nothing is kept that tells the value", Label("ENV-03", "MSG-10"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		put := func(body string) *http.Response {
			resp, _ := e.do(http.MethodPut, at("hello", "/env/PIN"), strings.NewReader(body), runtimev1.HeaderIdempotencyKey, "k")
			return resp
		}
		Expect(put(`{"value":"1234","type":"text"}`).StatusCode).To(Equal(http.StatusOK))
		repeat := put(`{"value":"5678","type":"text"}`)
		Expect(repeat.StatusCode).To(Equal(http.StatusOK), "were the value part of what is kept, this would be another request")
		Expect(repeat.Header).To(HaveKey(http.CanonicalHeaderKey(runtimev1.HeaderIdempotentReplayed)))
		Expect(t.Env(ctx, "PIN")).To(Equal("1234"))
	})

	It("that are secret are in no answer, also where they were before they were secrets", Label("ENV-03"), func(ctx SpecContext) {
		secrets := redact.NewRegistry(nil)
		e := newEnv(func(o *Options) { o.Secrets = secrets })
		keyset, err := envkeys.Generate()
		Expect(err).NotTo(HaveOccurred())
		ring := &envkeys.Keyring{}
		Expect(ring.Use(keyset)).To(BeTrue())
		e.svc.ServeEnv(thread.EnvOptions{Cipher: ring, Secrets: secrets})
		_, t := e.thread("hello")
		_, err = t.Inject(ctx, runtimev1.NewMessage{Content: `say open"sesame`, Silent: true})
		Expect(err).NotTo(HaveOccurred())
		read := func() string {
			_, messages := e.do(http.MethodGet, at("hello", "/messages?includeSilent=true"), nil)
			_, events := e.do(http.MethodGet, at("hello", "/events?follow=false"), nil, "Accept", "text/event-stream")
			return messages + events
		}
		Expect(strings.Count(read(), `open\"sesame`)).To(Equal(2))
		Expect(t.SetEnv(ctx, "KEY", `open"sesame`, "")).To(Succeed())
		Expect(read()).NotTo(ContainSubstring("sesame"))
		Expect(strings.Count(read(), "[redacted]")).To(Equal(2))
		s := e.status(http.MethodPut, at("hello", "/env/KEY"), `{"value":"x","type":"open\"sesame"}`)
		Expect(s.Message).To(And(ContainSubstring("[redacted]"), Not(ContainSubstring("sesame"))))
	})

	It("of other namespaces are not found out by answers over all namespaces", Label("ENV-03", "THR-16"), func(ctx SpecContext) {
		secrets := redact.NewRegistry(nil)
		e := newEnv(func(o *Options) { o.Secrets = secrets })
		for _, ns := range []string{"ns", "payments"} {
			t, _, err := e.svc.Create(ctx, thread.NewThread{Thread: store.Thread{ID: uuid.NewString(), Namespace: ns, Name: "of-" + ns, Agent: "helper", Title: "guess hunter2-canary"}})
			Expect(err).NotTo(HaveOccurred())
			st, err := e.svc.Open(ctx, t.ID)
			Expect(err).NotTo(HaveOccurred())
			_, err = st.Inject(ctx, thread.NewMessage{Role: store.RoleUser, Content: ptr.To("guess hunter2-canary")})
			Expect(err).NotTo(HaveOccurred())
		}
		secrets.Register("payments", "tool/payments/auth", "hunter2-canary")
		for _, path := range []string{"searches?q=guess", "history"} {
			resp, body := e.do(http.MethodGet, "/apis/runtime.skein.dev/v1alpha1/"+path, nil)
			Expect(resp.StatusCode).To(Equal(http.StatusOK), body)
			Expect(body).To(And(ContainSubstring("hunter2-canary"), ContainSubstring("[redacted]"), Not(ContainSubstring("tool/payments"))), path)
			for _, ns := range []string{"ns", "payments"} {
				one := regexp.MustCompile(`"namespace":"` + ns + `".*?"title":"([^"]*)"`).FindStringSubmatch(body)
				Expect(one).To(HaveLen(2), "%s of %s", path, body)
				Expect(one[1]).To(Equal(map[string]string{"ns": "guess hunter2-canary", "payments": "guess [redacted]"}[ns]))
			}
		}
		_, body := e.do(http.MethodGet, "/apis/runtime.skein.dev/v1alpha1/lookups/of-payments", nil)
		Expect(body).To(And(ContainSubstring("[redacted]"), Not(ContainSubstring("hunter2"))))
		s := e.status(http.MethodGet, "/apis/runtime.skein.dev/v1alpha1/searches?q=x&role=hunter2-canary", "")
		Expect(s.Message).NotTo(ContainSubstring("[redacted]"), "what the caller wrote is not checked against the secrets of others")
	})
})
