package console_test

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

var _ = Describe("what comes from the cluster", Label("CON-04"), func() {
	script := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = w.Write([]byte("window.pwned = 1"))
	}

	DescribeTable("is neither a script nor a style nor a frame of the page", func(ctx SpecContext, purpose string) {
		api := recording(script)
		b := open(optionsFor(api.Server))
		Expect(b.get(ctx, thread+"/files/evil.js", "Sec-Fetch-Dest", purpose)).To(haveStatus(http.StatusForbidden, "is never used as "+purpose))
		Expect(b.get(ctx, thread+"/kv/evil", "Sec-Fetch-Dest", purpose)).To(haveStatus(http.StatusForbidden, "is never used as "+purpose))
		Expect(api.requests()).To(BeEmpty())
	},
		Entry(nil, "script"), Entry(nil, "style"), Entry(nil, "worker"), Entry(nil, "serviceworker"), Entry(nil, "iframe"), Entry(nil, "object"), Entry(nil, "embed"), Entry(nil, "manifest"),
	)

	It("has no type of its author's, nor headers that come before an answer", func(ctx SpecContext) {
		api := recording(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</console.js>; rel=preload; as=script")
			w.WriteHeader(http.StatusEarlyHints)
			script(w, r)
		})
		b := open(optionsFor(api.Server))
		got := b.get(ctx, thread+"/files/evil.js")
		for name, value := range map[string]string{
			"Content-Type": "application/octet-stream", "Content-Disposition": "attachment; filename=evil.js", "Content-Security-Policy": "sandbox; default-src 'none'",
			"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY",
		} {
			Expect(got.Header.Values(name)).To(Equal([]string{value}), name)
		}
		Expect(got.Header).NotTo(HaveKey("Link"))
	})

	It("is a file only where the path says so, whatever names are in it", func(ctx SpecContext) {
		api := recording(empty)
		b := open(optionsFor(api.Server))
		got := b.get(ctx, "/apis/runtime.skein.dev/v1alpha1/namespaces/files/threads/files/runs?thumbnail=true")
		Expect(got.StatusCode).To(Equal(http.StatusOK))
		Expect(got.Header).NotTo(HaveKey("Content-Disposition"))
		Expect(got.Header.Get("Content-Type")).To(Equal("application/json"))
	})
})

var _ = Describe("the lists of a viewer whose rights change", Label("CON-01"), func() {
	It("are empty once they may not be read, for pages that are open and for those that come", func(ctx SpecContext) {
		c := startCluster()
		c.put(threadsPath, "a", titled("secret"))
		b := open(optionsFor(c.Server))
		t := b.look(ctx, "demo")
		t.until(ctx, t.complete)
		Expect(t.names("threads")).To(Equal([]string{"a"}))
		c.refuse(func(r *http.Request) *metav1.Status {
			return &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "not any more"}
		})
		c.expire()
		c.breakWatches()
		t.until(ctx, func() bool { return t.errors["threads"] != "" && len(t.names("threads")) == 0 })
		later := b.look(ctx, "demo")
		later.until(ctx, func() bool { return later.errors["threads"] != "" })
		Expect(later.names("threads")).To(BeEmpty())

		c.refuse(nil)
		t.until(ctx, func() bool { return len(t.names("threads")) == 1 && t.errors["threads"] == "" })
	})

	It("have the titles of the list that begins anew, also where their versions are lower", func(ctx SpecContext) {
		c := startCluster()
		c.put(threadsPath, "a", nil)
		c.history = []runtimev1.ThreadHistory{history("a", "of the newer store", 9, true)}
		b := open(optionsFor(c.Server))
		t := b.look(ctx, "demo")
		t.until(ctx, func() bool { return t.rows["threads"]["a"].Archived })
		c.mu.Lock()
		c.history = []runtimev1.ThreadHistory{history("a", "restored", 3, false)}
		c.mu.Unlock()
		c.breakWatches()
		t.until(ctx, func() bool { return t.rows["threads"]["a"].Title == "restored" && !t.rows["threads"]["a"].Archived })
	})

	It("refuse what is no namespace", func(ctx SpecContext) {
		s, _ := counting()
		b := open(optionsFor(s))
		Expect(b.get(ctx, "/api/rights?namespace=a%2Fb")).To(haveStatus(http.StatusBadRequest, `\"a/b\" is no name of a namespace`))
	})
})
