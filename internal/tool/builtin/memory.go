package builtin

import (
	"context"
	"math"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

const (
	defaultMemories = 5
	// maxMemoryRunes is how much of one message a search shows.
	maxMemoryRunes = 2000
)

// memory returns the family that searches what was said before (RUN-08).
func memory(h *tool.Host) []tool.Tool {
	if h.Memory == nil {
		return nil
	}
	return []tool.Tool{newTool("search_memory",
		"Searches what was said in this and in earlier conversations with the same user, by meaning rather than by exact words, and gives the closest messages first.",
		`{"type":"object","required":["query"],"additionalProperties":false,"properties":{
			"query":{"type":"string","minLength":1,"maxLength":4000,"description":"What to look for, in words that the message may have used"},
			"limit":{"type":"integer","minimum":1,"maximum":20,"description":"How many messages to give; 5 by default"},
			"since":{"type":"string","description":"Only messages from this time on, such as 2026-03-01T00:00:00Z"},
			"until":{"type":"string","description":"Only messages before this time"}}}`,
		func(ctx context.Context, call tool.Call, a memoryArgs) tool.Result {
			return searchMemory(ctx, h, call.ID, a)
		})}
}

type memoryArgs struct {
	Query string `json:"query"`
	Limit int    `json:"limit"`
	Since string `json:"since"`
	Until string `json:"until"`
}

// remembered is a message as the model reads it.
type remembered struct {
	Thread  string  `json:"thread"`
	Title   string  `json:"title,omitempty"`
	Role    string  `json:"role"`
	Content string  `json:"content"`
	At      string  `json:"at"`
	Score   float64 `json:"score"`
}

func searchMemory(ctx context.Context, h *tool.Host, call string, a memoryArgs) tool.Result {
	q := tool.MemoryQuery{Text: a.Query, Limit: a.Limit}
	if q.Limit == 0 {
		q.Limit = defaultMemories
	}
	for _, bound := range []struct {
		name, text string
		into       *int64
	}{{"since", a.Since, &q.Since}, {"until", a.Until, &q.Until}} {
		if bound.text == "" {
			continue
		}
		at, err := parseTime(bound.text)
		if err != nil {
			return tool.Failure(bound.name + " is not a time: write it as 2026-03-01T00:00:00Z, or as 2026-03-01")
		}
		*bound.into = at.UnixMicro()
	}
	found, err := h.Memory.Search(ctx, call, q)
	if err != nil {
		return failure(err)
	}
	out := make([]remembered, 0, len(found))
	for i := range found {
		out = append(out, rememberedOf(&found[i]))
	}
	return tool.SuccessJSON(map[string]any{"messages": out})
}

func parseTime(text string) (time.Time, error) {
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		return at, nil
	}
	return time.Parse(time.RFC3339, text)
}

// rememberedOf returns a found message as the model sees it. A long text is cut.
func rememberedOf(n *store.NearMessage) remembered {
	r := remembered{
		Thread: n.Name, Title: n.Title, Role: string(n.Message.Role), At: time.UnixMicro(n.Message.CreatedAt).UTC().Format(time.RFC3339),
		Score: math.Round(n.Score*1000) / 1000,
	}
	if c := n.Message.Content; c != nil {
		r.Content = *c
		if runes := []rune(r.Content); len(runes) > maxMemoryRunes {
			r.Content = string(runes[:maxMemoryRunes]) + "…"
		}
	}
	return r
}
