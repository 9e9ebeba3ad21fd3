package console

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// noSession is the answer to a browser without a session.
const noSession = "The console does not know this browser: open the address that `kubectl skein console` printed, or run the command again.\n"

// pagePolicy returns the Content-Security-Policy of the page on a port: its own script and style by their names, because the files of threads are below
// the same origin, and nothing that runs beside them.
func pagePolicy(port string) string {
	named := func(file string) string {
		return "http://127.0.0.1:" + port + "/" + file + " http://localhost:" + port + "/" + file
	}
	return "default-src 'none'; script-src " + named("console.js") + "; style-src " + named("console.css") + "; img-src 'self' blob:; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
}

// guarded answers requests that this server must not serve: those by another name, which a page of another site may have bound to
// loopback, those without the cookie, and those that another site caused.
func (s *Server) guarded(next http.Handler) http.Handler {
	var origins http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header(), s.policy)
		if !s.hosts[strings.ToLower(r.Host)] {
			refuse(w, http.StatusMisdirectedRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("the console has no host %q: open it at http://127.0.0.1:%s/", r.Host, s.port))
			return
		}
		if !plainPath(r.URL) {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, `the path has an empty part, "." or "..": write it without them`)
			return
		}
		if r.URL.Path == loginPath {
			s.login(w, r)
			return
		}
		if !s.knows(r) {
			s.refuseStranger(w, r)
			return
		}
		if err := sameOrigin(&origins, r); err != nil {
			refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "another site has made this request: the console serves requests of its own page only")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// setHeaders sets the headers of all answers.
func setHeaders(h http.Header, policy string) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// plainPath reports whether each part of a path means itself, also after the API server has decoded it.
func plainPath(u *url.URL) bool {
	if u.Path == "/" {
		return true
	}
	if !strings.HasPrefix(u.Path, "/") {
		return false
	}
	for part := range strings.SplitSeq(u.Path[1:], "/") { // Path is decoded: a %2F splits parts here, too
		if part == "" || part == "." || part == ".." || strings.ContainsFunc(part, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return false
		}
	}
	return true
}

// sameOrigin returns an error if another site has caused a request. A request of the page itself says so, or says nothing when no browser
// sent it. Reading is checked too, except for the page: other servers on this machine are the same site for a browser, and it sends them
// and their pages the cookie.
func sameOrigin(origins *http.CrossOriginProtection, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || !isUpgrade(r) && !strings.HasPrefix(r.URL.Path, "/api") {
		return origins.Check(r)
	}
	strict := *r
	strict.Method = http.MethodPost
	return origins.Check(&strict)
}

const loginPath = "/login"

func (s *Server) cookieName() string { return "skein-console-" + s.port }

// login opens a session for a browser that knows the token.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		unused(w, r)
		return
	}
	if token := r.URL.Query().Get("token"); subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 && !s.opening.use(token) {
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "the token is not that of this console: open the address that `kubectl skein console` printed last")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: s.cookieName(), Value: s.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	if r.Header.Get("Sec-Fetch-Site") != "cross-site" {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	// A browser does not send the cookie with a redirect that began at a link of another site. It does after a refresh.
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(`<!doctype html><html lang="en"><title>Skein</title><meta http-equiv="refresh" content="0;url=/"><p><a href="/">Open the console</a></p></html>`))
}

// knows reports whether a request has the cookie of this server.
func (s *Server) knows(r *http.Request) bool {
	for _, c := range r.CookiesNamed(s.cookieName()) {
		if subtle.ConstantTimeCompare([]byte(c.Value), []byte(s.session)) == 1 {
			return true
		}
	}
	return false
}

// refuseStranger answers a request without the cookie.
func (s *Server) refuseStranger(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/api") {
		refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, strings.TrimSpace(noSession))
		return
	}
	http.Error(w, strings.TrimSpace(noSession), http.StatusUnauthorized)
}
