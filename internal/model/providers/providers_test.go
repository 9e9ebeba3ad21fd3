package providers_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers"
)

func scripted(version string) model.Config {
	return model.Config{Namespace: "a", Name: "m", Version: version, Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted}, Steps: []skeinv1.ScriptStep{{Content: "x"}}}
}

func TestClientsAreKeptByVersion(t *testing.T) {
	f := providers.NewFactory(nil)
	get := func(c model.Config) model.Client {
		t.Helper()
		client, err := f.Client(c)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	one := get(scripted("1"))
	if get(scripted("1")) != one {
		t.Error("the same version must give the same client")
	}
	if get(scripted("2")) == one {
		t.Error("another version must give another client")
	}
	other := scripted("2")
	other.Namespace = "b"
	if get(other) == get(scripted("2")) {
		t.Error("Models of two namespaces must not share a client")
	}
}

// For a model without tools, the window is fitted while calls and results are still recognisable as such.
func TestAModelWithoutToolsAndWithASmallWindowReadsTheQuestion(t *testing.T) {
	read := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		read <- string(body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"fine"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()
	client, err := providers.NewFactory(nil).Client(model.Config{Namespace: "a", Name: "m", Version: "1", APIKey: "k", Spec: skeinv1.ModelSpec{
		Provider: skeinv1.ProviderOpenAI, Model: "m", Endpoint: server.URL + "/v1",
		Capabilities: &skeinv1.ModelCapabilities{Tools: ptr.To(false), ContextWindow: 2000, MaxOutputTokens: 100},
	}})
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Stream(context.Background(), model.Request{
		Tools: []model.Tool{{Name: "look"}},
		Messages: []model.Message{
			{Role: model.RoleSystem, Content: "system"}, {Role: model.RoleUser, Content: "an old question"}, {Role: model.RoleAssistant, Content: strings.Repeat("old ", 2000)},
			{Role: model.RoleUser, Content: "the question"},
			{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "c", Name: "look", Arguments: "{}"}}},
			{Role: model.RoleTool, ToolCallID: "c", Name: "look", Content: strings.Repeat("result ", 2000)},
		},
	}, func(model.Delta) {})
	if err != nil {
		t.Fatal(err)
	}
	got := <-read
	for _, want := range []string{"the question", "[called the tool look with {}]", "[result of the tool look]", "characters are left out here"} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not read %q: %.600s", want, got)
		}
	}
	for _, not := range []string{"an old question", "tool_calls", `"tools"`} {
		if strings.Contains(got, not) {
			t.Errorf("it reads %q", not)
		}
	}
	if res.Trimmed == nil || res.Trimmed.LeftOut != 2 || res.Trimmed.Shortened != 1 {
		t.Errorf("it says that %+v was trimmed", res.Trimmed)
	}
}

func TestUnusableModelsAreRefused(t *testing.T) {
	f := providers.NewFactory(nil)
	bad := scripted("1")
	bad.Spec.Provider = "telepathy"
	noSteps := scripted("1")
	noSteps.Steps = nil
	for _, c := range []model.Config{bad, noSteps, {Name: "m", Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderOpenAI}}} {
		client, err := f.Client(c)
		var e *model.Error
		if !errors.As(err, &e) || e.Kind != model.KindConfig || client != nil {
			t.Errorf("%s: got %v, %v", c.Spec.Provider, client, err)
		}
	}
}
