// Package reviewtest has an API server that answers reviews, for tests. Some of its answers wait until a test lets them go.
package reviewtest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Server answers reviews. It accepts each token as the name of a user, who may do everything. It accepts no token that begins with "forged",
// and gives no right to a user with "flood" in the name; reviews of these wait until Release is called.
type Server struct {
	*httptest.Server
	held, closed chan struct{}
	once         sync.Once

	mu         sync.Mutex
	busy, peak int // reviews that wait
}

// NewServer returns a server that listens.
func NewServer() *Server {
	s := &Server{held: make(chan struct{}), closed: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	return s
}

// Release lets all reviews end.
func (s *Server) Release() { s.once.Do(func() { close(s.held) }) }

// Close releases all reviews and stops the server.
func (s *Server) Close() {
	s.Release()
	close(s.closed)
	s.Server.Close()
}

// Counts returns how many reviews wait, and how many waited at most.
func (s *Server) Counts() [2]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return [2]int{s.busy, s.peak}
}

func (s *Server) wait() {
	s.mu.Lock()
	s.busy++
	s.peak = max(s.peak, s.busy)
	s.mu.Unlock()
	<-s.held
	s.mu.Lock()
	s.busy--
	s.mu.Unlock()
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	switch {
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		if strings.HasPrefix(review.Spec.Token, "forged") {
			s.wait()
		} else {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: review.Spec.Token}}
		}
		answer = review
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		if strings.Contains(review.Spec.User, "flood") {
			s.wait()
		} else {
			review.Status.Allowed = true
		}
		answer = review
	case strings.Contains(r.URL.Path, "/configmaps/"):
		answer = corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "extension-apiserver-authentication"}}
	default: // lists and watches, which last
		select {
		case <-s.closed:
		case <-r.Context().Done():
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}
