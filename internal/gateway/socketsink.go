package gateway

import (
	"encoding/json"
	"net/http"
)

// unwritten is the answer to a message that came over a WebSocket: what it has is its header.
type unwritten struct{ header http.Header }

// Header implements http.ResponseWriter.
func (u *unwritten) Header() http.Header { return u.header }

// WriteHeader implements http.ResponseWriter.
func (u *unwritten) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (u *unwritten) Write(b []byte) (int, error) { return len(b), nil }

// socketSink sends an answer over a WebSocket.
type socketSink struct {
	conversation *conversation
	request      *request
	problem      *problem // why there is no answer
}

func (k *socketSink) delta(p piece) error { return sendDelta(p, k.send) }

func (k *socketSink) message(m Message) error { return k.send("message", m) }

func (k *socketSink) ping() error { return k.conversation.ping(k.request.Context()) }

func (k *socketSink) end(a *Answer, p *problem) {
	if p != nil {
		k.problem = p // answer tells the client
		return
	}
	_ = k.conversation.write(k.request.Context(), "done", whole(a)) // reading notices that the client has gone
}

func (k *socketSink) send(event string, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return k.conversation.write(k.request.Context(), event, body)
}
