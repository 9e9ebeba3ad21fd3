package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/flow"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/webhook"
)

// webhookPath is the path of a WebhookReceiver below its namespace and name.
const webhookPath = "v1/webhook"

// Receivers finds WebhookReceivers.
type Receivers interface {
	Receiver(ctx context.Context, namespace, name string) (*definitions.Receiver, error)
}

// ReceivedThreads creates the Threads of deliveries.
type ReceivedThreads interface {
	CreateReceivedThread(ctx context.Context, r *definitions.Receiver, delivery string) (name string, err error)
}

var (
	errForged      = "the delivery is refused: "
	errUsedID      = &problem{status: http.StatusConflict, reason: "Conflict", message: "a delivery with this id and another body was taken before: send a new delivery with an id of its own"}
	errLargeHook   = &problem{status: http.StatusRequestEntityTooLarge, reason: "TooLarge", message: "the delivery is larger than the receiver takes: send less, or raise spec.maxBytes"}
	errNoReceiver  = &problem{status: http.StatusNotFound, reason: "NotFound", message: "nothing is served here: check the address of the webhook"}
	errUseful      = &problem{status: http.StatusUnprocessableEntity, reason: "Invalid", message: "the delivery has no text: send JSON, or text in UTF-8"}
	errThreadEnded = &problem{status: http.StatusGone, reason: "Ended", message: "the thread has ended and takes no more deliveries: name another one in spec.threadRef"}
	errHookWaits   = &problem{status: http.StatusServiceUnavailable, reason: "Unavailable", message: "the delivery was not taken, because the receiver or its thread is not ready: send it again later; conditions of the WebhookReceiver say what is missing", retry: 5}
	errHookFull    = &problem{status: http.StatusTooManyRequests, reason: "TooMany", message: "the delivery was not taken, because too many messages wait in the thread: send it again later", retry: 5}
	errHookRefused = &problem{status: http.StatusBadRequest, reason: "BadRequest", message: "the thread does not take this delivery: its content is not one that a message may have: send JSON, or text in UTF-8 without NUL"}
)

// received is the answer to a delivery.
type received struct {
	Status    string `json:"status"` // accepted, also of a repeat
	Thread    string `json:"thread"`
	MessageID string `json:"messageId"`
}

// receivedMessage is the content of the message that a delivery becomes.
type receivedMessage struct {
	Delivery string          `json:"delivery"`
	Event    string          `json:"event,omitempty"`
	Payload  json.RawMessage `json:"payload"`
}

// hookRates bound what WebhookReceivers take. Deliveries with a signature that fits count towards the receiver. Before the signature is
// checked, a request counts towards its address: otherwise a client that knows the path could use up what the real sender may send.
type hookRates struct {
	mu                  sync.Mutex
	receivers, networks *lru.Cache // by UID, and by UID and network → *rate.Limiter
}

func newHookRates() *hookRates {
	return &hookRates{receivers: lru.New(maxAddresses), networks: lru.New(maxAddresses)}
}

// hookNetwork is a network that sends to a receiver.
type hookNetwork struct {
	receiver string
	network  netip.Prefix
}

// arrives reports whether a receiver takes one more request from an address now, whatever its signature.
func (hs *hookRates) arrives(r *definitions.Receiver, from netip.Addr) bool {
	return hs.allow(hs.networks, hookNetwork{r.UID, flow.Network(from)}, r.PerMinute)
}

// delivers reports whether a receiver takes one more delivery now.
func (hs *hookRates) delivers(r *definitions.Receiver) bool {
	return hs.allow(hs.receivers, r.UID, r.PerMinute)
}

func (hs *hookRates) allow(in *lru.Cache, key any, perMinute int) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if l, ok := in.Get(key); ok && l.(*rate.Limiter).Burst() == perMinute {
		return l.(*rate.Limiter).Allow()
	}
	l := rate.NewLimiter(rate.Limit(float64(perMinute)/time.Minute.Seconds()), perMinute)
	in.Add(key, l)
	return l.Allow()
}

