// Package openai is a client for every server with OpenAI's chat completions API or its responses API (AGT-06). It knows the part of the
// APIs that Skein uses: the files named …_request.go have the fields of requests, and those named …_chunk.go and …_event.go the fields of
// answers.
package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/tidwall/gjson"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/wire"
)

// DefaultEndpoint is the endpoint of a Model that sets none.
const DefaultEndpoint = "https://" + ownHost + "/v1"

// ownHost is the host of OpenAI's own API.
const ownHost = "api.openai.com"

// Client is the client of one Model.
type Client struct {
	endpoint *wire.Endpoint
	origin   wire.Origin
	spec     skeinv1.ModelSpec
	options  options
}

// options are the numeric options of a Model.
type options struct {
	temperature, topP *float64
	maxTokens         *int64
}

// New returns a client. It sends nothing before the first call.
func New(c model.Config) (*Client, error) {
	endpoint, err := wire.NewEndpoint(c, DefaultEndpoint)
	if err != nil {
		return nil, err
	}
	// OpenAI encrypts reasoning for the organization.
	origin := endpoint.Origin(c.Name, c.Spec.Model, endpoint.Headers["Openai-Organization"])
	cl := &Client{endpoint: endpoint, origin: origin, spec: c.Spec}
	if cl.options, err = parseOptions(c); err != nil {
		return nil, err
	}
	return cl, nil
}

func parseOptions(c model.Config) (out options, err error) {
	if capable := c.Spec.Capabilities; capable != nil && capable.MaxOutputTokens > 0 {
		out.maxTokens = &capable.MaxOutputTokens
	}
	o := c.Spec.Options
	if o == nil {
		return out, nil
	}
	for _, f := range []struct {
		field, text string
		set         **float64
	}{{"temperature", o.Temperature, &out.temperature}, {"topP", o.TopP, &out.topP}} {
		if f.text == "" {
			continue
		}
		v, err := strconv.ParseFloat(f.text, 64)
		if err != nil {
			return out, model.Errorf(model.KindConfig, "model %s: spec.options.%s is %q: give a decimal number", c.Name, f.field, f.text)
		}
		*f.set = &v
	}
	if o.MaxTokens != nil {
		n := int64(*o.MaxTokens)
		out.maxTokens = &n
	}
	return out, nil
}

// Stream implements model.Client.
func (c *Client) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	if c.spec.API == skeinv1.APIResponses {
		return c.streamResponses(ctx, req, emit)
	}
	return c.streamChat(ctx, req, emit)
}

// post sends a request of the protocol. The caller closes the body of the response.
func (c *Client) post(call context.Context, path string, body any) (*http.Response, *wire.Failure) {
	header := http.Header{}
	if c.endpoint.Key != "" {
		header.Set("Authorization", "Bearer "+c.endpoint.Key)
	}
	return c.endpoint.Post(call, path, header, body)
}

// explain converts a failure of a call to an error.
func (c *Client) explain(ctx, call context.Context, f wire.Failure) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var streamed *ssestream.StreamError
	refusal := gjson.GetBytes(f.Refusal, "error")
	switch {
	case errors.As(f.Err, &streamed):
		f.Streamed = true
		f.Said, f.Code = saidIn(streamed.Event.Data)
		if f.Said == "" {
			f.Said = "it does not say why"
		}
		f.Passing = passingCode(f.Code)
	case refusal.IsObject(): // of the protocol
		f.Said, f.Code = refusal.Get("message").String(), refusal.Get("code").String()
	}
	return c.endpoint.Explain(call, f)
}

// saidIn reads the text and the code of an error event, in the spellings that servers use.
func saidIn(data []byte) (said, code string) {
	var body struct {
		Error struct {
			Message string `json:"message"`
			Type    string `json:"type"`
			Code    any    `json:"code"`
		} `json:"error"`
		Message string `json:"message"`
		Code    any    `json:"code"`
	}
	if json.Unmarshal(data, &body) != nil {
		return "", ""
	}
	for _, c := range []any{body.Error.Code, body.Code, body.Error.Type} {
		if text, ok := c.(string); ok && text != "" {
			code = text
			break
		}
	}
	return orElse(body.Error.Message, body.Message), code
}

// passingCode reports whether a failure that a provider reports within a stream may be over a little later.
func passingCode(code string) bool {
	switch code {
	case "server_error", "rate_limit_exceeded", "overloaded_error", "api_error":
		return true
	}
	return strings.HasSuffix(code, "_timeout")
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// validArguments keeps a model's invalid arguments from making every later request invalid: servers parse the
// arguments, and the following result tells the model what was wrong.
func validArguments(arguments string) string {
	if json.Valid([]byte(arguments)) {
		return arguments
	}
	wrapped, err := json.Marshal(map[string]string{"invalid_json": arguments})
	if err != nil {
		return "{}"
	}
	return string(wrapped)
}

// parameters returns the parameters of a tool as an object.
func parameters(t model.Tool) (map[string]any, error) {
	schema := map[string]any{"type": "object", "properties": map[string]any{}}
	if len(t.Parameters) > 0 {
		schema = nil
		if err := json.Unmarshal(t.Parameters, &schema); err != nil {
			return nil, model.Errorf(model.KindConfig, "the parameters of tool %s are not a JSON object: %v", t.Name, err)
		}
	}
	return schema, nil
}

// answerSchema returns the answer schema of a request as an object.
func answerSchema(req model.Request) (map[string]any, error) {
	var schema map[string]any
	if err := json.Unmarshal(req.Schema, &schema); err != nil {
		return nil, model.Errorf(model.KindConfig, "the schema of the answer is not a JSON object: %v", err)
	}
	return schema, nil
}
