package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// ChatServer speaks OpenAI's streaming chat completions on loopback and answers as a test says.
type ChatServer struct {
	*httptest.Server
	mu       sync.Mutex
	answer   func(w http.ResponseWriter, r *http.Request, req ChatRequest)
	requests []ChatRequest
	keys     []string
}

// ChatRequest is the part of a request that tests look at.
type ChatRequest struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCallID string          `json:"tool_call_id"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	// Body is all of the request.
	Body map[string]any `json:"-"`
}

// NewChatServer starts a server that gives every request to answer.
func NewChatServer(answer func(w http.ResponseWriter, r *http.Request, req ChatRequest)) *ChatServer {
	s := &ChatServer{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

func (s *ChatServer) serve(w http.ResponseWriter, r *http.Request) {
	var req ChatRequest
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = errors.Join(json.Unmarshal(body, &req), json.Unmarshal(body, &req.Body))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, req)
	s.keys = append(s.keys, r.Header.Get("Authorization"))
	answer := s.answer
	s.mu.Unlock()
	answer(w, r, req)
}

// Answer replaces the way it answers.
func (s *ChatServer) Answer(f func(w http.ResponseWriter, r *http.Request, req ChatRequest)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// Requests gives what was asked so far, and the Authorization headers that came with it.
func (s *ChatServer) Requests() ([]ChatRequest, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]ChatRequest(nil), s.requests...), append([]string(nil), s.keys...)
}

// Say streams pieces of text as one answer, the way the real API does.
func Say(w http.ResponseWriter, model string, pieces ...string) { SaySlowly(w, model, 0, pieces...) }

// SaySlowly is Say with a pause before each piece.
func SaySlowly(w http.ResponseWriter, model string, pause time.Duration, pieces ...string) {
	chunks := []map[string]any{{"role": "assistant", "content": ""}}
	for _, p := range pieces {
		chunks = append(chunks, map[string]any{"content": p})
	}
	stream(w, model, func(int) { time.Sleep(pause) }, chunks, "stop")
}

// SayWhen is Say, but the last piece comes once goOn is closed.
func SayWhen(w http.ResponseWriter, model string, goOn <-chan struct{}, pieces ...string) {
	chunks := []map[string]any{{"role": "assistant", "content": ""}}
	for _, p := range pieces {
		chunks = append(chunks, map[string]any{"content": p})
	}
	before := func(i int) {
		if i == len(chunks)-1 {
			<-goOn
		}
	}
	stream(w, model, before, chunks, "stop")
}

// CallTool streams one tool call, its arguments split over two chunks.
func CallTool(w http.ResponseWriter, model, id, name, args string) {
	half := len(args) / 2
	call := func(fields map[string]any) map[string]any {
		return map[string]any{"tool_calls": []any{fields}}
	}
	stream(w, model, func(int) {}, []map[string]any{
		call(map[string]any{"index": 0, "id": id, "type": "function", "function": map[string]any{"name": name, "arguments": ""}}),
		call(map[string]any{"index": 0, "function": map[string]any{"arguments": args[:half]}}),
		call(map[string]any{"index": 0, "function": map[string]any{"arguments": args[half:]}}),
	}, "tool_calls")
}

// stream writes deltas as an answer. It calls before with the index of each one before it writes that.
func stream(w http.ResponseWriter, model string, before func(i int), deltas []map[string]any, finish string) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(choices []any, usage any) {
		b, _ := json.Marshal(map[string]any{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": choices, "usage": usage})
		_, _ = fmt.Fprintf(w, "data: %s\n\n", b)
		_ = http.NewResponseController(w).Flush()
	}
	for i, d := range deltas {
		before(i)
		send([]any{map[string]any{"index": 0, "delta": d, "finish_reason": nil}}, nil)
	}
	send([]any{map[string]any{"index": 0, "delta": map[string]any{}, "finish_reason": finish}}, nil)
	send([]any{}, map[string]any{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
	_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
}
