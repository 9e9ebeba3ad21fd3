// Package wiretest plays the answers of providers, from their public documentation, to tests of the clients.
package wiretest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"

	"github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Server answers with the files that Play sets. It repeats the last one.
type Server struct {
	*httptest.Server
	mu       sync.Mutex
	files    []string
	requests []Request
}

// Request is a received request.
type Request struct {
	Path   string
	Header http.Header
	Body   map[string]any
}

// New starts a server that ends with the test.
func New() *Server {
	s := &Server{}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	ginkgo.DeferCleanup(s.Close)
	return s
}

// Play sets the answers from now on. Each file has a whole HTTP response, the status line and the headers first. The
// header X-Breaks ends the connection in the middle of the body.
func (s *Server) Play(files ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files = files
}

// Requests returns the received requests, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Last returns the newest request.
func (s *Server) Last() Request {
	ginkgo.GinkgoHelper()
	all := s.Requests()
	Expect(all).NotTo(BeEmpty())
	return all[len(all)-1]
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	req := Request{Path: r.URL.Path, Header: r.Header.Clone()}
	_ = json.NewDecoder(r.Body).Decode(&req.Body)
	s.mu.Lock()
	s.requests = append(s.requests, req)
	file := s.files[0]
	if len(s.files) > 1 {
		s.files = s.files[1:]
	}
	s.mu.Unlock()

	status, header, body := read(file, r)
	breaks := header.Get("X-Breaks") != ""
	header.Del("X-Breaks")
	for name, values := range header {
		w.Header()[name] = values
	}
	w.WriteHeader(status)
	for _, event := range bytes.SplitAfter(body, []byte("\n\n")) { // send one event at a time, as a provider does
		_, _ = w.Write(event)
		_ = http.NewResponseController(w).Flush()
	}
	if breaks {
		panic(http.ErrAbortHandler)
	}
}

// read returns the response in a file.
func read(file string, r *http.Request) (status int, header http.Header, body []byte) {
	defer ginkgo.GinkgoRecover()
	data, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	head, body, found := bytes.Cut(data, []byte("\n\n"))
	Expect(found).To(BeTrue(), "%s has no empty line behind its headers", file)
	head = append(bytes.ReplaceAll(head, []byte("\n"), []byte("\r\n")), "\r\n\r\n"...)
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), r)
	Expect(err).NotTo(HaveOccurred(), file)
	defer func() { _ = res.Body.Close() }()
	return res.StatusCode, res.Header, body
}
