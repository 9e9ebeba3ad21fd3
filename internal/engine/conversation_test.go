package engine

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
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
	got := assemble("sys", c, definition.SideA, "")
	var lines []string
	for _, m := range got {
		lines = append(lines, string(m.Role)+" "+m.ToolCallID+" "+m.Text())
	}
	want := []string{"system  sys", "user  go", "assistant  ", "tool a A\n\n[attached files: /f (text/plain, 3 bytes)]", "tool b B", "tool c " + interrupted, "user  meanwhile", "system  note"}
	if !slices.Equal(lines, want) {
		t.Errorf("got  %q\nwant %q", lines, want)
	}
}

func TestEachSideReadsTheOtherAsAUser(t *testing.T) {
	c := conversationOf(
		store.Message{Role: store.RoleUser, Content: text("go"), Name: "ada"},
		store.Message{Role: store.RoleAssistant, Side: definition.SideA, Content: text("let me look"), ToolCalls: calls("a"), ReasoningContent: "hm", Metadata: map[string]any{"k": "v"}},
		store.Message{Role: store.RoleTool, Side: definition.SideA, ToolCallID: "a", Content: text("A")},
		store.Message{Role: store.RoleAssistant, Side: definition.SideA, Content: text("look at this"), Attachments: []store.Attachment{{Path: "/f"}}},
		store.Message{Role: store.RoleAssistant, Side: definition.SideB, ToolCalls: calls("b")},
		store.Message{Role: store.RoleTool, Side: definition.SideB, ToolCallID: "b", Content: text("B")},
		store.Message{Role: store.RoleAssistant, Side: definition.SideB, Content: text("fine")},
		store.Message{Role: store.RoleAssistant, Content: text("of before there were sides")},
	)
	for side, want := range map[string][]string{
		definition.SideA: {"system : sys", "user ada: go", "assistant : let me look", "tool t: A", "assistant : look at this\n\n[attached files: /f]", "user other: fine", "assistant : of before there were sides"},
		definition.SideB: {"system : sys", "user ada: go", "user other: let me look", "user other: look at this\n\n[attached files: /f]", "assistant : ", "tool t: B", "assistant : fine", "user other: of before there were sides"},
	} {
		var lines []string
		for _, m := range assemble("sys", c, side, "other") {
			lines = append(lines, string(m.Role)+" "+m.Name+": "+m.Text())
			if m.Role == model.RoleUser && m.Metadata != nil {
				t.Errorf("side %s reads what the other's provider said of its answer: %v", side, m.Metadata)
			}
		}
		if !slices.Equal(lines, want) {
			t.Errorf("side %s: got  %q\nwant %q", side, lines, want)
		}
	}
}

