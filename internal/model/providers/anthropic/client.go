// Package anthropic is a client for every server with Anthropic's messages API (AGT-06). It uses the official SDK.
package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/wire"
)

const (
	// DefaultEndpoint is the endpoint of a Model that sets none.
	DefaultEndpoint = "https://api.anthropic.com"
	// defaultMaxTokens limits one answer, because the API requires a limit.
	defaultMaxTokens = 8192
)

// Client is the client of one Model.
type Client struct {
	endpoint          *wire.Endpoint
	spec              skeinv1.ModelSpec
	temperature, topP *float64
	maxTokens         int64
	messages          sdk.MessageService
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
	// The service is created without NewClient, which would read keys and addresses from the environment. The SDK adds
	// the version to the path itself.
	opts := []option.RequestOption{
		option.WithBaseURL(strings.TrimSuffix(strings.TrimSuffix(endpoint.URL, "/"), "/v1")),
		option.WithMaxRetries(0), // model.WithRetries retries, with the engine's clock
		option.WithHTTPClient(endpoint.HTTP),
		option.WithoutOpenTelemetry(), // collectors of traces must not see conversations
	}
	if endpoint.Key != "" {
		opts = append(opts, option.WithAPIKey(endpoint.Key))
	}
	for name, value := range endpoint.Headers {
		opts = append(opts, option.WithHeader(name, value))
	}
	cl.messages = sdk.NewMessageService(opts...)
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
	params, err := c.params(call, req)
	if err != nil {
		return nil, err
	}
	var raw *http.Response
	stream := c.messages.NewStreaming(call, params, option.WithResponseInto(&raw))
	defer func() { _ = stream.Close() }()

	a := answer{quiet: req.Reasoning != nil && req.Reasoning.Exclude}
	for !a.stopped && stream.Next() {
		if err := a.add(stream.Current(), emit); err != nil {
			return nil, err
		}
	}
	if err := stream.Err(); !a.stopped && (err != nil || (raw != nil && raw.StatusCode >= http.StatusBadRequest)) {
		return nil, c.explain(ctx, call, err, raw, a.events > 0)
	}
	return a.response(c.endpoint)
}

// explain converts a failure of a call to an error.
func (c *Client) explain(ctx, call context.Context, err error, res *http.Response, begun bool) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f := wire.Failure{Err: err, Response: res, Begun: begun}
	var api *sdk.Error
	if errors.As(err, &api) {
		var body struct {
			Error struct {
				Message string `json:"message"`
				Type    string `json:"type"`
			} `json:"error"`
		}
		if json.Unmarshal([]byte(api.RawJSON()), &body) == nil {
			f.Said, f.Code = body.Error.Message, body.Error.Type
		}
		if f.Streamed = api.StatusCode < http.StatusBadRequest; f.Streamed {
			switch f.Code {
			case "overloaded_error", "api_error", "rate_limit_error", "timeout_error":
				f.Passing = true
			}
			if f.Said == "" {
				f.Said = "it does not say why"
			}
		}
	}
	return c.endpoint.Explain(call, f)
}
