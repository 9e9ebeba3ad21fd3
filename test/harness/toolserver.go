package harness

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
)

// ToolServer is a server on loopback that HTTP tools ask; it keeps what was asked.
type ToolServer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []ToolRequest
}

// ToolRequest is a request as the server got it.
type ToolRequest struct {
	Method, URI, Body string
	Header            http.Header
}

// NewToolServer starts a server that gives every request to answer.
func NewToolServer(answer func(w http.ResponseWriter, r *http.Request, body string)) *ToolServer {
	s := &ToolServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.requests = append(s.requests, ToolRequest{r.Method, r.RequestURI, string(body), r.Header.Clone()})
		s.mu.Unlock()
		answer(w, r, string(body))
	}))
	return s
}

// Requests gives what was asked so far.
func (s *ToolServer) Requests() []ToolRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]ToolRequest(nil), s.requests...)
}
