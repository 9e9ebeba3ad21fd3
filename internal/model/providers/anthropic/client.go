// Package anthropic is a client for every server with Anthropic's messages API (AGT-06). It knows the part of the API that Skein uses:
// message.go has the fields of requests, and event.go those of answers.
package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/wire"
)

const (
	// DefaultEndpoint is the endpoint of a Model that sets none.
	DefaultEndpoint = "https://api.anthropic.com"
	// defaultMaxTokens limits one answer, because the API requires a limit.
	defaultMaxTokens = 8192
	// apiVersion is the version of the API that this client speaks.
	apiVersion = "2023-06-01"
)

// Client is the client of one Model.
type Client struct {
	endpoint          *wire.Endpoint
	spec              skeinv1.ModelSpec
	temperature, topP *float64
	maxTokens         int64
	asked, unasked    wire.Origin // of thoughts that requests asked for, and of those that the model had of itself
}

// New returns a client. It sends nothing before the first call.
func New(c model.Config) (*Client, error) {
	endpoint, err := wire.NewEndpoint(c, DefaultEndpoint)
	if err != nil {
		return nil, err
	}
	cl := &Client{endpoint: endpoint, spec: c.Spec, maxTokens: defaultMaxTokens}
	if capable := c.Spec.Capabilities; capable != nil && capable.MaxOutputTokens > 0 {
		cl.maxTokens = capable.MaxOutputTokens
	}
	if err := cl.setOptions(c); err != nil {
		return nil, err
	}
	// The path has the version of the API. Endpoints are given with it and without it.
	endpoint.URL = strings.TrimSuffix(strings.TrimSuffix(endpoint.URL, "/"), "/v1")
	cl.asked, cl.unasked = endpoint.Origin(c.Name, c.Spec.Model, "asked"), endpoint.Origin(c.Name, c.Spec.Model)
	return cl, nil
}

func (c *Client) setOptions(config model.Config) error {
	o := config.Spec.Options
	if o == nil {
		return nil
	}
	if o.MaxTokens != nil {
		c.maxTokens = int64(*o.MaxTokens)
	}
	for _, f := range []struct {
		field, text string
		set         **float64
	}{{"temperature", o.Temperature, &c.temperature}, {"topP", o.TopP, &c.topP}} {
		if f.text == "" {
			continue
		}
		v, err := strconv.ParseFloat(f.text, 64)
		if err != nil {
			return model.Errorf(model.KindConfig, "model %s: spec.options.%s is %q: give a decimal number", config.Name, f.field, f.text)
		}
		*f.set = &v
	}
	if c.temperature != nil && *c.temperature > 1 {
		return model.Errorf(model.KindConfig, "model %s: spec.options.temperature is %s: models of provider anthropic take 0 to 1", config.Name, o.Temperature)
	}
	return nil
}

// Stream implements model.Client.
func (c *Client) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	call, done, err := c.endpoint.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	body, err := c.request(call, req)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Anthropic-Version": {apiVersion}}
	if c.endpoint.Key != "" {
		header.Set("X-Api-Key", c.endpoint.Key)
	}
	res, failure := c.endpoint.Post(call, "v1/messages", header, body)
	if failure != nil {
		return nil, c.explain(ctx, call, *failure)
	}
	defer func() { _ = res.Body.Close() }()

	a := answer{quiet: req.Reasoning != nil && req.Reasoning.Exclude}
	stream := ssestream.NewDecoder(res)
	for !a.stopped {
		e, err := next(stream)
		if err != nil {
			return nil, c.explain(ctx, call, wire.Failure{Err: err, Response: res, Begun: a.events > 0})
		}
		if e == nil {
			break
		}
		if err := a.add(*e, emit); err != nil {
			return nil, err
		}
	}
	return a.response(c.endpoint, c.origin(req.Reasoning))
}

// failedEvent is an event that says that the call failed. It has the data of the event.
type failedEvent []byte

func (failedEvent) Error() string { return "the provider reports an error within the stream" }

// next returns the next event of a stream, or nil at its end. It leaves out what is not part of the protocol, and what only keeps the
// connection alive.
func next(stream ssestream.Decoder) (*event, error) {
	for stream.Next() {
		switch e := stream.Event(); {
		case e.Type == "error":
			return nil, failedEvent(e.Data)
		case e.Type == "", e.Type == "ping", len(bytes.TrimSuffix(e.Data, []byte("\n"))) == 0:
		default:
			var out wire.Object[event]
			if err := json.Unmarshal(e.Data, &out); err != nil {
				return nil, err
			}
			return &out.Value, nil
		}
	}
	return nil, stream.Err()
}

// explain converts a failure of a call to an error.
func (c *Client) explain(ctx, call context.Context, f wire.Failure) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	said := f.Refusal
	var failed failedEvent
	if f.Streamed = errors.As(f.Err, &failed); f.Streamed {
		said = failed
	}
	var body struct {
		Error struct {
			Message string `json:"message"`
			Type    string `json:"type"`
		} `json:"error"`
	}
	if json.Unmarshal(said, &body) == nil {
		f.Said, f.Code = body.Error.Message, body.Error.Type
	}
	if f.Streamed {
		switch f.Code {
		case "overloaded_error", "api_error", "rate_limit_error", "timeout_error":
			f.Passing = true
		}
		if f.Said == "" {
			f.Said = "it does not say why"
		}
	}
	return c.endpoint.Explain(call, f)
}
