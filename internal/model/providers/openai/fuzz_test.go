package openai_test

import (
	"context"
	"path/filepath"
	"testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/openai"
	"github.com/skein-dev/skein/internal/model/providers/wire/wiretest"
)

// FuzzStream answers a call with any bytes, with both APIs. The client returns an answer that can be recorded, or says what is wrong, and never
// shows the key.
func FuzzStream(f *testing.F) {
	for _, s := range []string{
		chunk(`{"role":"assistant","content":"Hel"}`, "") + chunk(`{"content":"lo"}`, "stop") + usageChunk + done,
		chunk(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"x\":"}},{"index":1,"id":"c2","function":{"name":"g","arguments":"{}"}}]}`, "") +
			chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}`, "tool_calls") + done,
		chunk(`{"reasoning_content":"hm","refusal":"no"}`, "content_filter"), "data: {", "data: null\n\n", "event: error\ndata: {\"error\":{\"message\":\"" + canary + "\"}}\n\n", "",
	} {
		f.Add(false, []byte(s))
	}
	f.Add(false, []byte(chunk(`{"content":"x"}`, "stop")+`data: {"choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":9223372036854775807}}`+"\n\n"+done))
	f.Add(true, []byte(`data: {"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":-1,"output_tokens":9223372036854775807}}}`+"\n\n"))
	files, err := filepath.Glob("testdata/responses_*.http")
	if err != nil || len(files) == 0 {
		f.Fatal("no recordings", err)
	}
	for _, file := range files {
		f.Add(true, wiretest.Body(f, file))
	}
	f.Fuzz(func(t *testing.T, responses bool, body []byte) {
		spec := skeinv1.ModelSpec{Provider: skeinv1.ProviderOpenAI, Model: "m", Endpoint: "http://model.example.com/v1"}
		if responses {
			spec.API = skeinv1.APIResponses
		}
		c, err := openai.New(model.Config{Namespace: "ns", Name: "m", APIKey: canary, Spec: spec, Transport: wiretest.Stream(body)})
		if err != nil {
			t.Fatal(err)
		}
		wiretest.CheckStream(t, canary, func(emit func(model.Delta)) (*model.Response, error) {
			return c.Stream(context.Background(), model.Request{Messages: []model.Message{{Role: model.RoleUser, Content: "hello"}}}, emit)
		})
	})
}
