package plan

import (
	"cmp"
	"reflect"
	"testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

func text(s string) *string { return &s }

func calls(ids ...string) []store.ToolCall {
	var out []store.ToolCall
	for _, id := range ids {
		out = append(out, store.ToolCall{ID: id, Name: "t", Arguments: "{}"})
	}
	return out
}

// conversationOf numbers messages in their order, and names those that have no id.
func conversationOf(msgs ...store.Message) *transcript.Conversation {
	c := transcript.New()
	for i, m := range msgs {
		m.Seq = int64(i + 1)
		if m.ID == "" {
			m.ID = "m" + string(rune('a'+i))
		}
		c.Add(m)
	}
	return c
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
		want  Decision

		parallel bool
	}{
		"input only":                                {msgs: []store.Message{user}, want: Decision{Action: Ask}},
		"an answer of another run":                  {msgs: []store.Message{{Role: store.RoleAssistant, RunID: "sess_0", Content: text("x")}, user}, want: Decision{Action: Ask}},
		"calls of another run":                      {msgs: []store.Message{{Role: store.RoleAssistant, RunID: "sess_0", ToolCalls: calls("z")}, user}, want: Decision{Action: Ask}},
		"a failure is no answer":                    {msgs: []store.Message{user, {Role: store.RoleAssistant, RunID: run, Status: store.MessageFailed, Content: text("x")}}, want: Decision{Action: Ask}},
		"an answer":                                 {msgs: []store.Message{user, answer("done")}, want: Decision{Action: EndTurn, End: &Ending{Text: "done"}}},
		"an answer that does not stop":              {msgs: []store.Message{user, answer("done")}, side: skeinv1.AgentSide{StopOnResponse: &no}, want: Decision{Action: Ask}},
		"calls":                                     {msgs: []store.Message{user, answer("", "a", "b")}, want: Decision{Action: MakeCalls, Calls: calls("a", "b")}},
		"calls, some with results":                  {msgs: []store.Message{user, answer("", "a", "b"), result("a")}, want: Decision{Action: MakeCalls, Calls: calls("b")}},
		"calls, all with results":                   {msgs: []store.Message{user, answer("", "a"), result("a")}, want: Decision{Action: Ask}},
		"a call that waits":                         {msgs: []store.Message{user, answer("", "a")}, waits: map[string]tool.Wait{"a": {}}, want: Decision{Action: Wait}},
		"a call that waits beside another":          {msgs: []store.Message{user, answer("", "a", "b")}, waits: map[string]tool.Wait{"a": {}}, want: Decision{Action: MakeCalls, Calls: calls("b")}},
		"a call behind one that waits for approval": {msgs: []store.Message{user, answer("", "a", "b", "c")}, waits: map[string]tool.Wait{"b": {Kind: tool.WaitApproval}}, want: Decision{Action: MakeCalls, Calls: calls("a")}},
		"no call behind one that waits for a time":  {msgs: []store.Message{user, answer("", "a", "b")}, waits: map[string]tool.Wait{"a": {Kind: tool.WaitDelay}}, want: Decision{Action: Wait}},
		"calls beside one that waits, made at once": {msgs: []store.Message{user, answer("", "a", "b")}, waits: map[string]tool.Wait{"a": {Kind: tool.WaitDelay}}, parallel: true, want: Decision{Action: MakeCalls, Calls: calls("b")}},
		"a stop tool":                               {msgs: []store.Message{user, answer("said", "a"), result("a")}, side: stopTool, want: Decision{Action: EndTurn, End: &Ending{Text: "said"}}},
		"a stop tool that failed":                   {msgs: []store.Message{user, answer("", "a"), {Role: store.RoleTool, ToolCallID: "a", ToolStatus: "error"}}, side: stopTool, want: Decision{Action: Ask}},
		"a queued tool is no answer":                {msgs: []store.Message{{Role: store.RoleAssistant, RunID: run, ToolCalls: calls("q"), Metadata: map[string]any{transcript.MetadataQueuedTool: true}}, result("q")}, side: stopTool, want: Decision{Action: Ask}},
		"a session tool":                            {msgs: []store.Message{user, answer("", "a"), result("a")}, side: skeinv1.AgentSide{SessionFail: &skeinv1.SessionTool{Name: "t"}}, want: Decision{Action: EndSession, End: &Ending{session: true, Failed: true, Append: true}}},
		"the turn of the other side":                {msgs: []store.Message{user, by(definition.SideA, "m", answer("x"))}, turn: definition.SideB, after: "m", want: Decision{Action: Ask}},
		"its answer":                                {msgs: []store.Message{user, by(definition.SideA, "m", answer("x")), by(definition.SideB, "n", answer("y"))}, turn: definition.SideB, after: "m", want: Decision{Action: EndTurn, End: &Ending{Text: "y"}}},
		"the same side again":                       {msgs: []store.Message{user, by(definition.SideA, "m", answer("x"))}, after: "m", want: Decision{Action: Ask}},
		"what came before was deleted":              {msgs: []store.Message{user, by(definition.SideA, "l", answer("x"))}, turn: definition.SideB, after: "m", want: Decision{Action: Ask}},
		"calls of both sides": {msgs: []store.Message{user, by(definition.SideA, "m", answer("", "a", "b")), by(definition.SideB, "n", answer("", "c"))}, turn: definition.SideB,
			want: Decision{Action: MakeCalls, Calls: calls("a", "b")}},
	} {
		if got := Next(conversationOf(c.msgs...), run, &definition.Side{Name: cmp.Or(c.turn, definition.SideA), Spec: c.side}, c.after, c.waits, c.parallel); !reflect.DeepEqual(got, c.want) {
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
		d := Next(conversationOf(m, store.Message{Role: store.RoleTool, ToolCallID: "a"}), "r", &definition.Side{Name: definition.SideA, Spec: side}, "", nil, false)
		if d.End == nil || d.End.Text != want {
			t.Errorf("%s: got %+v, want %q", arguments, d.End, want)
		}
	}
}

func TestAnswersHaveTheArgumentsOfTheApprover(t *testing.T) {
	side := skeinv1.AgentSide{StopTool: "t", StopToolResponseProperty: "message", SessionStop: &skeinv1.SessionTool{Name: "done"}, SessionFail: &skeinv1.SessionTool{Name: "failed"}}
	changed := []byte(`{"message":"changed","attachments":["/f"]}`)
	for name, c := range map[string]struct {
		approval any
		want     string
	}{
		"none":        {nil, "own"},
		"unchanged":   {store.Approval{Approved: true}, "own"},
		"in memory":   {store.Approval{Approved: true, Arguments: changed}, "changed"},
		"read again":  {map[string]any{"approved": true, "arguments": map[string]any{"message": "changed"}}, "changed"},
		"not of ours": {"yes", "own"},
	} {
		for _, tool := range []string{"t", "done", "failed"} {
			m := store.Message{Role: store.RoleAssistant, RunID: "r", ToolCalls: []store.ToolCall{{ID: "a", Name: tool, Arguments: `{"message":"own"}`}}}
			result := store.Message{Role: store.RoleTool, ToolCallID: "a"}
			if c.approval != nil {
				result.Metadata = map[string]any{"approval": c.approval}
			}
			d := Next(conversationOf(m, result), "r", &definition.Side{Name: definition.SideA, Spec: side}, "", nil, false)
			if d.End == nil || d.End.Text != c.want {
				t.Errorf("%s, %s: got %+v, want %q", name, tool, d.End, c.want)
			}
		}
	}
}
