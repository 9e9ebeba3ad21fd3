package endpoints

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/skein-dev/skein/internal/sandbox/value"
)

// Limits on the headers of an answer.
const (
	maxAnswerHeaders     = 100
	maxAnswerHeaderBytes = 32 << 10
)

// Host methods with which the code of an endpoint streams an answer. An answer that is not streamed is the code's result.
const (
	methodEndpointHead  = "endpoint.head"
	methodEndpointChunk = "endpoint.chunk"
)

// endpointAnswer checks the answer of an endpoint's code, which may be anything, and sends it to the client.
type endpointAnswer struct {
	endpoint string
	to       Answer

	mu      sync.Mutex
	started bool
	over    bool // to can no longer be used
	written int  // bytes of the body
}

// errAnswerOver is the error for code that sends a piece after its time was up or its answer was complete.
var errAnswerOver = errors.New("the answer can no longer be sent: it is complete, or the endpoint's time is up")

// end waits for a piece that is being sent, and refuses all later ones, since to can be used only while the request is
// served.
func (a *endpointAnswer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
}

// answerError reports a mistake of the code in its answer.
type answerError struct{ text string }

func (e *answerError) Error() string { return e.text }

func badAnswer(format string, args ...any) error { return &answerError{fmt.Sprintf(format, args...)} }

// Serves implements codeexec.Server.
func (a *endpointAnswer) Serves(method string) bool {
	return method == methodEndpointHead || method == methodEndpointChunk
}

// Serve implements codeexec.Server. It sends the head or a piece of a streamed answer.
func (a *endpointAnswer) Serve(_ context.Context, method string, args []any) (any, error) {
	if len(args) != 1 {
		return nil, errors.New("a piece of an answer must be exactly one value")
	}
	if method == methodEndpointHead {
		return nil, a.head(args[0])
	}
	piece, ok := args[0].([]byte)
	if !ok {
		return nil, errors.New("a piece of a body must be bytes")
	}
	return nil, a.chunk(piece)
}

func (a *endpointAnswer) head(v any) error {
	status, headers, err := readHead(v)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.over:
		return errAnswerOver
	case a.started:
		return errors.New("the status and headers of the answer were already sent")
	}
	a.started = true
	return a.to.Head(a.endpoint, status, headers)
}

// chunk sends a piece of the body. The status and headers must have been sent before.
func (a *endpointAnswer) chunk(piece []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.over:
		return errAnswerOver
	case !a.started:
		return errors.New("send the status and headers of the answer first")
	}
	if a.written += len(piece); a.written > MaxAnswer {
		return fmt.Errorf("the answer is larger than %d MiB: split it, or write a file", MaxAnswer>>20)
	}
	return a.to.Write(piece)
}

// sendWhole sends what the code returned. It sends nothing if the code has streamed its answer. The error is an *answerError if
// what the code returned is not an answer.
func (a *endpointAnswer) sendWhole(v any) error {
	a.mu.Lock()
	started := a.started
	a.mu.Unlock()
	if started {
		return nil
	}
	if err := a.head(v); err != nil {
		return err
	}
	object, _ := v.(map[string]any) // head has read it
	switch body := object["body"].(type) {
	case nil:
		return nil
	case []byte:
		if len(body) == 0 {
			return nil
		}
		return a.chunk(body)
	}
	return badAnswer("the body of its answer must be bytes or absent")
}

// readHead returns the status and the headers of an answer. The error is an *answerError.
func readHead(v any) (status int, headers [][2]string, err error) {
	object, ok := v.(map[string]any)
	if !ok {
		return 0, nil, badAnswer("its code returned no answer: return a Response")
	}
	n, ok := object["status"].(float64)
	if !ok || n != math.Trunc(n) || n < 200 || n > 599 {
		return 0, nil, badAnswer("the status of its answer must be a whole number from 200 to 599")
	}
	list, ok := object["headers"].([]any)
	if _, none := object["headers"].(value.Undefined); !ok && object["headers"] != nil && !none {
		return 0, nil, badAnswer("the headers of its answer must be pairs of a name and a value")
	}
	if len(list) > maxAnswerHeaders {
		return 0, nil, badAnswer("its answer has %d headers: at most %d", len(list), maxAnswerHeaders)
	}
	bytes := 0
	for _, item := range list {
		pair, _ := item.([]any)
		if len(pair) != 2 {
			return 0, nil, badAnswer("the headers of its answer must be pairs of a name and a value")
		}
		name, ok1 := pair[0].(string)
		val, ok2 := pair[1].(string)
		if !ok1 || !ok2 {
			return 0, nil, badAnswer("the names and values of the headers of its answer must be strings")
		}
		if bytes += len(name) + len(val); bytes > maxAnswerHeaderBytes {
			return 0, nil, badAnswer("the headers of its answer have more than %d KiB", maxAnswerHeaderBytes>>10)
		}
		headers = append(headers, [2]string{name, val})
	}
	return int(n), headers, nil
}
