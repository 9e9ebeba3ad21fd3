package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/gateway/ids"
	"github.com/skein-dev/skein/internal/kube/definitions"
)

// request is one request of a client, as the gateway understands it.
type request struct {
	*http.Request
	answer  http.ResponseWriter
	gateway *definitions.Gateway
	limiter *limiter
	id      string // of the conversation
	// fresh reports that the id is new.
	fresh bool
	user  string
	body  *metered // nil while it is not read
}

// paths are what a gateway serves, with the method and who answers.
var paths = map[string]struct {
	method string
	handle func(*Server, *request) error
}{
	"v1/message":          {http.MethodPost, (*Server).message},
	"v1/messages":         {http.MethodGet, (*Server).messages},
	"v1/new":              {http.MethodPost, (*Server).begin},
	"v1/chat/completions": {http.MethodPost, (*Server).chat},
	socketPath:            {http.MethodGet, nil},
}

// segment is a name in a path, as Kubernetes names objects. Others are not looked up.
var segment = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

// serve answers every request.
func (s *Server) serve(answer http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(answer).SetWriteDeadline(time.Time{}) // of the request before
	protect(answer.Header())
	session := ids.NewSession() // IDS-05
	w, record := s.audit(answer, r, session)
	defer record()
	w.Header().Set(ids.SessionHeader, session)
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	if len(parts) < 3 || !segment.MatchString(parts[0]) || !segment.MatchString(parts[1]) {
		refuse(w, errNoGateway)
		return
	}
	w.setCaller("gateway", parts[0], parts[1], parts[2])
	if s.opts.Draining != nil && s.opts.Draining() {
		refuse(w, errUnavailable)
		return
	}
	if parts[2] == webhookPath {
		w.setCaller("webhookreceiver", parts[0], parts[1], parts[2])
	}
	ctx, done := s.opts.Memory.Begin(w.withLogValues(r.Context()), parts[0])
	defer done()
	r = r.WithContext(ctx)
	if parts[2] == webhookPath {
		s.deliver(w, r, parts[0], parts[1])
		return
	}
	g, err := s.opts.Gateways.Find(r.Context(), parts[0], parts[1])
	var notReady *definition.NotReadyError
	switch {
	case errors.As(err, &notReady):
		// A gateway that does not exist and one that is not ready look alike, so clients cannot find names by asking.
		refuse(w, errNoGateway)
		return
	case err != nil:
		refuse(w, problemOf(r.Context(), err))
		return
	}
	q := &request{Request: r, answer: w, gateway: g, limiter: s.limits.limiterOf(g)}
	defer func() { q.body.release() }()
	if err := s.serveGateway(q, parts[2]); err != nil {
		refuse(w, q.problemOf(err))
	}
}

// protect sets the headers that make an answer safe in a browser: it is never a page, a script or a frame, and no cache
// keeps it.
func protect(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}

// serveGateway answers a request to a gateway that exists.
func (s *Server) serveGateway(q *request, path string) error {
	answered, err := cross(q, path)
	if err != nil {
		keepProvedID(q)
	}
	if answered || err != nil {
		return err
	}
	refused := s.authorize(q)
	if refused != nil {
		keepProvedID(q)
	}
	if refused == nil && q.gateway.Provider == nil {
		refused = s.identify(q)
	}
	if whose := q.limiter.request(q.id, s.address(q.Request)); whose != "" {
		return tooMany(whose)
	}
	if refused == nil && q.gateway.Provider != nil {
		refused = s.provide(q, path)
	}
	q.nameThread()
	if refused != nil {
		return refused
	}
	lasting := q.Method == http.MethodPost || path == socketPath || isEndpoint(path)
	done, err := s.enter(callerName("gateway", q.gateway.Namespace, q.gateway.Name), q.gateway.Namespace, lasting)
	defer done()
	if err != nil {
		return err
	}
	return s.route(q, path)
}

// route answers a request that is taken.
func (s *Server) route(q *request, path string) error {
	if isEndpoint(path) {
		q.Request = beginTrace(q.answer, q.Request, "gateway", endpointsPath)
		return s.endpoint(q, path)
	}
	if name, ok := strings.CutPrefix(path, modelsPath); ok && (name == "" || name[0] == '/') {
		q.Request = beginTrace(q.answer, q.Request, "gateway", modelsPath)
		return s.models(q, strings.TrimPrefix(name, "/"))
	}
	p, ok := paths[path]
	if !ok {
		return errNoPath
	}
	if q.Method != p.method && (p.method != http.MethodGet || q.Method != http.MethodHead) {
		q.answer.Header().Set("Allow", p.method)
		return methodNotAllowed(p.method)
	}
	if path == socketPath { // it lasts: its messages have traces of their own
		return s.socket(q)
	}
	q.Request = beginTrace(q.answer, q.Request, "gateway", path)
	return p.handle(s, q)
}

// authorize returns why a request must be refused whose key is wrong, where keys are needed.
func (s *Server) authorize(q *request) error {
	if len(q.gateway.APIKeys) == 0 {
		return nil
	}
	scheme, given, _ := strings.Cut(q.Header.Get("Authorization"), " ")
	sum, ok := sha256.Sum256([]byte(strings.TrimSpace(given))), 0
	for _, key := range q.gateway.APIKeys {
		want := sha256.Sum256(key) // of one length, so that the time tells nothing
		ok |= subtle.ConstantTimeCompare(sum[:], want[:])
	}
	if ok != 1 || !strings.EqualFold(scheme, "Bearer") || len(q.Header.Values("Authorization")) != 1 {
		q.answer.Header().Set("WWW-Authenticate", "Bearer")
		return errNoKey
	}
	return nil
}

