package transcript

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// drawn draws a log: turns of a user with answers, calls and results, some of which come late or never.
func drawn(t *rapid.T) *Conversation {
	c := New()
	seq := int64(0)
	add := func(m store.Message) {
		seq += int64(rapid.IntRange(1, 3).Draw(t, "gap"))
		m.ID, m.Seq = fmt.Sprint("m", seq), seq
		if m.Role != store.RoleAssistant || len(m.ToolCalls) == 0 {
			m.Content = text(rapid.StringMatching(`[a-z ]{0,40}`).Draw(t, "text"))
		}
		c.Add(m)
	}
	id := 0
	var late []string
	for turn := range rapid.IntRange(0, 6).Draw(t, "turns") {
		run := fmt.Sprint("run", turn)
		for range rapid.IntRange(0, 2).Draw(t, "users") {
			add(store.Message{Role: store.RoleUser, RunID: run})
		}
		for range rapid.IntRange(0, 3).Draw(t, "steps") {
			var made []string
			for range rapid.IntRange(0, 2).Draw(t, "calls") {
				id++
				made = append(made, fmt.Sprint("c", id))
			}
			add(store.Message{Role: store.RoleAssistant, RunID: run, ToolCalls: calls(made...)})
			for _, call := range append(late, made...) {
				switch rapid.IntRange(0, 9).Draw(t, "result") {
				case 0: // never
				case 1:
					late = append(late[:len(late):len(late)], call)
				default:
					if c.Result(call) == nil {
						add(store.Message{Role: store.RoleTool, RunID: run, ToolCallID: call})
					}
				}
			}
		}
	}
	return c
}

func sizeOf(m *store.Message) int { return 1 + len(ContentOf(m)) }

func TestACutSeparatesNoCallFromItsResult(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawn(t)
		reader := Reader{Agent: "a", Prompt: "p"}
		run := rapid.SampledFrom([]string{"", "run3", "run5"}).Draw(t, "run")
		all := WithoutSummaries(c)
		for n := range rapid.IntRange(1, 4).Draw(t, "compactions") {
			keep := rapid.IntRange(0, 120).Draw(t, "keep")
			before := c.SummaryFor(reader)
			cut, ok := all.Cut(before, run, keep, sizeOf)
			if !ok {
				return
			}
			if cut.Begin >= cut.End || cut.End >= len(all.Messages) {
				t.Fatalf("cut %v of %d messages", cut, len(all.Messages))
			}
			if before != nil && all.Messages[cut.Begin].Seq <= before.Summary.ToSeq {
				t.Fatalf("what is summed up already is summed up again")
			}
			for i := cut.Begin; i < cut.End; i++ {
				for _, call := range all.Messages[i].ToolCalls {
					if r := all.Result(call.ID); r != nil && r.Seq >= all.Messages[cut.End].Seq {
						t.Fatalf("call %s is summed up, and its result is not", call.ID)
					} else if r == nil && run != "" && all.Messages[i].RunID == run {
						t.Fatalf("call %s of the run under way is summed up before it has a result", call.ID)
					}
				}
			}
			for i := cut.End; i < len(all.Messages); i++ {
				if m := &all.Messages[i]; m.Role == store.RoleTool {
					if caller := all.Caller(m.ToolCallID); caller != nil && caller.Seq < all.Messages[cut.End].Seq {
						t.Fatalf("result %s stays without its call", m.ToolCallID)
					}
				}
			}
			first := all.Messages[cut.Begin]
			if before != nil {
				first = *all.Message(before.Summary.From)
			}
			last := all.Messages[cut.End-1]
			seq := c.Messages[len(c.Messages)-1].Seq + 1
			c.Add(store.Message{ID: fmt.Sprint("s", n), Seq: seq, Role: store.RoleSystem, Silent: true, Content: text("sum"), Summary: &store.Summary{
				From: first.ID, To: last.ID, FromSeq: first.Seq, ToSeq: last.Seq, Agent: "a", Prompt: "p", Messages: cut.End,
			}})
			got := ReplaceBySummary(all, c.SummaryFor(reader))
			checkCompacted(t, all, got, cut.End)
		}
	})
}

