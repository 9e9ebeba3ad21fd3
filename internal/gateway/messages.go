package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kjson "sigs.k8s.io/json"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/gateway/openai"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Message is a message as end users see it: what they and the agent said, without tools and reasoning.
type Message struct {
	ID   string `json:"id"`
	Role string `json:"role"` // user or assistant
	// Content is the text.
	Content string `json:"content"`
	// CreatedAt is in microseconds since 1970.
	CreatedAt int64 `json:"createdAt"`
	// Queued is true while the agent has not taken the message.
	Queued bool `json:"queued,omitempty"`
}

// newMessage is the body of POST v1/message.
type newMessage struct {
	Content string `json:"content"`
}

// page is the answer to GET v1/messages.
type page struct {
	Messages []Message `json:"messages"` // oldest first
	// NextOffset is where the next older page begins; it is absent in the last one.
	NextOffset int `json:"nextOffset,omitempty"`
}

// Sizes of pages.
const (
	defaultPage = 50
	maxPage     = 200
	maxOffset   = 1 << 30
)

// metadataSession is the key of a message's metadata that names the request that brought it (IDS-05).
const metadataSession = "sessionId"

// metadataDigest is the key of a message's metadata that has the digest of what a client sent with an Idempotency-Key. Hooks may
// change the content, and secrets are taken out of it.
const metadataDigest = "digest"

// maxPageBytes bounds the texts of a page.
const maxPageBytes = 8 << 20

