package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/kube/definitions"
)

var _ = Describe("A gateway", Label("IDS-03"), func() {
	It("answers a request that is refused for any conversation with the id that it has proved, and with no new one", func() {
		keys := func(g *definitions.Gateway) { g.APIKeys = [][]byte{[]byte("a key of the gateway")} }
		users := func(g *definitions.Gateway) {
			g.UserHeader, g.UserKey = "X-User-Id", []byte("another key of 32 bytes, or about")
		}
		refused := map[string]*http.Request{
			"of another site's form":      from("192.0.2.1:4", httptest.NewRequest(http.MethodPost, "/ns/chat/v1/new", nil)),
			"of another site's preflight": from("192.0.2.1:4", httptest.NewRequest(http.MethodOptions, "/ns/chat/v1/new", nil)),
			"of another site's WebSocket": from("192.0.2.1:4", httptest.NewRequest(http.MethodGet, "/ns/chat/v1/socket", nil)),
			"without a key":               get(),
		}
		refused["of another site's preflight"].Header.Set("Access-Control-Request-Method", "POST")
		refused["of another site's WebSocket"].Header.Set("Upgrade", "websocket")
		id := ask(serverOf(nil), get()).Header.Get("x-thread-id")
		for what, r := range refused {
			var edit func(*definitions.Gateway)
			status := http.StatusForbidden
			if what == "without a key" {
				edit, status = keys, http.StatusUnauthorized
			} else {
				r.Header.Set("Origin", "https://evil.example")
			}
			for sent, want := range map[string]string{"": "", "thrd_00000000000000000000000000;AAAA": "", id: id} {
				r := r.Clone(r.Context())
				if sent != "" {
					r.Header.Set("x-thread-id", sent)
				}
				got := ask(serverOf(edit), r)
				Expect(got.StatusCode).To(Equal(status), what)
				Expect(got.Header.Get("x-session-id")).To(HavePrefix("sess_"), what)
				Expect(got.Header.Get("x-thread-id")).To(Equal(want), what)
				if want == "" {
					Expect(got.Cookies()).To(BeEmpty(), what)
					continue
				}
				Expect(got.Cookies()).To(ConsistOf(And(HaveField("Name", "atid"), HaveField("Value", url.QueryEscape(strings.Replace(id, ";", ".", 1))))), what)
				Expect(got.Header.Get("Access-Control-Allow-Origin")).To(BeEmpty(), "no page of another site can read it")
			}
		}
		r := refused["of another site's form"].Clone(context.Background())
		r.Header.Set("x-thread-id", id)
		Expect(ask(serverOf(users), r).Header.Get("x-thread-id")).To(BeEmpty(), "the id of a client says nothing where users count")

		r = refused["of another site's preflight"].Clone(context.Background())
		r.Header.Set("Origin", "https://www.example.com")
		got := ask(serverOf(func(g *definitions.Gateway) { g.Origins = []string{"https://www.example.com"} }), r)
		Expect(got.StatusCode).To(Equal(http.StatusNoContent))
		Expect(got.Header.Get("x-session-id")).To(HavePrefix("sess_"))
		Expect(got.Header).NotTo(Or(HaveKey("X-Thread-Id"), HaveKey("Set-Cookie")), "browsers neither send nor keep ids there")
	})

	It("lets pages of other origins in only where it is told to", func() {
		post := func(header ...string) *http.Request {
			r := httptest.NewRequest(http.MethodPost, "/ns/chat/v1/new", nil)
			r.Host = "chat.example.com"
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			return r
		}
		s := serverOf(func(g *definitions.Gateway) { g.Origins = []string{"https://www.example.com"} })
		for _, row := range []struct {
			r      *http.Request
			status int
			origin string
		}{
			{post(), 204, ""}, // no browser
			{post("Sec-Fetch-Site", "same-origin"), 204, ""},
			{post("Origin", "https://chat.example.com"), 204, ""},
			{post("Origin", "https://www.example.com", "Sec-Fetch-Site", "cross-site"), 204, "https://www.example.com"},
			{post("Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"), 403, ""},
			{post("Origin", "https://www.example.com.evil.example"), 403, ""},
			{post("Origin", "null"), 403, ""},
			{post("Sec-Fetch-Site", "same-site"), 403, ""},
		} {
			got := ask(s, row.r)
			Expect([]any{got.StatusCode, got.Header.Get("Access-Control-Allow-Origin")}).To(Equal([]any{row.status, row.origin}), "%v", row.r.Header)
		}
	})

	It("lets no page of another origin in unless it is told to", func() {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			r := httptest.NewRequest(method, "/ns/chat/v1/new", nil)
			r.Host = "chat.example.com"
			r.Header.Set("Origin", "https://www.example.com")
			if method == http.MethodOptions {
				r.Header.Set("Access-Control-Request-Method", http.MethodPost)
			}
			got := ask(serverOf(nil), r)
			if method != http.MethodGet {
				Expect(got.StatusCode).To(Equal(http.StatusForbidden), method)
			}
			for name := range got.Header {
				Expect(name).NotTo(HavePrefix("Access-Control-"), method)
			}
			Expect(got.Header.Get("Cross-Origin-Resource-Policy")).To(Equal("same-origin"), method)
		}
	})
})
