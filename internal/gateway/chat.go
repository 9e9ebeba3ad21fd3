package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/gateway/openai"
	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/thread/jsonl"
)

// modelsPath is the path of the list of models. Below it each model has a path of its own.
const modelsPath = "v1/models"

// shouldRetry is the header by which OpenAI's clients know whether to send a request again. They do so after most errors
// otherwise, and the agent would get the message twice.
const shouldRetry = "X-Should-Retry"

// chat answers POST v1/chat/completions: the last message of the client goes to its conversation, and the agent's answer
// goes back in the form of OpenAI.
func (s *Server) chat(q *request) error {
	body, err := readBody(q, q.gateway.Limits.ChatBytes, errChatTooLarge)
	if err != nil {
		return err
	}
	in, err := openai.ParseChat(body)
	if err != nil {
		return wrongChat(err)
	}
	if in.Model != q.gateway.Agent {
		return noModel()
	}
	if len(in.Said) > min(int(q.gateway.Limits.MessageBytes), runtimev1.MaxContentBytes) {
		return errTooMuch
	}
	key, err := idempotencyKey(q)
	if err != nil {
		return err
	}
	return s.say(q, &saying{content: in.Said, earlier: in.Earlier, key: key}, func() sink {
		q.answer.Header().Set(shouldRetry, "false") // from here on the agent has the message
		a := openai.Answer{
			ID: "chatcmpl-" + strings.TrimPrefix(sessionOf(q.answer.Header()), "sess_"), Model: q.gateway.Agent, Created: ownclock.Now().Unix(),
		}
		if in.Stream {
			return newChatStream(s, q, a, in.Usage)
		}
		return &chatWhole{wholeSink{server: s, request: q}, a}
	})
}

// wrongChat returns the problem with a request that is not a chat completion that an agent can answer.
func wrongChat(err error) error {
	var wrong *openai.Error
	if !errors.As(err, &wrong) {
		return err
	}
	p := badRequest(wrong.Message)
	p.param, p.code = wrong.Param, wrong.Code
	return p
}

func noModel() *problem {
	return &problem{
		status: http.StatusNotFound, reason: "NotFound", param: "model", code: "model_not_found",
		message: "there is no such model here: GET v1/models lists the one there is",
	}
}

// models answers GET v1/models and GET v1/models/{name}: the agent is the one model.
func (s *Server) models(q *request, name string) error {
	if q.Method != http.MethodGet && q.Method != http.MethodHead {
		q.answer.Header().Set("Allow", http.MethodGet)
		return methodNotAllowed(http.MethodGet)
	}
	m := openai.NewModel(q.gateway.Agent, q.gateway.Created.Unix())
	switch name {
	case "":
		return s.write(q, http.StatusOK, openai.Encode(openai.NewModels(m)))
	case q.gateway.Agent:
		return s.write(q, http.StatusOK, openai.Encode(m))
	}
	return noModel()
}

// recall puts what a client says was said before into its conversation, when that is empty. It is the client's word: it
// has two roles, the user's and the agent's, and calls no tools.
func recall(q *request, st *thread.State, earlier []openai.Turn) error {
	now := jsonl.Time(ownclock.Now().UnixMicro())
	var lines bytes.Buffer
	out := json.NewEncoder(&lines)
	err := out.Encode(jsonl.Manifest{AgentID: q.gateway.Agent, CreatedAt: now, UpdatedAt: now})
	for _, t := range earlier {
		err = errors.Join(err, out.Encode(jsonl.Message{Type: jsonl.TypeMessage, Role: t.Role, Text: t.Content, Timestamp: now}))
	}
	if err != nil {
		return err
	}
	_, err = st.Import(q.Context(), &lines)
	var wrong *thread.ImportError
	switch {
	case errors.Is(err, store.ErrNotEmpty):
		return nil // the conversation knows itself
	case errors.As(err, &wrong):
		return badRequest(fmt.Sprintf("an earlier message cannot be taken over: %s", wrong.Message))
	}
	return err
}

// chatWhole sends an answer as one completion.
type chatWhole struct {
	wholeSink
	answer openai.Answer
}

func (w *chatWhole) end(a *Answer, p *problem) {
	if p == nil && a.Status == statusRunning {
		p = errNotInTime
	}
	if p != nil {
		refuse(w.request.answer, p)
		return
	}
	w.request.answer.Header().Del(shouldRetry)
	_ = w.server.write(w.request, http.StatusOK, openai.Encode(w.answer.Whole(a.text(), usageOf(a))))
}

// chatStream sends an answer as pieces. The pieces together are the text that a whole answer has.
type chatStream struct {
	events *eventSink
	answer openai.Answer
	usage  bool

	id    string          // of the message that is being said
	said  strings.Builder // of it, so far
	any   bool            // something has been said at all
	stale bool            // what was said of the message does not count any more
}

func newChatStream(s *Server, q *request, a openai.Answer, usage bool) *chatStream {
	c := &chatStream{events: s.eventsOf(q), answer: a, usage: usage}
	_ = c.send(a.First()) // an error comes back with the next piece
	return c
}

// delta sends a piece of text. When the model has begun again, the rest waits until the message is whole.
func (c *chatStream) delta(p piece) error {
	if p.Reset && p.messageID == c.id && c.said.Len() > 0 {
		c.stale = true
	}
	if p.Text == "" || c.stale && p.messageID == c.id {
		return nil
	}
	return c.say(p.messageID, p.Text)
}

// message sends what of a message has not been sent.
func (c *chatStream) message(m Message) error {
	rest := m.Content
	if m.ID == c.id {
		after, ok := strings.CutPrefix(m.Content, c.said.String())
		if ok {
			rest = after
		} else {
			c.id = "" // pieces are missing or do not count: the whole message follows as a paragraph of its own
		}
	}
	if rest == "" {
		return nil
	}
	return c.say(m.ID, rest)
}

func (c *chatStream) say(messageID, text string) error {
	if messageID != c.id {
		c.id, c.stale = messageID, false
		c.said.Reset()
		if c.any {
			if err := c.send(c.answer.Text(between)); err != nil {
				return err
			}
		}
	}
	c.any = true
	c.said.WriteString(text)
	return c.send(c.answer.Text(text))
}

func (c *chatStream) ping() error { return c.events.ping() }

func (c *chatStream) end(a *Answer, p *problem) {
	if p == nil && a.Status == statusRunning {
		p = errNotInTime
	}
	if p != nil {
		_ = c.data(bytes.TrimSpace(bodyOf(p, sessionOf(c.events.request.answer.Header()))))
		return
	}
	if c.send(c.answer.Last()) != nil {
		return
	}
	if c.usage && c.send(c.answer.Used(usageOf(a))) != nil {
		return
	}
	_ = c.events.write([]byte("data: " + openai.Done + "\n\n"))
}

func (c *chatStream) send(part *openai.Completion) error { return c.data(openai.Encode(part)) }

func (c *chatStream) data(body []byte) error {
	return c.events.write(fmt.Appendf(nil, "data: %s\n\n", c.events.server.opts.Secrets.JSON(c.events.request.gateway.Namespace, body)))
}

// usageOf returns what the run that answered has used.
func usageOf(a *Answer) *openai.Usage {
	u := a.usage
	return openai.NewUsage(u.InputTokens, u.OutputTokens, u.CachedTokens, u.ReasoningTokens)
}