// messages answers GET v1/messages: what was said in the client's own conversation, the newest page first.
func (s *Server) messages(q *request) error {
	limit, err := number(q, "limit", defaultPage, 1, maxPage)
	if err != nil {
		return err
	}
	offset, err := number(q, "offset", 0, 0, maxOffset)
	if err != nil {
		return err
	}
	out := page{Messages: []Message{}}
	if !q.fresh {
		st, _, err := s.open(q)
		switch {
		case errors.Is(err, store.ErrNotFound): // nothing has been said yet
		case err != nil:
			return err
		default:
			adjust, err := membudget.Reserve(q.Context(), maxPageBytes)
			if err != nil {
				return err
			}
			stored, err := st.Messages(q.Context(), store.MessageQuery{Limit: limit, Offset: offset, Order: "desc", MaxBytes: maxPageBytes})
			if err != nil {
				return err
			}
			adjust(2 * stored.Bytes()) // once as messages, once as they are sent
			for i := len(stored.Messages) - 1; i >= 0; i-- {
				if m, ok := visibleMessage(&stored.Messages[i]); ok {
					out.Messages = append(out.Messages, m)
				}
			}
			if stored.HasMore {
				out.NextOffset = offset + len(stored.Messages)
			}
		}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return s.write(q, http.StatusOK, body)
}

// number returns a parameter of the query that is a whole number within bounds.
func number(q *request, key string, def, lowest, highest int) (int, error) {
	query, err := url.ParseQuery(q.URL.RawQuery)
	if err != nil {
		return 0, badRequest("the query cannot be read: escape special characters in it")
	}
	values := query[key]
	if len(values) > 1 {
		return 0, badRequest("set " + key + " once, not " + strconv.Itoa(len(values)) + " times")
	}
	if len(values) == 0 || values[0] == "" {
		return def, nil
	}
	n, err := strconv.Atoi(values[0])
	if err != nil || n < lowest || n > highest {
		return 0, badRequest(key + " must be a whole number from " + strconv.Itoa(lowest) + " to " + strconv.Itoa(highest))
	}
	return n, nil
}

// failedAnswer stands for an answer that an agent could not finish.
const failedAnswer = "(the agent could not finish its answer)"

// visibleMessage returns what end users see of a message, and whether they see it at all.
func visibleMessage(m *store.Message) (Message, bool) {
	if m.Role != store.RoleUser && m.Role != store.RoleAssistant || m.Silent || m.Depth > 0 || m.Content == nil || *m.Content == "" {
		return Message{}, false
	}
	queued, _ := m.Metadata["queued"].(bool)
	content := *m.Content
	if m.Role == store.RoleAssistant && m.Status == store.MessageFailed {
		content = failedAnswer // what is stored says why, with addresses and names of the cluster
	}
	return Message{ID: m.ID, Role: string(m.Role), Content: content, CreatedAt: m.CreatedAt, Queued: queued}, true
}

// message answers POST v1/message: it queues the message in the client's conversation, and sends the agent's answer, whole
// or as server-sent events.
func (s *Server) message(q *request) error {
	in, err := readMessage(q)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(q)
	if err != nil {
		return err
	}
	return s.say(q, &saying{content: in.Content, key: key}, func() sink { return s.sinkOf(q) })
}

// maxKey is the most characters that an idempotency key may have.
const maxKey = 200

// idempotencyKey returns the key under which a repeat of a request finds the first one, or "".
func idempotencyKey(q *request) (string, error) {
	keys := q.Header.Values(runtimev1.HeaderIdempotencyKey)
	switch {
	case len(keys) == 0:
		return "", nil
	case len(keys) > 1:
		return "", badRequest("send one Idempotency-Key, not " + strconv.Itoa(len(keys)))
	case len(keys[0]) > maxKey:
		return "", badRequest("an Idempotency-Key has 200 characters at most")
	}
	return keys[0], nil
}

// saying is what a client says.
type saying struct {
	content string
	// earlier is what was said before, for a conversation that begins here.
	earlier []openai.Turn
	key     string
}

// say queues a message in the client's conversation and sends the answer. sinkOf is called once the message is queued.
func (s *Server) say(q *request, in *saying, sinkOf func() sink) error {
	leave := q.limiter.enter()
	if leave == nil {
		return tooMany("all clients together")
	}
	defer leave()
	st, row, err := s.ensure(q)
	if err != nil {
		return err
	}
	if len(in.earlier) > 0 {
		if err := recall(q, st, in.earlier); err != nil {
			return err
		}
		in.earlier = nil // it is not needed while the agent works
	}
	if hooks := s.opts.Engine.MessageHooks(q.Context(), row); hooks != nil {
		st = st.WithHooks(hooks)
	}
	metadata := map[string]any{metadataSession: sessionOf(q.answer.Header())}
	if in.key != "" {
		metadata[metadataDigest] = digestOf(in.content)
	}
	sent, err := s.opts.Engine.Queue(q.Context(), st, row, thread.NewMessage{Content: &in.content, IdempotencyKey: in.key, Metadata: metadata}, "")
	if err != nil {
		return err
	}
	if was, ok := sent.Metadata[metadataDigest]; ok && in.key != "" && was != digestOf(in.content) {
		return errUsedKey
	}
	q.body.release()
	return s.await(q, sinkOf(), row.ID, answerAfter(row, sent), sent.ID)
}

// answerAfter returns after which entry of the log the answer to a message is. row is the conversation as it was before the message was
// sent. The answer to a repeat of a message that was taken before begins with that message.
func answerAfter(row *store.Thread, sent *store.Message) int64 {
	if sent.Status == store.MessagePending {
		return row.LastSeq
	}
	return max(sent.Seq-1, 0) // a message that was deleted has no place: then the whole log is read
}

// readBody reads a body of JSON, of at most some bytes.
func readBody(q *request, most int32, tooLarge *problem) ([]byte, error) {
	if media, _, err := mime.ParseMediaType(q.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, errMedia
	}
	return readUpTo(q, most, tooLarge, membudget.JSONCost)
}

// readUpTo reads a body of at most some bytes. What it takes, and what is read from it by cost, counts until q.body is released.
func readUpTo(q *request, most int32, tooLarge *problem, cost func([]byte) int64) ([]byte, error) {
	part, _ := membudget.Part(q.Context()) // release closes it
	q.body = &metered{Reader: http.MaxBytesReader(q.answer, q.Body, int64(most)), own: q.limiter.bodies, memory: membudget.From(part)}
	body, err := membudget.ReadAll(part, q.body.memory, q.body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge
	case errors.Is(err, errBodies):
		return nil, errBodies
	case membudget.Refused(err):
		return nil, err
	case err != nil:
		return nil, badRequest("the body did not arrive whole: send it again, and faster")
	}
	// The time of a request ends with its body. The answer has a time of its own.
	_ = http.NewResponseController(q.answer).SetReadDeadline(time.Time{})
	if cost == nil {
		return body, nil
	}
	return body, q.body.memory.Draw(part, cost(body))
}

// readMessage reads the body of POST v1/message.
func readMessage(q *request) (*newMessage, error) {
	body, err := readBody(q, q.gateway.Limits.MessageBytes, errTooMuch)
	if err != nil {
		return nil, err
	}
	var in newMessage
	strict, err := kjson.UnmarshalStrict(body, &in)
	switch {
	case err != nil || len(strict) > 0:
		return nil, badRequest(`send a JSON object with content and nothing else, such as {"content": "hello"}`)
	case strings.TrimSpace(in.Content) == "":
		return nil, badRequest("content is empty: say something")
	case len(in.Content) > runtimev1.MaxContentBytes:
		return nil, errTooMuch
	}
	return &in, nil
}

// open returns the client's conversation. It returns store.ErrNotFound when nothing has been said in it.
func (s *Server) open(q *request) (*thread.State, *store.Thread, error) {
	name := kube.GatewayThread(q.gateway, q.id)
	obj, err := s.finder.Object(q.Context(), q.gateway.Namespace, name)
	switch {
	case err != nil:
		return nil, nil, err
	case obj == nil:
		return nil, nil, store.ErrNotFound
	case !kube.MadeByGateway(obj, q.gateway):
		return nil, nil, kube.ErrOtherThread
	case !obj.DeletionTimestamp.IsZero():
		return nil, nil, errUnavailable // its name is free soon
	}
	return s.finder.Open(q.Context(), q.gateway.Namespace, name)
}

// ensure returns the client's conversation, which it makes when there is none.
func (s *Server) ensure(q *request) (*thread.State, *store.Thread, error) {
	if !q.fresh {
		st, row, err := s.open(q)
		if !errors.Is(err, store.ErrNotFound) {
			return st, row, err
		}
	}
	if !q.limiter.begun.Allow() {
		return nil, nil, tooMany("new conversations of all clients together")
	}
	if err := s.opts.Engine.CheckMessageRoom(q.Context(), q.gateway.Namespace); err != nil {
		return nil, nil, err // before a Thread is made for a message that is then refused
	}
	// What is begun for a client who then leaves has an end all the same.
	ctx, cancel := s.finder.DetachedContext(q.Context())
	defer cancel()
	made, err := s.opts.Objects.CreateGatewayThread(ctx, q.gateway, q.id, q.user)
	if err != nil {
		return nil, nil, err
	}
	// A client who is refused because the quotas of the namespace leave no room leaves no Thread, which would take room once there
	// is some.
	st, row, err := s.finder.OpenMade(ctx, made, s.removeRefused, skeinv1.ReasonQuotaExceeded) // waits until it is set up
	if errors.Is(err, lookup.ErrDeleted) {
		return nil, nil, errUnavailable // its name is free soon
	}
	return st, row, err
}

// removeRefused deletes the Thread of a client who is refused.
func (s *Server) removeRefused(ctx context.Context, t *skeinv1.Thread) error {
	err := s.opts.Objects.RemoveRefused(ctx, t)
	if err != nil && !apierrors.IsConflict(err) {
		logr.FromContextOrDiscard(ctx).Error(err, "cannot delete the Thread of a client who was refused; it begins when there is room")
	}
	return err
}
