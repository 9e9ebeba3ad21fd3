package window_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/window"
)

// provider is a model that reads at most a number of characters and refuses more.
type provider struct {
	most  int
	says  model.Error // of a request that is too long
	asked []model.Request
}

func (p *provider) Stream(_ context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	p.asked = append(p.asked, req)
	size := 0
	for _, m := range req.Messages {
		size += len(m.Content)
	}
	if size > p.most {
		e := p.says
		e.Kind, e.Code, e.Message = model.KindStatus, model.CodeContextLength, "too long"
		if e.Limit > 0 {
			e.Counted = int64(size) / 4
		}
		return nil, &e
	}
	emit(model.Delta{Text: "fine"})
	return &model.Response{Content: "fine"}, nil
}

// ask returns the answer of a client, or its error.
func ask(c model.Client, req model.Request) (*model.Response, error) {
	return c.Stream(context.Background(), req, func(model.Delta) {})
}

func declared(tokens int64) skeinv1.ModelSpec {
	return skeinv1.ModelSpec{Capabilities: &skeinv1.ModelCapabilities{ContextWindow: tokens, MaxOutputTokens: 100}}
}

// turns returns a system prompt, n turns that each call a tool, and a question. Texts have size characters.
func turns(n, size int) []model.Message {
	text := strings.Repeat("x", size)
	out := []model.Message{{Role: model.RoleSystem, Content: "system"}}
	for i := range n {
		id := fmt.Sprint("c", i)
		out = append(out, model.Message{Role: model.RoleUser, Content: text},
			model.Message{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: id, Name: "t", Arguments: "{}"}}},
			model.Message{Role: model.RoleTool, ToolCallID: id, Name: "t", Content: text},
			model.Message{Role: model.RoleAssistant, Content: text})
	}
	return append(out, model.Message{Role: model.RoleUser, Content: "now?"})
}

// whole checks that each result has its call.
func whole(t *testing.T, messages []model.Message) {
	t.Helper()
	called := map[string]bool{}
	for _, m := range messages {
		for _, c := range m.ToolCalls {
			called[c.ID] = true
		}
		if m.Role == model.RoleTool && !called[m.ToolCallID] {
			t.Errorf("the result of %s has no call", m.ToolCallID)
		}
	}
}

func TestAFallbackWithASmallerWindowGetsLess(t *testing.T) {
	busy := &model.Error{Kind: model.KindStatus, Status: 503, Passing: true, Message: "busy"}
	large, small := &provider{}, &provider{most: 1 << 20}
	c := model.WithFallbacks(
		model.Named{Name: "large", Client: window.Within(failing{busy, large}, "large", declared(100_000))},
		model.Named{Name: "small", Client: window.Within(small, "small", declared(1000))})
	req := model.Request{Messages: turns(4, 400)}
	res, err := ask(c, req)
	if err != nil {
		t.Fatal(err)
	}
	got := small.asked[0].Messages
	whole(t, got)
	if len(got) >= len(req.Messages) || got[0].Content != "system" || got[len(got)-1].Content != "now?" {
		t.Errorf("the small model read %d of %d messages", len(got), len(req.Messages))
	}
	if n := len(large.asked[0].Messages); n != len(req.Messages) {
		t.Errorf("the large one read %d of %d", n, len(req.Messages))
	}
	if want := len(req.Messages) - len(got); res.Trimmed == nil || res.Trimmed.LeftOut != want || res.Trimmed.ContextWindow != 1000 || res.Model != "small" {
		t.Errorf("it does not say that %d messages were left out: %+v", want, res.Trimmed)
	}
}

type failing struct {
	err error
	*provider
}

func (f failing) Stream(_ context.Context, req model.Request, _ func(model.Delta)) (*model.Response, error) {
	f.asked = append(f.asked, req)
	return nil, f.err
}

func TestOneThatNotEvenTheNewestTurnFitsFallsBackToALargerOne(t *testing.T) {
	large := &provider{most: 1 << 20}
	c := model.WithFallbacks(model.Named{Name: "small", Client: window.Within(&provider{}, "small", declared(500))},
		model.Named{Name: "large", Client: window.Within(large, "large", declared(100_000))})
	res, err := ask(c, model.Request{Messages: []model.Message{{Role: model.RoleUser, Content: strings.Repeat("x", 5000)}}})
	if err != nil || res.Model != "large" || res.Trimmed != nil {
		t.Errorf("got %+v, %v", res, err)
	}
}

func TestAProviderThatRefusesWhatIsTooLongIsAskedOnceMore(t *testing.T) {
	for name, p := range map[string]*provider{
		"which says how much it takes": {most: 3000, says: model.Error{Status: 400, Limit: 750}},
		"which does not":               {most: 3000, says: model.Error{Status: 400}},
		"by its size in bytes":         {most: 3000, says: model.Error{Status: 413}},
	} {
		t.Run(name, func(t *testing.T) {
			c := window.Within(p, "m", skeinv1.ModelSpec{})
			req := model.Request{Messages: turns(4, 400), Session: "s", SessionMessages: 3}
			res, err := ask(c, req)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.asked) != 2 || res.Trimmed == nil {
				t.Fatalf("it was asked %d times; trimmed: %+v", len(p.asked), res.Trimmed)
			}
			whole(t, p.asked[1].Messages)
			if p.asked[1].Session != "" || p.asked[1].SessionMessages != 0 {
				t.Error("what the provider keeps was gone on with")
			}
			if fmt.Sprint(res.Read) != fmt.Sprint(p.asked[1].Messages) {
				t.Error("it does not say what was read")
			}
			if p.says.Limit == 0 {
				return
			}
			if _, err := ask(c, model.Request{Messages: turns(5, 400)}); err != nil || len(p.asked) != 3 {
				t.Errorf("what it said is not remembered: asked %d times, %v", len(p.asked), err)
			}
		})
	}
}

