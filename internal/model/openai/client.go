// Package openai speaks with any server that knows OpenAI's chat completions (SPEC AGT-06), by the
// official SDK.
package openai

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/skein-dev/skein/internal/model"
)

const (
	// DefaultEndpoint is where a Model without an endpoint is asked.
	DefaultEndpoint = "https://api.openai.com/v1"
	defaultTimeout  = 120 * time.Second
	// maxAnswerBytes bounds what one answer may bring over the wire.
	maxAnswerBytes = 32 << 20
)

// Client of one Model.
type Client struct {
	chat     sdk.ChatCompletionService
	params   sdk.ChatCompletionNewParams // what every call shares
	endpoint string                      // for people: no credentials, no query
	timeout  time.Duration
	redact   model.Redactor
}

// New makes a client. Nothing is sent before the first call.
func New(c model.Config) (*Client, error) {
	endpoint := c.Spec.Endpoint
	if endpoint == "" {
		endpoint = DefaultEndpoint
	}
	base, err := url.Parse(endpoint)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, model.Errorf(model.KindConfig, "model %s: spec.endpoint is not a URL: write it as https://host/v1", c.Name)
	}
	if base.User != nil || base.RawQuery != "" {
		return nil, model.Errorf(model.KindConfig, "model %s: spec.endpoint must not hold credentials or a query: put the API key into a Secret and name it in spec.credentials", c.Name)
	}
	if c.Spec.Model == "" {
		return nil, model.Errorf(model.KindConfig, "model %s: spec.model is missing: give the model id that the endpoint knows", c.Name)
	}
	cl := &Client{endpoint: base.String(), timeout: defaultTimeout, redact: model.NewRedactor(c.APIKey)}
	if c.Spec.Timeout != nil && c.Spec.Timeout.Duration > 0 {
		cl.timeout = c.Spec.Timeout.Duration
	}
	// The service is made without NewClient, which would take keys and addresses out of the environment.
	opts := []option.RequestOption{
		option.WithBaseURL(endpoint),
		option.WithMaxRetries(0), // model.WithRetries tries again, by the engine's clock
		option.WithHTTPClient(&http.Client{Transport: boundedTransport{transport}}),
	}
	if key := strings.TrimSpace(c.APIKey); key != "" {
		opts = append(opts, option.WithAPIKey(key))
	}
	cl.chat = sdk.NewChatCompletionService(opts...)
	cl.params, err = baseParams(c, base.Host)
	return cl, err
}

// baseParams are the parameters that do not change from call to call.
func baseParams(c model.Config, host string) (sdk.ChatCompletionNewParams, error) {
	p := sdk.ChatCompletionNewParams{
		Model:         c.Spec.Model,
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
	}
	o := c.Spec.Options
	if o == nil {
		return p, nil
	}
	for _, f := range []struct {
		field, text string
		set         *param.Opt[float64]
	}{{"temperature", o.Temperature, &p.Temperature}, {"topP", o.TopP, &p.TopP}} {
		if f.text == "" {
			continue
		}
		v, err := strconv.ParseFloat(f.text, 64)
		if err != nil {
			return p, model.Errorf(model.KindConfig, "model %s: spec.options.%s is %q: give a decimal number", c.Name, f.field, f.text)
		}
		*f.set = param.NewOpt(v)
	}
	if o.MaxTokens != nil {
		// OpenAI's newer models refuse max_tokens; other servers as a rule know nothing else.
		if host == "api.openai.com" {
			p.MaxCompletionTokens = param.NewOpt(int64(*o.MaxTokens))
		} else {
			p.MaxTokens = param.NewOpt(int64(*o.MaxTokens))
		}
	}
	return p, nil
}

// Stream implements model.Client.
func (c *Client) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	params, err := c.request(req)
	if err != nil {
		return nil, err
	}
	call, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var raw *http.Response
	stream := c.chat.NewStreaming(call, params, option.WithResponseInto(&raw))
	defer func() { _ = stream.Close() }()

	var a answer
	for stream.Next() {
		if err := a.add(stream.Current(), emit); err != nil {
			return nil, err
		}
	}
	if err := stream.Err(); err != nil || (raw != nil && raw.StatusCode >= http.StatusBadRequest) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, c.explain(call, err, raw, a.chunks > 0)
	}
	return a.response(c.endpoint)
}

// request translates a request into the SDK's parameters.
func (c *Client) request(req model.Request) (sdk.ChatCompletionNewParams, error) {
	p := c.params
	p.Messages = make([]sdk.ChatCompletionMessageParamUnion, 0, len(req.Messages))
	for _, m := range req.Messages {
		p.Messages = append(p.Messages, message(m))
	}
	for _, t := range req.Tools {
		f := shared.FunctionDefinitionParam{Name: t.Name}
		if t.Description != "" {
			f.Description = param.NewOpt(t.Description)
		}
		schema := map[string]any{"type": "object", "properties": map[string]any{}}
		if len(t.Parameters) > 0 {
			schema = nil
			if err := json.Unmarshal(t.Parameters, &schema); err != nil {
				return p, model.Errorf(model.KindConfig, "the parameters of tool %s are not a JSON object: %v", t.Name, err)
			}
		}
		f.Parameters = schema
		p.Tools = append(p.Tools, sdk.ChatCompletionFunctionTool(f))
	}
	if len(p.Tools) > 0 && req.ToolChoice != "" {
		p.ToolChoice = sdk.ChatCompletionToolChoiceOptionUnionParam{OfAuto: param.NewOpt(string(req.ToolChoice))}
	}
	return p, nil
}

func message(m model.Message) sdk.ChatCompletionMessageParamUnion {
	switch m.Role {
	case model.RoleSystem:
		return sdk.SystemMessage(m.Text())
	case model.RoleTool:
		return sdk.ToolMessage(m.Text(), m.ToolCallID)
	case model.RoleAssistant:
		var a sdk.ChatCompletionAssistantMessageParam
		if text := m.Text(); text != "" || len(m.ToolCalls) == 0 {
			a.Content.OfString = param.NewOpt(text)
		}
		for _, tc := range m.ToolCalls {
			a.ToolCalls = append(a.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{
				OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
					ID: tc.ID,
					Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{
						Name: tc.Name, Arguments: validArguments(tc.Arguments),
					},
				},
			})
		}
		return sdk.ChatCompletionMessageParamUnion{OfAssistant: &a}
	default:
		return sdk.UserMessage(m.Text())
	}
}

// validArguments keeps a model's own broken arguments from making every later request invalid: servers
// parse them, and the result that follows tells the model what was wrong.
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
