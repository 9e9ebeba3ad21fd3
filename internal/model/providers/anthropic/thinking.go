package anthropic

import (
	"slices"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/wire"
)

// minThinking is the smallest budget that the API accepts.
const minThinking = 1024

// think requests reasoning: by a budget when one is set, or else by effort. The messages of p are those of the request.
func (c *Client) think(p *request, output *outputConfig, r *model.Reasoning) {
	if r == nil {
		return
	}
	display := "summarized"
	if r.Exclude {
		display = "omitted"
	}
	switch {
	case r.MaxTokens > 0 && !mayThink(p.Messages):
		removeThoughts(p.Messages)
		return
	case r.MaxTokens > 0:
		budget := max(r.MaxTokens, minThinking)
		p.Thinking = &thinking{Type: "enabled", BudgetTokens: budget, Display: display}
		if p.MaxTokens <= budget { // the budget is part of the token limit of an answer
			p.MaxTokens += budget
		}
	case r.Effort == "none":
		p.Thinking = &thinking{Type: "disabled"}
		removeThoughts(p.Messages)
		return
	case r.Effort != "":
		p.Thinking = &thinking{Type: "adaptive", Display: display}
		output.Effort = r.Effort
		if r.Effort == "minimal" {
			output.Effort = "low"
		}
	default:
		return
	}
	p.Temperature, p.TopP = nil, nil // models that reason accept neither
}

// origin returns the origin of the thoughts that a request with r leads to, and takes. Some models think without being asked, and want their
// thoughts back then. Others refuse thoughts in a request that asks for none, as after a handoff to an agent that does not reason.
func (c *Client) origin(r *model.Reasoning) wire.Origin {
	if r == nil {
		return c.unasked
	}
	return c.asked
}

// mayThink reports whether the API accepts a budget for thinking with these turns, the last of which is the user's. If the newest answer
// has calls, the API wants thoughts before the first call since the user spoke. The later ones may lack them, because the model often
// thinks only once. Calls lack them that the model did not make, such as those of hooks, and those of another model.
func mayThink(turns []turn) bool {
	first := len(turns) - 2
	if first < 0 || !slices.ContainsFunc(turns[first].Content, isCall) {
		return true
	}
	for first >= 2 && hasResultsOnly(turns[first-1]) {
		first -= 2
	}
	return isThought(turns[first].Content[0])
}

// removeThoughts removes the thoughts of earlier answers. The API refuses them before the newest calls when the model is not to think.
func removeThoughts(turns []turn) {
	for i := range turns {
		turns[i].Content = slices.DeleteFunc(turns[i].Content, isThought)
	}
}

func hasResultsOnly(t turn) bool {
	return !slices.ContainsFunc(t.Content, func(b contentBlock) bool { return b.Type != blockToolResult })
}

func isCall(b contentBlock) bool { return b.Type == blockToolUse }

func isThought(b contentBlock) bool {
	return b.Type == blockThinking || b.Type == blockRedactedThinking
}

// thoughts returns the reasoning before the calls of an earlier answer: the API refuses calls without it. It wants none before texts, and
// refuses that of another model.
func thoughts(m model.Message, origin wire.Origin) []contentBlock {
	if len(m.ToolCalls) == 0 {
		return nil
	}
	var blocks []contentBlock
	for _, t := range origin.Reasoning(model.MetadataThinking, m) {
		fields, _ := t.(map[string]any)
		signature, _ := fields["signature"].(string)
		thinking, _ := fields["thinking"].(string)
		redacted, _ := fields["redacted"].(string)
		switch {
		case redacted != "":
			blocks = append(blocks, contentBlock{Type: blockRedactedThinking, Data: redacted})
		case signature != "":
			blocks = append(blocks, contentBlock{Type: blockThinking, Signature: signature, Thinking: &thinking})
		}
	}
	return blocks
}
