package transcript

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

func text(s string) *string { return &s }

func conversationOf(msgs ...store.Message) *Conversation {
	c := New()
	for i, m := range msgs {
		if m.Seq == 0 {
			m.Seq = int64(i + 1)
		}
		if m.ID == "" {
			m.ID = "m" + string(rune('a'+i))
		}
		c.Add(m)
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
	got := Assemble("sys", c, definition.SideA, "")
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
		for _, m := range Assemble("sys", c, side, "other") {
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

// For any log, the model gets a conversation that providers accept: each call has
// exactly one result, right behind it and in order, and there is no result without a call.
func TestAnyLogMakesAValidConversation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		c := New()
		for i := range rapid.IntRange(0, 12).Draw(t, "n") {
			m := store.Message{ID: string(rune('A' + i)), Seq: int64(rapid.IntRange(1, 30).Draw(t, "seq")), Content: text("x")}
			switch m.Role = rapid.SampledFrom([]store.Role{store.RoleUser, store.RoleSystem, store.RoleAssistant, store.RoleTool}).Draw(t, "role"); m.Role {
			case store.RoleAssistant:
				m.ToolCalls = calls(rapid.SliceOfNDistinct(id, 0, 3, rapid.ID[string]).Draw(t, "calls")...)
			case store.RoleTool:
				m.ToolCallID = id.Draw(t, "call")
			}
			c.Add(m)
		}
		got := Assemble("sys", c, definition.SideA, "")
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
		for i := 1; i < len(c.Messages); i++ {
			if c.Messages[i].Seq < c.Messages[i-1].Seq {
				t.Fatal("the conversation is out of order")
			}
		}
	})
}

func TestACallWhoseResultWasRemovedIsNotOutstanding(t *testing.T) {
	asked := store.Message{ID: "asked", Seq: 1, RunID: "r", Role: store.RoleAssistant, ToolCalls: calls("a", "b", "c")}
	before := conversationOf(asked, store.Message{ID: "ra", Seq: 2, RunID: "r", Role: store.RoleTool, ToolCallID: "a"}, store.Message{ID: "rb", Seq: 3, RunID: "r", Role: store.RoleTool, ToolCallID: "b"})
	said := store.Message{ID: "said", Seq: 4, RunID: "r", Role: store.RoleAssistant, Content: text("well")}
	outstanding := func(c *Conversation, want ...string) {
		t.Helper()
		var got []string
		for _, call := range c.OutstandingCalls("r") {
			got = append(got, call.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q are outstanding, want %q", got, want)
		}
	}
	once := conversationOf(asked, *before.Message("rb"), said)
	once.keepEnds(before)
	outstanding(once, "c")
	twice := conversationOf(asked, said)
	twice.keepEnds(once)
	outstanding(twice, "c")
	for i, want := range []string{removed, removed, interrupted} {
		if got := Assemble("", WithoutRepairs(twice, definition.SideA), definition.SideA, "")[2+i].Text(); got != want {
			t.Errorf("the model reads %q of call %d, want %q", got, i, want)
		}
	}
	if twice.safeCuts(0, "r")(1) {
		t.Error("a call whose result is yet to come can be cut off")
	}
	twice.Add(store.Message{ID: "rc", Seq: 5, RunID: "r", Role: store.RoleTool, ToolCallID: "c"})
	twice.Add(store.Message{ID: "more", Seq: 6, RunID: "r", Role: store.RoleAssistant, Content: text("more")})
	if !twice.safeCuts(0, "r")(3) {
		t.Error("calls with removed results cannot be cut off")
	}
}

func TestTheLogIsReadForCallsThatMayHaveEnded(t *testing.T) {
	c := conversationOf(store.Message{RunID: "r", Role: store.RoleAssistant, ToolCalls: calls("a")})
	read := &ends{entries: []store.Event{{Type: store.EventToolEnded, RunID: "other", Data: []byte(`{"toolCallId":"a"}`)}}}
	recall := func(s store.Store, pending bool) int {
		t.Helper()
		if err := c.RecallEnds(t.Context(), s, "t", "r", func(string) bool { return pending }); err != nil {
			t.Fatal(err)
		}
		return len(c.OutstandingCalls("r"))
	}
	if recall(nil, true) != 1 || recall(read, false) != 1 {
		t.Error("a call is taken for one that has ended")
	}
	read.entries[0].RunID = "r"
	if recall(read, false) != 0 {
		t.Error("a call that has ended is outstanding")
	}
	recall(nil, false) // no call is outstanding
}

// ends is a log of ends of calls.
type ends struct {
	store.Store
	entries []store.Event
}

func (e *ends) LogEntries(context.Context, string, int64, int, ...string) ([]store.Event, error) {
	return e.entries, nil
}
