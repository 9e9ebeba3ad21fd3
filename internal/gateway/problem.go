package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/go-logr/logr"

	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/gateway/ids"
	"github.com/skein-dev/skein/internal/gateway/openai"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
)

// problem is an error that people outside may see. It names no object and nothing of other conversations.
type problem struct {
	status  int
	reason  string // one word, for programs
	message string
	// param and code are the field that is wrong and what is wrong with it, in the words of OpenAI; "" says nothing.
	param, code string
	// retry is when to try again, in seconds; 0 says nothing.
	retry int
}

// Error implements error.
func (p *problem) Error() string { return p.reason + ": " + p.message }

var (
	errNoGateway    = &problem{status: http.StatusNotFound, reason: "NotFound", message: "nothing is served here: ask the operator of this site for the address"}
	errNoPath       = &problem{status: http.StatusNotFound, reason: "NotFound", message: "this address does not exist: use POST v1/message, GET v1/messages, GET v1/socket, POST v1/new, v1/endpoints where the gateway has some, or POST v1/chat/completions and GET v1/models"}
	errChatTooLarge = &problem{status: http.StatusRequestEntityTooLarge, reason: "TooLarge", param: "messages", message: "the messages are too long: leave the oldest out"}
	errBodies       = &problem{status: http.StatusTooManyRequests, reason: "TooMany", code: "rate_limit_exceeded", message: "too many large messages arrive at once: send this one again in a moment", retry: 1}
	errNoMemory     = &problem{status: http.StatusTooManyRequests, reason: "TooMany", code: "rate_limit_exceeded", message: "too much is under way here at once: send this again in a moment", retry: 1}
	errNoRoom       = &problem{status: http.StatusServiceUnavailable, reason: "Unavailable", message: "there is no room for the answer at present, and the agent works on: GET v1/messages has it later", retry: 1}
	errNotInTime    = &problem{status: http.StatusGatewayTimeout, reason: "Timeout", message: "the agent is still at work: its answer is part of this conversation later, and GET v1/messages has it"}
	errNoKey        = &problem{status: http.StatusUnauthorized, reason: "Unauthorized", code: "invalid_api_key", message: "send a key that is valid here, as Authorization: Bearer KEY"}
	errUnavailable  = &problem{status: http.StatusServiceUnavailable, reason: "Unavailable", message: "the agent cannot answer at present: try again later", retry: 5}
	errStopping     = &problem{status: http.StatusServiceUnavailable, reason: "Unavailable", message: "the server is stopping and the agent works on: GET v1/messages has its answer later", retry: 1}
	errInternal     = &problem{status: http.StatusInternalServerError, reason: "Internal", message: "the request failed, and not because of what you sent: the operator of this site finds the cause in the log under the x-session-id of this answer"}
	errNoUser       = &problem{status: http.StatusUnauthorized, reason: "Unauthorized", message: "log in first: this address serves users that a proxy has authenticated"}
	errOrigin       = &problem{status: http.StatusForbidden, reason: "Forbidden", message: "pages of other sites may not do this: the gateway's allowedOrigins lists those that may"}
	errTooMuch      = &problem{status: http.StatusRequestEntityTooLarge, reason: "TooLarge", message: "the message is too long: send a shorter one"}
	errMedia        = &problem{status: http.StatusUnsupportedMediaType, reason: "UnsupportedMediaType", message: "send JSON, with Content-Type: application/json"}
	errEnded        = &problem{status: http.StatusGone, reason: "Ended", message: "this conversation has ended and takes no more messages"}
	errBusy         = &problem{status: http.StatusConflict, reason: "Busy", message: "the agent is still at work on an earlier message: wait until it has answered", retry: 1}
	errQueueFull    = &problem{status: http.StatusTooManyRequests, reason: "TooMany", message: "too many messages of this conversation wait already: send this one again when the agent has answered", retry: 1}
	errUsedKey      = &problem{status: http.StatusUnprocessableEntity, reason: "KeyReused", message: "this Idempotency-Key was used for another message: use a new key for each message, and repeat a message unchanged"}
	errProvided     = &problem{status: http.StatusConflict, reason: "Conflict", message: "a service says which conversation this is, so no other one can begin here: send messages without POST v1/new"}
	errNoID         = &problem{status: http.StatusServiceUnavailable, reason: "NoID", message: "the service that knows which conversation this is gave no valid answer: try again later", retry: 5}
	errUnknownUser  = &problem{status: http.StatusUnauthorized, reason: "Unauthorized", message: "log in first: the service that knows the users of this address does not know you"}
	errUsersThread  = &problem{status: http.StatusConflict, reason: "Conflict", message: "a user has one conversation here, and POST v1/new begins no other one: send messages without it"}
	errFailedRun    = &problem{status: http.StatusBadGateway, reason: "Failed", message: "the agent could not finish its answer: try again later"}
	errEndedWaiting = &problem{status: http.StatusGone, reason: "Ended", message: "this conversation ended before the agent answered"}
	errGoneWaiting  = &problem{status: http.StatusGone, reason: "Ended", message: "this conversation ended before the agent answered: the next message begins another one"}
)