func TestAProviderThatRefusesAgainIsNotAskedAThirdTime(t *testing.T) {
	p := &provider{}
	_, err := ask(window.Within(p, "m", skeinv1.ModelSpec{}), model.Request{Messages: turns(4, 400)})
	if err == nil || len(p.asked) != 2 || !strings.Contains(err.Error(), "too long") || !strings.Contains(err.Error(), "keep large data in files") {
		t.Errorf("asked %d times: %v", len(p.asked), err)
	}
	p = &provider{}
	_, err = ask(window.Within(p, "m", skeinv1.ModelSpec{}), model.Request{Messages: []model.Message{{Role: model.RoleUser, Content: strings.Repeat("x", 4000)}}})
	if err == nil || len(p.asked) != 1 {
		t.Errorf("with nothing to leave out it was asked %d times: %v", len(p.asked), err)
	}
}

func TestARefusalThatLessDoesNotHealIsNotRemembered(t *testing.T) {
	for name, says := range map[string]model.Error{"that names a window": {Status: 400, Limit: 300}, "that does not": {Status: 400}} {
		t.Run(name, func(t *testing.T) {
			p := &provider{says: says}
			c := window.Within(p, "m", skeinv1.ModelSpec{})
			for range 3 {
				if _, err := ask(c, model.Request{Messages: turns(4, 400)}); err == nil {
					t.Fatal("it was not refused")
				}
			}
			p.most, p.asked = 1<<20, nil
			all := turns(8, 400)
			res, err := ask(c, model.Request{Messages: all})
			if err != nil || len(p.asked) != 1 || len(p.asked[0].Messages) != len(all) || res.Trimmed != nil {
				t.Errorf("what is no longer refused does not go out whole: %+v, %v", res, err)
			}
		})
	}
}

func TestLargeResultsOfTheNewestTurnAreShortened(t *testing.T) {
	p := &provider{most: 1 << 30}
	big := "begin " + strings.Repeat("日x", 500_000) + " end"
	req := model.Request{Messages: append(turns(2, 100),
		model.Message{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "a", Name: "t", Arguments: "{}"}, {ID: "b", Name: "t", Arguments: "{}"}}},
		model.Message{Role: model.RoleTool, ToolCallID: "a", Name: "t", Content: big},
		model.Message{Role: model.RoleTool, ToolCallID: "b", Name: "t", Content: "small"})}
	res, err := ask(window.Within(p, "m", declared(2000)), req)
	if err != nil {
		t.Fatal(err)
	}
	got := p.asked[0].Messages
	size := 0
	for i := range got {
		size += window.Message(&got[i])
	}
	if size > 1900 || size < 1000 {
		t.Errorf("it read %d tokens", size)
	}
	short := got[len(got)-2].Content
	if !strings.HasPrefix(short, "begin ") || !strings.HasSuffix(short, " end") || !strings.Contains(short, "characters are left out here") || !strings.Contains(short, `tool_call_id "a"`) {
		t.Errorf("%.300s", short)
	}
	if got[len(got)-1].Content != "small" || res.Trimmed.Shortened != 1 {
		t.Errorf("%s, %+v", got[len(got)-1].Content, res.Trimmed)
	}
	if req.Messages[len(req.Messages)-2].Content != big {
		t.Error("what was given has changed")
	}
}

func TestWhatIsTooLargeIsSaid(t *testing.T) {
	long := strings.Repeat("x", 8000)
	for want, req := range map[string]model.Request{
		"attach large content as a file":               {Messages: []model.Message{{Role: model.RoleSystem, Content: "s"}, {Role: model.RoleUser, Content: long}}},
		"shorten the prompt and what it includes":      {Messages: []model.Message{{Role: model.RoleSystem, Content: long}, {Role: model.RoleUser, Content: "u"}}},
		"the definitions of 1 tools":                   {Messages: turns(0, 1), Tools: []model.Tool{{Name: "t", Description: long}}},
		"more than the 900 that the model m reads":     {Messages: []model.Message{{Role: model.RoleUser, Content: long}}},
		"a larger window (spec.capabilities.contextWi": {Messages: []model.Message{{Role: model.RoleUser, Content: long}}},
	} {
		p := &provider{}
		_, err := ask(window.Within(p, "m", declared(1000)), req)
		if err == nil || !strings.Contains(err.Error(), want) || len(p.asked) > 0 {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// A provider's conversation is continued for as long as nothing more must be left out.
func TestAConversationThatTheProviderKeeps(t *testing.T) {
	p := &provider{most: 1 << 20}
	c := window.Within(p, "m", declared(1000))
	all := turns(4, 400)
	if _, err := ask(c, model.Request{Messages: all, Session: "s", SessionMessages: 6, SessionLeftOut: 8}); err != nil {
		t.Fatal(err)
	}
	if got := p.asked[0]; got.Session != "s" || got.SessionMessages != 6 || len(got.Messages) != len(all)-8 {
		t.Errorf("session %q knows %d of %d", got.Session, got.SessionMessages, len(got.Messages))
	}
	if _, err := ask(c, model.Request{Messages: turns(6, 400), Session: "s", SessionMessages: 6, SessionLeftOut: 8}); err != nil {
		t.Fatal(err)
	}
	if got := p.asked[1]; got.Session != "" || got.SessionMessages != 0 || got.SessionLeftOut != 0 {
		t.Errorf("session %q is gone on with though it has no room", got.Session)
	}
}
