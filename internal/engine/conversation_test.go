package engine

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

func text(s string) *string { return &s }

func conversationOf(msgs ...store.Message) *conversation {
	c := newConversation()
	for i, m := range msgs {
		if m.Seq == 0 {
			m.Seq = int64(i + 1)
		}
		if m.ID == "" {
			m.ID = "m" + string(rune('a'+i))
		}
		c.add(m)
	}
	return c
}

func calls(ids ...string) []store.ToolCall {
	var out []store.ToolCall
	for _, id := range ids {
		out = append(out, store.ToolCall{ID: id, Name: "t", Arguments: "{}"})
	}
	return out
}

func TestResultsStandBehindTheirCalls(t *testing.T) {
	c := conversationOf(
		store.Message{Role: store.RoleUser, Content: text("go")},
		store.Message{Role: store.RoleAssistant, ToolCalls: calls("a", "b", "c")},
		store.Message{Role: store.RoleUser, Content: text("meanwhile")},
		store.Message{Role: store.RoleTool, ToolCallID: "b", Content: text("B")},
		store.Message{Role: store.RoleTool, ToolCallID: "a", Content: text("A"), Attachments: []store.Attachment{{Path: "/f", MimeType: "text/plain", Size: 3}}},
		store.Message{Role: store.RoleTool, ToolCallID: "nobody", Content: text("stray")},
		store.Message{Role: store.RoleSystem, Content: text("note")},
	)
	got := assemble("sys", c)
	var lines []string
	for _, m := range got {
		lines = append(lines, string(m.Role)+" "+m.ToolCallID+" "+m.Text())
	}
	want := []string{"system  sys", "user  go", "assistant  ", "tool a A\n\n[attached files: /f (text/plain, 3 bytes)]", "tool b B", "tool c " + interrupted, "user  meanwhile", "system  note"}
	if !slices.Equal(lines, want) {
		t.Errorf("got  %q\nwant %q", lines, want)
	}
}

// Whatever a log holds, what the model gets to read is a conversation that providers take: each call has
// exactly one result, right behind it and in order, and there is no result without a call.
func TestAnyLogMakesAValidConversation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		c := newConversation()
		for i := range rapid.IntRange(0, 12).Draw(t, "n") {
			m := store.Message{ID: string(rune('A' + i)), Seq: int64(rapid.IntRange(1, 30).Draw(t, "seq")), Content: text("x")}
			switch m.Role = rapid.SampledFrom([]store.Role{store.RoleUser, store.RoleSystem, store.RoleAssistant, store.RoleTool}).Draw(t, "role"); m.Role {
			case store.RoleAssistant:
				m.ToolCalls = calls(rapid.SliceOfNDistinct(id, 0, 3, rapid.ID[string]).Draw(t, "calls")...)
			case store.RoleTool:
				m.ToolCallID = id.Draw(t, "call")
			}
			c.add(m)
		}
		got := assemble("sys", c)
		for i := 0; i < len(got); i++ {
			m := got[i]
			if m.Role == model.RoleTool {
				t.Fatalf("result %s at %d stands behind no call of it", m.ToolCallID, i)
			}
			for _, call := range m.ToolCalls {
				if i++; i == len(got) || got[i].Role != model.RoleTool || got[i].ToolCallID != call.ID {
					t.Fatalf("no result behind call %s", call.ID)
				}
			}
		}
		for i := 1; i < len(c.msgs); i++ {
			if c.msgs[i].Seq < c.msgs[i-1].Seq {
				t.Fatal("the conversation is out of order")
			}
		}
	})
}