// kind returns what sort of problem it is, in the words of OpenAI.
func (p *problem) kind() string {
	switch {
	case p.status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case p.status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}

func badRequest(message string) *problem {
	return &problem{status: http.StatusBadRequest, reason: "BadRequest", message: message}
}

func unsigned(err error) *problem {
	return &problem{status: http.StatusUnauthorized, reason: "Unauthorized", message: err.Error()}
}

func methodNotAllowed(allow string) *problem {
	return &problem{status: http.StatusMethodNotAllowed, reason: "MethodNotAllowed", message: "use " + allow}
}

func tooMany(whose string) *problem {
	return &problem{status: http.StatusTooManyRequests, reason: "TooMany", code: "rate_limit_exceeded", message: "too many requests of " + whose + " in the last minute: wait a little", retry: 5}
}

// What begins another conversation once one has ended for good. The gateway cannot do so by itself where it does not choose the id.
const (
	clientBegins   = "POST v1/new begins another one"
	userBegins     = "ask the operator of this site to delete it, and then send the message again"
	providerBegins = "ask the operator of this site to delete it or to have another one named, and then send the message again"
)

// problemOf returns what the client may know of an error.
func (q *request) problemOf(err error) *problem {
	p := problemOf(q.Context(), err)
	if p != errEnded && p != errEndedWaiting {
		return p
	}
	begins := clientBegins
	switch {
	case q.user != "":
		begins = userBegins
	case q.gateway.Provider != nil:
		begins = providerBegins
	}
	ended := *p
	ended.message += ": " + begins
	return &ended
}

// problemOf returns what people outside may know of an error. The rest goes to the log.
func problemOf(ctx context.Context, err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var busy *membudget.BusyError
	if errors.As(err, &busy) {
		logr.FromContextOrDiscard(ctx).Info("A request of the gateway found no memory", "cause", err.Error())
		return errNoMemory
	}
	var unmade *kube.UnmadeError
	if errors.As(err, &unmade) {
		// The person who runs the cluster may raise the quota or change the policy.
		logr.FromContextOrDiscard(ctx).Info("A request of the gateway cannot be answered at present", "cause", err.Error())
		return errUnavailable
	}
	var full *store.NamespaceQuotaError
	if errors.As(err, &full) {
		logr.FromContextOrDiscard(ctx).Info("A request of the gateway cannot be answered at present", "cause", err.Error())
		return errUnavailable
	}
	if errors.Is(err, store.ErrObjectDeleted) {
		return errUnavailable // its name is free soon
	}
	switch s := status.Of(ctx, "", err); s.ErrStatus.Code {
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		logr.FromContextOrDiscard(ctx).Info("A request of the gateway cannot be answered at present", "cause", err.Error())
		return errUnavailable
	case http.StatusGone:
		return errEnded
	case http.StatusConflict:
		return errBusy
	case http.StatusTooManyRequests:
		return errQueueFull
	case http.StatusRequestEntityTooLarge:
		return errTooMuch
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return badRequest("the agent does not take this message: change it")
	}
	logr.FromContextOrDiscard(ctx).Error(err, "A request of the gateway failed")
	return errInternal
}

// errorBody is the body of an answer that is a problem: in the form of OpenAI, and with a reason.
type errorBody struct {
	Error struct {
		Reason string `json:"reason"`
		openai.Failure
	} `json:"error"`
	// Session is the id of the request, by which the log names it.
	Session string `json:"session,omitempty"`
}

func bodyOf(p *problem, session string) []byte {
	b := errorBody{Session: session}
	b.Error.Reason, b.Error.Failure = p.reason, openai.Failure{Message: p.message, Type: p.kind()}
	if p.param != "" {
		b.Error.Param = &p.param
	}
	if p.code != "" {
		b.Error.Code = &p.code
	}
	body, _ := json.Marshal(b) // has texts only
	return append(body, '\n')
}

// sessionOf returns the id of the request that is answered.
func sessionOf(h http.Header) string { return h.Get(ids.SessionHeader) }