// checkCompacted checks that got is the summary, what users said at the beginning of the turn, and everything behind it.
func checkCompacted(t *rapid.T, all, got *Conversation, end int) {
	if got.Messages[0].Summary == nil || got.Messages[0].Role != store.RoleUser {
		t.Fatalf("it begins with %+v", got.Messages[0])
	}
	tail := all.Messages[end:]
	task := got.Messages[1 : len(got.Messages)-len(tail)]
	for i := range tail {
		if m := got.Messages[1+len(task)+i]; m.ID != tail[i].ID {
			t.Fatalf("message %d behind the summary is %s, not %s", i, m.ID, tail[i].ID)
		}
	}
	for _, m := range task {
		if m.Role != store.RoleUser || m.Seq >= tail[0].Seq {
			t.Fatalf("the task has %s of %s", m.ID, m.Role)
		}
	}
	if !all.turnBegins(end) && len(task) == 0 {
		for _, m := range all.Messages[:end] {
			if m.Role == store.RoleUser {
				t.Fatalf("the model has not what the user wants of it: %s", m.ID)
			}
		}
	}
	seen := map[string]bool{}
	for _, m := range Assemble("sys", got, definition.SideA, "") {
		for _, call := range m.ToolCalls {
			seen[call.ID] = true
		}
		if m.Role == model.RoleTool && !seen[m.ToolCallID] {
			t.Fatalf("the result of %s has no call", m.ToolCallID)
		}
	}
}

func TestACutEndsWithATurnWhereItCan(t *testing.T) {
	var msgs []store.Message
	for range 5 {
		msgs = append(msgs, store.Message{Role: store.RoleUser, Content: text("1234")}, store.Message{Role: store.RoleAssistant, Content: text("1234")})
	}
	c := conversationOf(msgs...)
	for keep, want := range map[int]int{20: 6, 24: 6, 25: 6, 29: 6, 30: 4, 40: 2, 49: 2, 0: 9, 4: 9, 5: 9} {
		if cut, ok := c.Cut(nil, "", keep, sizeOf); !ok || cut != (Cut{0, want}) {
			t.Errorf("keep %d: got %v, %v, want the end %d", keep, cut, ok, want)
		}
	}
	if _, ok := c.Cut(nil, "", 50, sizeOf); ok {
		t.Error("everything may stay, and something is summed up")
	}
	if _, ok := New().Cut(nil, "", 50, sizeOf); ok {
		t.Error("nothing is summed up")
	}
	shorter, ok := c.ShortenCut(Cut{2, 6}, "")
	if !ok || shorter != (Cut{2, 5}) {
		t.Errorf("got %v, %v", shorter, ok)
	}
	if _, ok = c.ShortenCut(Cut{2, 3}, ""); ok {
		t.Error("a cut of one message has a shorter one")
	}
}

func TestASummaryIsReadByThoseForWhomItIs(t *testing.T) {
	c := conversationOf(store.Message{ID: "u", Role: store.RoleUser, Content: text("go")}, store.Message{ID: "a", Role: store.RoleAssistant, Content: text("gone")},
		store.Message{ID: "s", Role: store.RoleSystem, Silent: true, Content: text("short"), Summary: &store.Summary{From: "u", To: "a", FromSeq: 1, ToSeq: 2, Messages: 2, Agent: "x", Side: "a", Prompt: "p"}},
		store.Message{ID: "v", Role: store.RoleUser, Content: text("on")})
	for _, other := range []Reader{{"y", "a", "p"}, {"x", "b", "p"}, {"x", "a", "q"}} {
		if c.SummaryFor(other) != nil {
			t.Errorf("%+v reads it", other)
		}
	}
	got := Assemble("sys", ReplaceBySummary(WithoutSummaries(c), c.SummaryFor(Reader{"x", "a", "p"})), definition.SideA, "")
	if len(got) != 3 || got[1].Role != model.RoleUser || !strings.Contains(got[1].Content, "[2 earlier messages") || !strings.Contains(got[1].Content, "\nshort\n") || !got[1].Stays() || got[2].Content != "on" {
		t.Errorf("got %+v", got)
	}
	for _, m := range Assemble("sys", WithoutSummaries(c), definition.SideA, "") {
		if strings.Contains(m.Content, "short") {
			t.Error("others read it")
		}
	}
}

func TestTold(t *testing.T) {
	got := AsText([]model.Message{
		{Role: model.RoleUser, Name: "ada", Content: "look", Attachments: []string{"/a.png (image/png, 3 bytes)"}},
		{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "1", Name: "read", Arguments: `{"p":1}`}}},
		{Role: model.RoleTool, Name: "read", ToolCallID: "1", Content: strings.Repeat("ä", 100)},
	}, 40)
	for _, want := range []string{"[user ada]\nlook\n\n[attached files: /a.png", "[assistant calls read]\n{\"p\":1}\n", "[result of read]\n" + strings.Repeat("ä", 15) + "\n[… 160 bytes are left out here …]\n" + strings.Repeat("ä", 5) + "\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}