func TestPlan(t *testing.T) {
	const run = "sess_1"
	answer := func(content string, ids ...string) store.Message {
		m := store.Message{Role: store.RoleAssistant, RunID: run, ToolCalls: calls(ids...)}
		if content != "" {
			m.Content = text(content)
		}
		return m
	}
	result := func(id string) store.Message {
		return store.Message{Role: store.RoleTool, ToolCallID: id, ToolStatus: string(tool.StatusSuccess)}
	}
	user := store.Message{Role: store.RoleUser, Content: text("go")}
	no := false
	stopTool := skeinv1.AgentSide{StopTool: "t"}
	for name, c := range map[string]struct {
		msgs  []store.Message
		side  skeinv1.AgentSide
		waits map[string]tool.Wait
		want  decision

		parallel bool
	}{
		"input only":                                {msgs: []store.Message{user}, want: decision{action: actionAsk}},
		"an answer of another run":                  {msgs: []store.Message{{Role: store.RoleAssistant, RunID: "sess_0", Content: text("x")}, user}, want: decision{action: actionAsk}},
		"calls of another run":                      {msgs: []store.Message{{Role: store.RoleAssistant, RunID: "sess_0", ToolCalls: calls("z")}, user}, want: decision{action: actionAsk}},
		"a failure is no answer":                    {msgs: []store.Message{user, {Role: store.RoleAssistant, RunID: run, Status: store.MessageFailed, Content: text("x")}}, want: decision{action: actionAsk}},
		"an answer":                                 {msgs: []store.Message{user, answer("done")}, want: decision{action: actionEnd, end: &ending{text: "done"}}},
		"an answer that does not stop":              {msgs: []store.Message{user, answer("done")}, side: skeinv1.AgentSide{StopOnResponse: &no}, want: decision{action: actionAsk}},
		"calls":                                     {msgs: []store.Message{user, answer("", "a", "b")}, want: decision{action: actionCalls, calls: calls("a", "b")}},
		"calls, some with results":                  {msgs: []store.Message{user, answer("", "a", "b"), result("a")}, want: decision{action: actionCalls, calls: calls("b")}},
		"calls, all with results":                   {msgs: []store.Message{user, answer("", "a"), result("a")}, want: decision{action: actionAsk}},
		"a call that waits":                         {msgs: []store.Message{user, answer("", "a")}, waits: map[string]tool.Wait{"a": {}}, want: decision{action: actionWait}},
		"a call that waits beside another":          {msgs: []store.Message{user, answer("", "a", "b")}, waits: map[string]tool.Wait{"a": {}}, want: decision{action: actionCalls, calls: calls("b")}},
		"a call behind one that waits for approval": {msgs: []store.Message{user, answer("", "a", "b", "c")}, waits: map[string]tool.Wait{"b": {Kind: tool.WaitApproval}}, want: decision{action: actionCalls, calls: calls("a")}},
		"no call behind one that waits for a time":  {msgs: []store.Message{user, answer("", "a", "b")}, waits: map[string]tool.Wait{"a": {Kind: tool.WaitDelay}}, want: decision{action: actionWait}},
		"calls beside one that waits, made at once": {msgs: []store.Message{user, answer("", "a", "b")}, waits: map[string]tool.Wait{"a": {Kind: tool.WaitDelay}}, parallel: true, want: decision{action: actionCalls, calls: calls("b")}},
		"a stop tool":                               {msgs: []store.Message{user, answer("said", "a"), result("a")}, side: stopTool, want: decision{action: actionEnd, end: &ending{text: "said"}}},
		"a stop tool that failed":                   {msgs: []store.Message{user, answer("", "a"), {Role: store.RoleTool, ToolCallID: "a", ToolStatus: "error"}}, side: stopTool, want: decision{action: actionAsk}},
		"a queued tool is no answer":                {msgs: []store.Message{{Role: store.RoleAssistant, RunID: run, ToolCalls: calls("q"), Metadata: map[string]any{metadataQueuedTool: true}}, result("q")}, side: stopTool, want: decision{action: actionAsk}},
	} {
		if got := plan(conversationOf(c.msgs...), run, c.side, c.waits, c.parallel); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestStopToolResponseProperty(t *testing.T) {
	side := skeinv1.AgentSide{StopTool: "t", StopToolResponseProperty: "answer"}
	for arguments, want := range map[string]string{
		`{"answer":"yes"}`:      "yes",
		`{"answer":{"n":[1]}}`:  `{"n":[1]}`,
		`{"other":"yes"}`:       "content",
		`{"answer":null,"x":1}`: "",
	} {
		m := store.Message{Role: store.RoleAssistant, RunID: "r", Content: text("content"), ToolCalls: []store.ToolCall{{ID: "a", Name: "t", Arguments: arguments}}}
		d := plan(conversationOf(m, store.Message{Role: store.RoleTool, ToolCallID: "a"}), "r", side, nil, false)
		if d.end == nil || d.end.text != want {
			t.Errorf("%s: got %+v, want %q", arguments, d.end, want)
		}
	}
}