func TestNameOfSpeaker(t *testing.T) {
	for label, want := range map[string]string{
		"":                       "",
		"Critic":                 "Critic",
		" The strict one (2nd) ": "The_strict_one__2nd",
		"审稿人":                    "",
		strings.Repeat("x", 200): strings.Repeat("x", 64),
	} {
		if got := definition.SpeakerName(&definition.Side{Spec: skeinv1.AgentSide{Label: label}}); got != want {
			t.Errorf("%q: got %q, want %q", label, got, want)
		}
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
		got := assemble("sys", c, definition.SideA, "")
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
	by := func(side, id string, m store.Message) store.Message {
		m.Side, m.ID = side, id
		return m
	}
	user := store.Message{Role: store.RoleUser, Content: text("go")}
	no := false
	stopTool := skeinv1.AgentSide{StopTool: "t"}
	for name, c := range map[string]struct {
		msgs  []store.Message
		side  skeinv1.AgentSide
		turn  string // whose it is; side a when empty
		after string // the message that ended the turn before
		waits map[string]tool.Wait
		want  decision

		parallel bool
	}{
		"input only":                                {msgs: []store.Message{user}, want: decision{action: actionAsk}},
		"an answer of another run":                  {msgs: []store.Message{{Role: store.RoleAssistant, RunID: "sess_0", Content: text("x")}, user}, want: decision{action: actionAsk}},
		"calls of another run":                      {msgs: []store.Message{{Role: store.RoleAssistant, RunID: "sess_0", ToolCalls: calls("z")}, user}, want: decision{action: actionAsk}},
		"a failure is no answer":                    {msgs: []store.Message{user, {Role: store.RoleAssistant, RunID: run, Status: store.MessageFailed, Content: text("x")}}, want: decision{action: actionAsk}},
		"an answer":                                 {msgs: []store.Message{user, answer("done")}, want: decision{action: actionTurn, end: &ending{text: "done"}}},
		"an answer that does not stop":              {msgs: []store.Message{user, answer("done")}, side: skeinv1.AgentSide{StopOnResponse: &no}, want: decision{action: actionAsk}},
		"calls":                                     {msgs: []store.Message{user, answer("", "a", "b")}, want: decision{action: actionCalls, calls: calls("a", "b")}},
		"calls, some with results":                  {msgs: []store.Message{user, answer("", "a", "b"), result("a")}, want: decision{action: actionCalls, calls: calls("b")}},
		"calls, all with results":                   {msgs: []store.Message{user, answer("", "a"), result("a")}, want: decision{action: actionAsk}},
		"a call that waits":                         {msgs: []store.Message{user, answer("", "a")}, waits: map[string]tool.Wait{"a": {}}, want: decision{action: actionWait}},
		"a call that waits beside another":          {msgs: []store.Message{user, answer("", "a", "b")}, waits: map[string]tool.Wait{"a": {}}, want: decision{action: actionCalls, calls: calls("b")}},
		"a call behind one that waits for approval": {msgs: []store.Message{user, answer("", "a", "b", "c")}, waits: map[string]tool.Wait{"b": {Kind: tool.WaitApproval}}, want: decision{action: actionCalls, calls: calls("a")}},
		"no call behind one that waits for a time":  {msgs: []store.Message{user, answer("", "a", "b")}, waits: map[string]tool.Wait{"a": {Kind: tool.WaitDelay}}, want: decision{action: actionWait}},
		"calls beside one that waits, made at once": {msgs: []store.Message{user, answer("", "a", "b")}, waits: map[string]tool.Wait{"a": {Kind: tool.WaitDelay}}, parallel: true, want: decision{action: actionCalls, calls: calls("b")}},
		"a stop tool":                               {msgs: []store.Message{user, answer("said", "a"), result("a")}, side: stopTool, want: decision{action: actionTurn, end: &ending{text: "said"}}},
		"a stop tool that failed":                   {msgs: []store.Message{user, answer("", "a"), {Role: store.RoleTool, ToolCallID: "a", ToolStatus: "error"}}, side: stopTool, want: decision{action: actionAsk}},
		"a queued tool is no answer":                {msgs: []store.Message{{Role: store.RoleAssistant, RunID: run, ToolCalls: calls("q"), Metadata: map[string]any{metadataQueuedTool: true}}, result("q")}, side: stopTool, want: decision{action: actionAsk}},
		"a session tool":                            {msgs: []store.Message{user, answer("", "a"), result("a")}, side: skeinv1.AgentSide{SessionFail: &skeinv1.SessionTool{Name: "t"}}, want: decision{action: actionEnd, end: &ending{session: true, failed: true, append: true}}},
		"the turn of the other side":                {msgs: []store.Message{user, by(definition.SideA, "m", answer("x"))}, turn: definition.SideB, after: "m", want: decision{action: actionAsk}},
		"its answer":                                {msgs: []store.Message{user, by(definition.SideA, "m", answer("x")), by(definition.SideB, "n", answer("y"))}, turn: definition.SideB, after: "m", want: decision{action: actionTurn, end: &ending{text: "y"}}},
		"the same side again":                       {msgs: []store.Message{user, by(definition.SideA, "m", answer("x"))}, after: "m", want: decision{action: actionAsk}},
		"what came before was deleted":              {msgs: []store.Message{user, by(definition.SideA, "l", answer("x"))}, turn: definition.SideB, after: "m", want: decision{action: actionAsk}},
		"calls of both sides": {msgs: []store.Message{user, by(definition.SideA, "m", answer("", "a", "b")), by(definition.SideB, "n", answer("", "c"))}, turn: definition.SideB,
			want: decision{action: actionCalls, calls: calls("a", "b")}},
	} {
		if got := plan(conversationOf(c.msgs...), run, &definition.Side{Name: cmp.Or(c.turn, definition.SideA), Spec: c.side}, c.after, c.waits, c.parallel); !reflect.DeepEqual(got, c.want) {
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
		d := plan(conversationOf(m, store.Message{Role: store.RoleTool, ToolCallID: "a"}), "r", &definition.Side{Name: definition.SideA, Spec: side}, "", nil, false)
		if d.end == nil || d.end.text != want {
			t.Errorf("%s: got %+v, want %q", arguments, d.end, want)
		}
	}
}
