package window

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-dev/skein/internal/model"
)

// conversation draws a system prompt and turns: user messages, sometimes a system message, and answers with calls and
// results.
func conversation(t *rapid.T) []model.Message {
	out := []model.Message{{Role: model.RoleSystem, Content: "system"}}
	if rapid.Bool().Draw(t, "summary") {
		out = append(out, model.Message{Role: model.RoleUser, Content: "summary", Metadata: map[string]any{model.MetadataStays: true}})
	}
	text := rapid.StringMatching(`[a-zä ]{0,60}`)
	id := 0
	for range rapid.IntRange(0, 8).Draw(t, "turns") {
		for range rapid.IntRange(0, 2).Draw(t, "users") {
			if rapid.Bool().Draw(t, "info") {
				out = append(out, model.Message{Role: model.RoleSystem, Content: text.Draw(t, "info text")})
			}
			out = append(out, model.Message{Role: model.RoleUser, Content: text.Draw(t, "user")})
		}
		for range rapid.IntRange(0, 3).Draw(t, "steps") {
			a := model.Message{Role: model.RoleAssistant, Content: text.Draw(t, "answer")}
			var results []model.Message
			for range rapid.IntRange(0, 2).Draw(t, "calls") {
				id++
				a.ToolCalls = append(a.ToolCalls, model.ToolCall{ID: fmt.Sprint(id), Name: "t", Arguments: text.Draw(t, "arguments")})
				results = append(results, model.Message{Role: model.RoleTool, ToolCallID: fmt.Sprint(id), Content: text.Draw(t, "result")})
			}
			out = append(append(out, a), results...)
		}
	}
	return out
}

func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := conversation(t)
		budget := rapid.IntRange(0, 400).Draw(t, "budget")
		f := Fit(all, budget, Message)
		sum := 0
		for i := range f.Messages {
			sum += Message(&f.Messages[i])
		}
		if sum != f.Tokens {
			t.Fatalf("says %d tokens, has %d", f.Tokens, sum)
		}
		if f.Fits != (sum <= budget) {
			t.Fatalf("%d tokens in %d: fits %v", sum, budget, f.Fits)
		}
		// The result must be the system prompt, a summary and the newest messages, in order and without gaps.
		head := model.Head(all)
		if f.Messages[0].Content != "system" || f.Messages[head-1].Content != all[head-1].Content || f.LeftOut != len(all)-len(f.Messages) {
			t.Fatalf("left out %d of %d, kept %d", f.LeftOut, len(all), len(f.Messages))
		}
		tail := all[head+f.LeftOut:]
		for i := range tail {
			if fmt.Sprint(tail[i]) != fmt.Sprint(f.Messages[head+i]) {
				t.Fatalf("message %d is another", i)
			}
		}
		if f.LeftOut == 0 {
			return
		}
		// Turns must be whole: the kept part begins with a user message, and each result has its call.
		begins := head
		for begins < len(f.Messages) && f.Messages[begins].Role == model.RoleSystem {
			begins++
		}
		if begins == len(f.Messages) || f.Messages[begins].Role != model.RoleUser {
			t.Fatalf("what is kept does not begin with a user: %v", f.Messages[1:])
		}
		if before := all[head+f.LeftOut-1].Role; before == model.RoleUser || before == model.RoleSystem {
			t.Fatalf("a turn was cut behind a message of %s", before)
		}
		called := map[string]bool{}
		for _, m := range f.Messages {
			for _, c := range m.ToolCalls {
				called[c.ID] = true
			}
			if m.Role == model.RoleTool && !called[m.ToolCallID] {
				t.Fatalf("the result of %s has no call", m.ToolCallID)
			}
		}
		// No more than necessary may be left out: with one more turn, it must not fit.
		if f.Fits {
			more := 0
			for i := turn(all, head, head+f.LeftOut); i < head+f.LeftOut; i++ {
				more += Message(&all[i])
			}
			if sum+more <= budget {
				t.Fatalf("a turn of %d tokens was left out although %d of %d were used", more, sum, budget)
			}
		}
	})
}

// A conversation that fills the budget to the last token is kept whole.
func TestFitToTheLastToken(t *testing.T) {
	all := []model.Message{{Role: model.RoleSystem, Content: "system"}}
	for i := range 4 {
		all = append(all, model.Message{Role: model.RoleUser, Content: fmt.Sprint(i)}, model.Message{Role: model.RoleAssistant, Content: "answer"})
	}
	sum := 0
	for i := range all {
		sum += Message(&all[i])
	}
	if f := Fit(all, sum, Message); f.LeftOut != 0 || f.Tokens != sum {
		t.Errorf("with as many tokens as there are, %d messages are left out", f.LeftOut)
	}
	if f := Fit(all, sum-1, Message); f.LeftOut != 2 {
		t.Errorf("with one token less %d messages are left out", f.LeftOut)
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abcdefg": 2, strings.Repeat("a", 700): 200, "日本語": 3, "ä": 1} {
		if got := Text(text); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

func TestScale(t *testing.T) {
	var s Scale
	if s.Factor() != unknown {
		t.Error("something is known from the start")
	}
	s.Learn(enough-1, 1_000_000)
	s.Learn(1000, 0)
	if s.Factor() != unknown {
		t.Error("it learned from too little")
	}
	s.Learn(1000, 800)
	near(t, s.Factor(), 0.8*margin)
	s.Learn(1000, 1200)
	near(t, s.Factor(), 1.2*margin)
	s.Learn(1000, 800)
	near(t, s.Factor(), 1.1*margin)
	s.Learn(1000, 1_000_000)
	near(t, s.Factor(), most*margin)
}

func near(t *testing.T, got, want float64) {
	t.Helper()
	if got < want-0.001 || got > want+0.001 {
		t.Errorf("got %f, want %f", got, want)
	}
}

func BenchmarkFit(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			all := []model.Message{{Role: model.RoleSystem}}
			for range n / 2 {
				all = append(all, model.Message{Role: model.RoleUser, Content: strings.Repeat("x", 400)}, model.Message{Role: model.RoleAssistant, Content: strings.Repeat("y", 400)})
			}
			for b.Loop() {
				Fit(all, 8000, Message)
			}
		})
	}
}