// deliver answers a request to a WebhookReceiver (EVT-05).
func (s *Server) deliver(w http.ResponseWriter, r *http.Request, namespace, name string) {
	answer, err := s.take(w, r, namespace, name)
	if err != nil {
		refuse(w, deliveryProblem(withLog(r.Context(), w), err))
		return
	}
	body, err := json.Marshal(answer)
	if err != nil {
		refuse(w, problemOf(r.Context(), err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	inTime(w)
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(append(body, '\n')) // an error means that the client has gone
}

// deliveryProblem returns what the sender of a delivery may know of an error. It knows no agent and no conversation.
func deliveryProblem(ctx context.Context, err error) *problem {
	switch p := problemOf(ctx, err); {
	case p == errUnavailable, p == errBusy:
		return errHookWaits
	case p == errEnded:
		return errThreadEnded
	case p == errQueueFull:
		return errHookFull
	case p == errTooMuch:
		return errLargeHook
	case p.status == http.StatusBadRequest && !errors.As(err, new(*problem)):
		return errHookRefused
	default:
		return p
	}
}

// take makes a message of a delivery. The message and the id of the delivery are written in one transaction, so that a
// repeat finds the message that it was.
func (s *Server) take(w http.ResponseWriter, r *http.Request, namespace, name string) (*received, error) {
	if s.opts.Receivers == nil {
		return nil, errNoReceiver
	}
	to, err := s.opts.Receivers.Receiver(r.Context(), namespace, name)
	var notReady *definition.NotReadyError
	switch {
	case errors.As(err, &notReady) && notReady.Reason == skeinv1.ReasonReferenceNotFound:
		return nil, errNoReceiver
	case errors.As(err, &notReady):
		logr.FromContextOrDiscard(r.Context()).Info("A WebhookReceiver is not ready", "cause", err.Error())
		return nil, errHookWaits
	case err != nil:
		return nil, err
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		return nil, methodNotAllowed(http.MethodPost)
	case !s.hooks.arrives(to, s.address(r)):
		return nil, tooMany("this address")
	}
	done, err := s.enter(callerName("webhookreceiver", namespace, name), namespace, false)
	defer done()
	if err != nil {
		return nil, err
	}
	memory := membudget.From(r.Context())
	body, err := membudget.ReadAll(r.Context(), memory, http.MaxBytesReader(w, r.Body, int64(to.MaxBytes)))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, errLargeHook
	case membudget.Refused(err):
		return nil, err
	case err != nil:
		return nil, badRequest("the body did not arrive whole: send it again, and faster")
	}
	id, event, err := checkDelivery(to, r.Header, body)
	if err != nil {
		return nil, &problem{status: http.StatusUnauthorized, reason: "Unauthorized", message: errForged + err.Error()}
	}
	if !s.hooks.delivers(to) {
		return nil, tooMany("this webhook")
	}
	if err := memory.Draw(r.Context(), bytesBeside(body)); err != nil {
		return nil, err
	}
	return s.store(beginTrace(w, r, "webhookreceiver", webhookPath).Context(), w, to, id, event, body)
}

// checkDelivery returns the id and the event of a delivery whose signature fits.
func checkDelivery(to *definitions.Receiver, h http.Header, body []byte) (id, event string, err error) {
	if to.Form == skeinv1.WebhookGitHub {
		id, err = webhook.VerifyGitHub(h, to.Keys, body)
		return id, h.Get(webhook.HeaderGitHubEvent), err
	}
	id, err = webhook.Verify(h, to.Keys, ownclock.Now(), body)
	var typed struct{ Type string }
	_ = json.Unmarshal(body, &typed) // an event without a type has none
	return id, typed.Type, err
}

// store queues the message of a delivery.
func (s *Server) store(ctx context.Context, w http.ResponseWriter, to *definitions.Receiver, id, event string, body []byte) (*received, error) {
	content, err := contentOf(id, event, body)
	if err != nil {
		return nil, err
	}
	target := to.Thread
	if target == "" {
		if err := s.opts.Engine.CheckMessageRoom(ctx, to.Namespace); err != nil {
			return nil, err // before a Thread is made for a message that is then refused
		}
		if target, err = s.opts.Received.CreateReceivedThread(ctx, to, id); err != nil {
			return nil, err
		}
	}
	if a, ok := w.(*audible); ok {
		a.entry.Thread = target
	}
	ctx = withLog(ctx, w)
	obj, err := s.finder.Object(ctx, to.Namespace, target)
	if err != nil {
		return nil, err
	}
	if obj != nil && !obj.DeletionTimestamp.IsZero() {
		logr.FromContextOrDiscard(ctx).Info("The thread of a WebhookReceiver is being deleted")
		return nil, errHookWaits // a message would be removed with it
	}
	st, row, err := s.finder.Open(ctx, to.Namespace, target)
	if errors.Is(err, store.ErrNotFound) {
		logr.FromContextOrDiscard(ctx).Info("The thread of a WebhookReceiver does not exist")
		return nil, errHookWaits
	}
	if err != nil {
		return nil, err
	}
	if hooks := s.opts.Engine.MessageHooks(ctx, row); hooks != nil {
		st = st.WithHooks(hooks)
	}
	sent, err := s.opts.Engine.Queue(ctx, st, row, thread.NewMessage{
		Content: &content, IdempotencyKey: "webhook:" + digestOf(to.UID+"\x00"+id),
		Metadata: map[string]any{metadataWebhook: map[string]any{"receiver": to.Name, "delivery": id, "event": event, "digest": digestOf(string(body))}},
	}, "")
	switch {
	case errors.Is(err, store.ErrTerminated):
		return nil, s.whyEnded(ctx, to, row.ID)
	case err != nil:
		return nil, err
	}
	if first, ok := sent.Metadata[metadataWebhook].(map[string]any); ok && first["digest"] != digestOf(string(body)) {
		return nil, errUsedID
	}
	return &received{Status: "accepted", Thread: target, MessageID: sent.ID}, nil
}

// whyEnded returns what the sender of a delivery may know of a thread that takes no more. A delivery is refused for good only where
// threadRef names a thread that has ended. Otherwise another thread takes it once this one is deleted.
func (s *Server) whyEnded(ctx context.Context, to *definitions.Receiver, threadID string) error {
	row, err := s.opts.Threads.Store().Thread(ctx, threadID)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && (row.Deleting || to.Thread == ""):
		logr.FromContextOrDiscard(ctx).Info("The thread of a WebhookReceiver takes no more messages, and no other one has its name yet", "thread", threadID)
		return errHookWaits
	case err != nil:
		return err
	}
	return errThreadEnded
}

// metadataWebhook is the key of a message's metadata that says which delivery it was.
const metadataWebhook = "webhook"

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// bytesBeside returns about how many bytes the message of a delivery takes besides the body: its content is made, put into a message, and
// written. A text that is not JSON may need six bytes for each of its own.
func bytesBeside(body []byte) int64 {
	const copies, escaped = 3, 6
	if json.Valid(body) {
		return copies * int64(len(body))
	}
	return (1 + copies) * escaped * int64(len(body))
}

// contentOf returns the content of the message: the delivery as JSON. A body that is not JSON becomes a text in it.
func contentOf(id, event string, body []byte) (string, error) {
	payload := json.RawMessage(body)
	if !json.Valid(body) {
		if len(body) == 0 {
			return "", errUseful
		}
		text, err := json.Marshal(string(body))
		if err != nil {
			return "", errUseful
		}
		payload = text
	}
	out, err := json.Marshal(receivedMessage{Delivery: id, Event: event, Payload: payload})
	return string(out), err
}

var _ ReceivedThreads = (*kube.Threads)(nil)
