package scripted

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/model"
)

// chunkRunes is the size of a streamed piece when there is a delay between pieces.
const chunkRunes = 16

// Client plays one script. It has no state between calls: the conversation says where the script is.
type Client struct {
	name     string
	script   script
	timeout  time.Duration // 0 = none
	clock    clock.Clock
	sessions bool
}

// New parses the script of a Model. Latencies use the given clock.
func New(c model.Config, clk clock.Clock) (*Client, error) {
	s, err := parse(c.Steps)
	if len(c.Steps) == 0 && c.Spec.Capabilities.Embeds() {
		err = nil // it has only embeddings
	}
	if err != nil {
		return nil, model.Errorf(model.KindConfig, "model %s: the script cannot be played: %v", c.Name, err)
	}
	cl := &Client{name: c.Name, script: s, clock: clk}
	cl.sessions = c.Spec.Sessions != nil && *c.Spec.Sessions
	if c.Spec.Timeout != nil {
		cl.timeout = c.Spec.Timeout.Duration
	}
	return cl, nil
}

// Stream implements model.Client.
func (c *Client) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	n, ok := c.script.pick(c.name, req.Messages)
	if !ok {
		last := lastOf(req.Messages)
		return nil, model.Errorf(model.KindFailed, "the script of model %s has no step left that answers a last message of the role %q: add one to spec.script.steps, or raise times of a step", c.name, last.Role)
	}
	st := &c.script[n]
	played := map[string]any{metadataStep: strconv.Itoa(n), metadataScript: c.name}
	res, err := c.play(ctx, n, req, emit)
	if err != nil {
		var e *model.Error
		if errors.As(err, &e) {
			e.Metadata = played
		}
		return nil, err
	}
	res.Metadata = played
	if st.usage != nil {
		u := *st.usage
		res.Usage = &u
	}
	if c.sessions {
		res.Session = fmt.Sprintf("session-%d", len(req.Messages)+1)
	}
	return res, nil
}

// play answers with a step, or fails with its error.
func (c *Client) play(ctx context.Context, n int, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	st := &c.script[n]
	if c.timeout > 0 && st.latency > c.timeout {
		if err := c.sleep(ctx, c.timeout); err != nil {
			return nil, err
		}
		return nil, model.Errorf(model.KindTimeout, "the model %s did not finish its answer within %s: raise spec.timeout of the Model", c.name, c.timeout)
	}
	if err := c.sleep(ctx, st.latency); err != nil {
		return nil, err
	}
	if st.forgets && req.Session != "" {
		e := model.Errorf(model.KindStatus, "the model %s knows no session %q", c.name, req.Session)
		e.Status = http.StatusNotFound
		return nil, e
	}
	fails := st.failures == 0 || req.Try < st.failures
	if st.failure != "" && fails {
		return nil, st.error()
	}
	res, err := c.answer(n, req)
	if err != nil {
		return nil, model.Errorf(model.KindFailed, "step %d of the script of model %s cannot be played: %v", n+1, c.name, err)
	}
	if res.Reasoning != "" {
		emit(model.Delta{Reasoning: res.Reasoning})
	}
	if st.breaks != nil && fails {
		runes := []rune(res.Content)
		if err := c.emit(ctx, string(runes[:min(*st.breaks, len(runes))]), st.chunkDelay, emit); err != nil {
			return nil, err
		}
		e := model.Errorf(model.KindUnreachable, "the connection to the model %s broke before its answer was complete", c.name)
		e.Passing = true
		return nil, e
	}
	if err := c.emit(ctx, res.Content, st.chunkDelay, emit); err != nil {
		return nil, err
	}
	if st.finish == "content_filter" {
		e := model.Errorf(model.KindFiltered, "the content filter of the model %s stopped the answer", c.name)
		e.Code = model.CodeFiltered
		return nil, e
	}
	return res, nil
}

// error returns the failure of a step.
func (s *step) error() *model.Error {
	if s.status == 0 {
		return model.Errorf(model.KindFailed, "%s", s.failure)
	}
	e := model.Errorf(model.KindStatus, "%s", s.failure)
	e.Status, e.RetryAfter = s.status, s.retryAfter
	switch s.status {
	case http.StatusRequestEntityTooLarge:
		e.Code = model.CodeContextLength
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusConflict:
		e.Passing = true
	default:
		e.Passing = s.status >= http.StatusInternalServerError
	}
	return e
}

// answer renders a step.
func (c *Client) answer(n int, req model.Request) (*model.Response, error) {
	st := &c.script[n]
	data, err := newView(req)
	if err != nil {
		return nil, err
	}
	res := &model.Response{FinishReason: "stop", Refused: st.refused}
	if st.finish != "" {
		res.FinishReason = st.finish
	}
	if req.Reasoning == nil || !req.Reasoning.Exclude {
		if res.Reasoning, err = data.render(st.reasoning); err != nil {
			return nil, err
		}
	}
	if res.Content, err = data.render(st.content); err != nil {
		return nil, err
	}
	calls := 0
	for _, m := range req.Messages {
		calls += len(m.ToolCalls)
	}
	for i := range st.calls {
		args, err := st.calls[i].arguments(data)
		if err != nil {
			return nil, err
		}
		calls++
		if st.finish == "" {
			res.FinishReason = "tool_calls"
		}
		res.ToolCalls = append(res.ToolCalls, model.ToolCall{ID: fmt.Sprintf("call_%d", calls), Name: st.calls[i].name, Arguments: args})
	}
	return res, nil
}

// emit streams a content, whole or in pieces.
func (c *Client) emit(ctx context.Context, content string, delay time.Duration, emit func(model.Delta)) error {
	if content == "" {
		return nil
	}
	if delay <= 0 {
		emit(model.Delta{Text: content})
		return nil
	}
	rest := []rune(content)
	for len(rest) > 0 {
		n := min(chunkRunes, len(rest))
		emit(model.Delta{Text: string(rest[:n])})
		if rest = rest[n:]; len(rest) == 0 {
			return nil
		}
		if err := c.sleep(ctx, delay); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := c.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
		return nil
	}
}