// identify finds the conversation of a request and says in the answer which one it is (IDS-03, IDS-06). It returns why the
// request must be refused.
func (s *Server) identify(q *request) error {
	if q.gateway.UserHeader != "" {
		values := q.Header.Values(q.gateway.UserHeader)
		if _, proxy := s.remote(q.Request); !proxy || len(values) != 1 || values[0] == "" || len(values[0]) > maxUser {
			return errNoUser
		}
		q.user = values[0]
		q.id = ids.OfUser(q.gateway.UserKey, q.user)
		q.gateway.IDs.Set(q.answer.Header(), q.id, secure(q.Request))
		return nil
	}
	found := q.gateway.IDs.Of(q.Request)
	q.id, q.fresh = found.ID, found.New
	q.gateway.IDs.Set(q.answer.Header(), q.id, secure(q.Request))
	if found.Refused != nil {
		return unsigned(found.Refused)
	}
	return nil
}

// keepProvedID removes every id from an answer except one that the client has proved to have. It is for requests that are refused before their
// thread matters. A new id would make a browser forget its conversation if it sent no cookie, for example from a form of another site. An
// id that comes from an id provider or a user's name is not shown.
func keepProvedID(q *request) {
	h := q.answer.Header()
	h.Del(ids.Header)
	h.Del("Set-Cookie")
	if q.gateway.UserHeader != "" || q.gateway.Provider != nil {
		return
	}
	if found := q.gateway.IDs.Of(q.Request); !found.New {
		q.gateway.IDs.Set(h, found.ID, secure(q.Request))
	}
}

// maxUser bounds the name of a user, as spec.userID of a Thread does.
const maxUser = 253

// cross answers the questions that browsers ask for pages of other origins, and refuses what such pages may not do.
func cross(q *request, path string) (answered bool, err error) {
	origin := q.Header.Get("Origin")
	allowed := origin != "" && slices.Contains(q.gateway.Origins, origin)
	h := q.answer.Header()
	if len(q.gateway.Origins) > 0 {
		h.Add("Vary", "Origin")
	}
	if allowed {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Credentials", "true")
		h.Set("Access-Control-Expose-Headers", ids.Header+", "+ids.SessionHeader+", Retry-After, "+shouldRetry)
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	}
	if q.Method == http.MethodOptions && q.Header.Get("Access-Control-Request-Method") != "" {
		if !allowed {
			return true, errOrigin
		}
		methods := "GET, POST"
		if isEndpoint(path) {
			methods = "DELETE, GET, HEAD, PATCH, POST, PUT"
		}
		h.Set("Access-Control-Allow-Methods", methods)
		h.Set("Access-Control-Allow-Headers", allowedHeaders)
		h.Set("Access-Control-Max-Age", "600")
		q.answer.WriteHeader(http.StatusNoContent)
		return true, nil
	}
	var forgery http.CrossOriginProtection
	for _, o := range q.gateway.Origins {
		if err := forgery.AddTrustedOrigin(o); err != nil {
			return true, err
		}
	}
	if forgery.Check(q.Request) != nil {
		return true, errOrigin
	}
	return false, nil
}

// allowedHeaders are the headers that pages of other origins may send, with those that OpenAI's client for browsers adds.
const allowedHeaders = "Accept, Authorization, Content-Type, Idempotency-Key, " + ids.Header + ", OpenAI-Organization, OpenAI-Project, " +
	"X-Stainless-Arch, X-Stainless-Lang, X-Stainless-OS, X-Stainless-Package-Version, X-Stainless-Retry-Count, X-Stainless-Runtime, " +
	"X-Stainless-Runtime-Version, X-Stainless-Timeout, X-Stainless-Helper-Method"

// begin answers POST v1/new: the browser has a new conversation from here on. The old one stays.
func (s *Server) begin(q *request) error {
	switch {
	case q.user != "":
		return errUsersThread
	case q.gateway.Provider != nil:
		return errProvided
	}
	h := q.answer.Header()
	h.Del("Set-Cookie")
	q.gateway.IDs.Set(h, ids.New(), secure(q.Request))
	q.answer.WriteHeader(http.StatusNoContent)
	return nil
}

// refuse answers with a problem.
func refuse(w http.ResponseWriter, p *problem) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if p.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retry))
	}
	if p.status == http.StatusUnauthorized && h.Get("WWW-Authenticate") == "" {
		h.Set("WWW-Authenticate", "Session")
	}
	inTime(w)
	w.WriteHeader(p.status)
	_, _ = w.Write(bodyOf(p, sessionOf(h)))
}

// write answers with JSON, without secrets.
func (s *Server) write(q *request, code int, body []byte) error {
	q.answer.Header().Set("Content-Type", "application/json")
	inTime(q.answer)
	q.answer.WriteHeader(code)
	_, _ = q.answer.Write(append(s.opts.Secrets.JSON(q.gateway.Namespace, body), '\n')) // an error means that the client has gone
	return nil
}

// inTime makes a client that does not read the rest of the answer lose its connection.
func inTime(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
}
