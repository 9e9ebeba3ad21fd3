package model

import (
	"context"
	"errors"
	"net/http"
)

// WithRestarts returns a client that starts the provider's conversation again, with all messages, when it cannot be
// continued: the provider has forgotten it, or has a different version (RUN-06). The restart is not reported, because
// nothing is lost.
func WithRestarts(c Client) Client { return &restarting{client: c} }

type restarting struct{ client Client }

// Stream implements Client.
func (r *restarting) Stream(ctx context.Context, req Request, emit func(Delta)) (*Response, error) {
	sent := false
	res, err := r.client.Stream(ctx, req, func(d Delta) {
		sent = !d.Reset
		emit(d)
	})
	var failure *Error
	if err == nil || req.Session == "" || !errors.As(err, &failure) || !lost(failure) {
		return res, err
	}
	if sent {
		emit(Delta{Reset: true})
	}
	req.Session, req.SessionMessages, req.Deferral = "", 0, nil
	return r.client.Stream(ctx, req, emit)
}

// Embed implements Embedder if the client does.
func (r *restarting) Embed(ctx context.Context, texts []string) (*Embeddings, error) {
	e, err := EmbedderOf(r.client, "")
	if err != nil {
		return nil, err
	}
	return e.Embed(ctx, texts)
}

// lost reports whether the session may be the cause of a refusal.
func lost(e *Error) bool {
	if e.Kind != KindStatus || e.Code != "" {
		return false
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusUnprocessableEntity:
		return true
	}
	return false
}
