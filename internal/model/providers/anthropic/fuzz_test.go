package anthropic_test

import (
	"context"
	"path/filepath"
	"testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/anthropic"
	"github.com/skein-dev/skein/internal/model/providers/wire/wiretest"
)

// FuzzStream answers a call with any bytes. The client returns an answer that can be recorded, or says what is wrong, and never shows the key.
func FuzzStream(f *testing.F) {
	files, err := filepath.Glob("testdata/*.http")
	if err != nil || len(files) == 0 {
		f.Fatal("no recordings", err)
	}
	for _, file := range files {
		f.Add(wiretest.Body(f, file))
	}
	f.Add([]byte("event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"" + canary + "\"}}\n\n"))
	f.Add([]byte("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9223372036854775807,\"output_tokens\":-3}}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9223372036854775807}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := anthropic.New(model.Config{Namespace: "ns", Name: "m", APIKey: canary, Transport: wiretest.Stream(body), Spec: skeinv1.ModelSpec{
			Provider: skeinv1.ProviderAnthropic, Model: "m", Endpoint: "http://model.example.com/v1",
		}})
		if err != nil {
			t.Fatal(err)
		}
		wiretest.CheckStream(t, canary, func(emit func(model.Delta)) (*model.Response, error) {
			return c.Stream(context.Background(), model.Request{Messages: []model.Message{{Role: model.RoleUser, Content: "hello"}}}, emit)
		})
	})
}
