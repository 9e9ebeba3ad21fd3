package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/go-logr/logr"

	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/gateway/ids"
)

// problem is an error that people outside may see. It names no object and nothing of other conversations.
type problem struct {
	code    int
	reason  string // one word, for programs
	message string
	// retry is when to try again, in seconds; 0 says nothing.
	retry int
}

// Error implements error.
func (p *problem) Error() string { return p.reason + ": " + p.message }

var (
	errNoGateway    = &problem{http.StatusNotFound, "NotFound", "nothing is served here: ask whoever runs this page for the address", 0}
	errNoPath       = &problem{http.StatusNotFound, "NotFound", "this address does not exist: use POST v1/message, GET v1/messages or POST v1/new", 0}
	errUnavailable  = &problem{http.StatusServiceUnavailable, "Unavailable", "the agent cannot answer at present: try again later", 5}
	errStopping     = &problem{http.StatusServiceUnavailable, "Unavailable", "the server is stopping and the agent works on: GET v1/messages has its answer later", 1}
	errInternal     = &problem{http.StatusInternalServerError, "Internal", "the request failed for a reason that is not yours: whoever runs this page finds it in the log under the x-session-id of this answer", 0}
	errNoUser       = &problem{http.StatusUnauthorized, "Unauthorized", "log in first: this address serves users that a proxy has authenticated", 0}
	errOrigin       = &problem{http.StatusForbidden, "Forbidden", "pages of other sites may not do this: the gateway's allowedOrigins lists those that may", 0}
	errTooMuch      = &problem{http.StatusRequestEntityTooLarge, "TooLarge", "the message is too long: send a shorter one", 0}
	errMedia        = &problem{http.StatusUnsupportedMediaType, "UnsupportedMediaType", "send JSON, with Content-Type: application/json", 0}
	errEnded        = &problem{http.StatusGone, "Ended", "this conversation has ended and takes no more messages: POST v1/new begins another one", 0}
	errBusy         = &problem{http.StatusConflict, "Busy", "the agent is still at work on an earlier message: wait until it has answered", 1}
	errQueueFull    = &problem{http.StatusTooManyRequests, "TooMany", "too many messages of this conversation wait already: send this one again when the agent has answered", 1}
	errUsersThread  = &problem{http.StatusConflict, "Conflict", "a user has one conversation here, so no other one can begin", 0}
	errFailedRun    = &problem{http.StatusBadGateway, "Failed", "the agent could not finish its answer: try again later", 0}
	errEndedWaiting = &problem{http.StatusGone, "Ended", "this conversation ended before the agent answered: POST v1/new begins another one", 0}
)

func badRequest(message string) *problem {
	return &problem{http.StatusBadRequest, "BadRequest", message, 0}
}

func unsigned(err error) *problem {
	return &problem{http.StatusUnauthorized, "Unauthorized", err.Error(), 0}
}

func methodNotAllowed(allow string) *problem {
	return &problem{http.StatusMethodNotAllowed, "MethodNotAllowed", "use " + allow, 0}
}

func tooMany(whose string) *problem {
	return &problem{http.StatusTooManyRequests, "TooMany", "too many requests of " + whose + " in the last minute: wait a little", 5}
}

// outside returns what people outside may know of an error. The rest goes to the log.
func outside(ctx context.Context, err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
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

// errorBody is the body of an answer that is a problem.
type errorBody struct {
	Error struct {
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"error"`
	// Session is the id of the request, by which the log names it.
	Session string `json:"session,omitempty"`
}

func bodyOf(p *problem, session string) []byte {
	b := errorBody{Session: session}
	b.Error.Reason, b.Error.Message = p.reason, p.message
	body, _ := json.Marshal(b) // has texts only
	return append(body, '\n')
}

// sessionOf returns the id of the request that is answered.
func sessionOf(h http.Header) string { return h.Get(ids.SessionHeader) }
