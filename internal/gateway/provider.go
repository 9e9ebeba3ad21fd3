package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-logr/logr"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/gateway/ids"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// Bounds of id providers.
const (
	maxIDAnswer = 4 << 10 // of the body of an answer
	maxAsking   = 64      // requests of a gateway that wait for ids at once
)

// idQuestion is what a provider is asked.
type idQuestion struct {
	Namespace string `json:"namespace"`
	Gateway   string `json:"gateway"`
	Method    string `json:"method"`
	Path      string `json:"path"`    // below that of the gateway
	Address   string `json:"address"` // of the client
	// Headers are those that the gateway names, by their names in lower case.
	Headers map[string]string `json:"headers"`
	// ThreadID is the id that the client has proved to have, or "".
	ThreadID string `json:"threadId"`
}

// idAnswer is what a provider answers.
type idAnswer struct {
	ThreadID string `json:"threadId"`
}

// provide finds the conversation of a request whose gateway has a provider, and says in the answer which one it is. It
// returns why the request must be refused.
func (s *Server) provide(q *request, path string) error {
	id, err := s.idFromProvider(q, path)
	if err != nil {
		return err
	}
	q.id = id
	q.gateway.IDs.Set(q.answer.Header(), id, secure(q.Request))
	if !q.limiter.conversation(id) {
		return tooMany(thisConversation)
	}
	return nil
}

// idFromProvider asks the gateway's provider for the id of a request. When it gives none, the request is refused: no other source
// counts.
func (s *Server) idFromProvider(q *request, path string) (string, error) {
	select {
	case q.limiter.asking <- struct{}{}:
		defer func() { <-q.limiter.asking }()
	default:
		return "", tooMany("all clients together")
	}
	ask := idQuestion{
		Namespace: q.gateway.Namespace, Gateway: q.gateway.Name, Method: q.Method, Path: path, Address: s.address(q.Request).String(),
		Headers: map[string]string{},
	}
	for _, name := range q.gateway.Provider.Headers {
		if values := q.Header.Values(name); len(values) > 0 {
			ask.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
		}
	}
	// An id that does not verify is no reason to refuse the request, not even in strict mode: it is the provider's to decide.
	if found := q.gateway.IDs.Of(q.Request); !found.New {
		ask.ThreadID = found.ID
	}
	id, err := s.ask(q, &ask)
	var p *problem
	if err == nil || errors.As(err, &p) {
		return id, err
	}
	logr.FromContextOrDiscard(q.Context()).Info("The id provider of a ThreadGateway gave no id", "cause", err.Error())
	return "", errNoID
}

// ask returns the id that a provider gives, a service or code. Its error is a *problem, or says what is wrong with the provider.
func (s *Server) ask(q *request, ask *idQuestion) (string, error) {
	c := q.gateway.Provider.Code
	if c == nil {
		return s.askProvider(q.Context(), q.gateway, ask)
	}
	headers := make(map[string]any, len(ask.Headers))
	for name, v := range ask.Headers {
		headers[name] = v
	}
	id, err := s.opts.Engine.ThreadID(q.Context(), c, map[string]any{
		"method": ask.Method, "url": urlOf(q), "headers": headers, "threadId": ask.ThreadID,
	})
	switch {
	case errors.Is(err, definition.ErrRefusedUser):
		return "", errUnknownUser
	case err != nil:
		return "", err
	}
	return id, ids.Check(id) // IDS-02
}

// urlOf returns the address of a request, as far as the gateway knows it.
func urlOf(q *request) string {
	u := url.URL{Scheme: "http", Host: q.Host, Path: q.URL.Path, RawPath: q.URL.RawPath, RawQuery: q.URL.RawQuery}
	if secure(q.Request) {
		u.Scheme = "https"
	}
	return u.String()
}

// askProvider returns the id that a service gives. Its error is a *problem, or says what is wrong with the provider.
func (s *Server) askProvider(ctx context.Context, g *definitions.Gateway, ask *idQuestion) (string, error) {
	if s.opts.Network == nil {
		return "", errors.New("there is no network for id providers")
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return "", err
	}
	p := g.Provider
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout, fmt.Errorf("it did not answer within %s", p.Timeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL.String(), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "Skein-Gateway/1")
	if p.Token != nil {
		req.Header.Set("Authorization", "Bearer "+string(p.Token))
	}
	// A redirect is an answer like others: the next address would get the headers of clients.
	c := http.Client{Transport: s.opts.Network.ForIDProviders(g.Namespace), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return "", cause
		}
		return "", errors.New(outbound.Explain(err, p.URL.Hostname()))
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxIDAnswer+1))
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return "", errUnknownUser
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("it answered %s: answer 200 and the id, or 401 to a client that must log in first", resp.Status)
	case err != nil:
		if cause := context.Cause(ctx); cause != nil {
			return "", cause
		}
		return "", errors.New("its answer broke off")
	case len(text) > maxIDAnswer:
		return "", fmt.Errorf("its answer has more than %d bytes", maxIDAnswer)
	}
	var answer idAnswer
	if json.Unmarshal(text, &answer) != nil || answer.ThreadID == "" {
		return "", errors.New(`its answer is not {"threadId": "thrd_…"}`)
	}
	if err := ids.Check(answer.ThreadID); err != nil { // IDS-02
		return "", err
	}
	return answer.ThreadID, nil
}
