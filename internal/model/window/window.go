// Package window keeps the input of a model within its context window. It uses no tokenizer, because every provider has
// another one: it estimates, and learns from the provider's counts.
package window

import (
	"unicode/utf8"

	"github.com/skein-dev/skein/internal/model"
)

// Tokens that are counted in addition to the text.
const (
	perMessage = 4
	perCall    = 8
	perImage   = 1600 // the most that the providers count for an image that they have scaled down
)

// Text estimates the tokens of a text: two for seven ASCII characters, which is on the safe side for prose and about
// right for code and JSON, and one for each other character.
func Text(s string) int {
	ascii, other := 0, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c < utf8.RuneSelf:
			ascii++
		case utf8.RuneStart(c):
			other++
		}
	}
	return (2*ascii+6)/7 + other
}

// Message estimates the tokens of a message.
func Message(m *model.Message) int {
	n := perMessage + Text(m.Content) + Text(m.Name) + perImage*len(m.Images)
	for _, a := range m.Attachments {
		n += 1 + Text(a)
	}
	for i := range m.ToolCalls {
		n += perCall + Text(m.ToolCalls[i].Name) + Text(m.ToolCalls[i].Arguments)
	}
	return n
}

// Tools estimates the tokens of the definitions of tools.
func Tools(tools []model.Tool) (n int) {
	for i := range tools {
		n += perCall + Text(tools[i].Name) + Text(tools[i].Description) + Text(string(tools[i].Parameters))
	}
	return n
}

// Fitted is a conversation that was made to fit.
type Fitted struct {
	// Messages are the kept messages, the Head first. It is the given slice when all are kept.
	Messages []model.Message
	// Tokens is the estimate for Messages.
	Tokens int
	// LeftOut is how many messages were left out.
	LeftOut int
	// Fits is false when not even the system prompt and the newest turn fit. Messages then contains only these.
	Fits bool
}

// Fit leaves out the oldest turns until the rest has at most budget tokens. The model.Head, which is the system
// prompt and a summary of what came before, and the newest turn always stay. A turn begins with one or more consecutive user messages and ends where the
// next turn begins, so a call is never separated from its result. Only kept messages are estimated, so the cost does
// not grow with what is left out.
func Fit(messages []model.Message, budget int, tokens func(*model.Message) int) Fitted {
	if len(messages) == 0 {
		return Fitted{Messages: messages, Fits: true}
	}
	head, total := model.Head(messages), 0
	for i := range head {
		total += tokens(&messages[i])
	}
	end := len(messages)
	for end > head {
		begin := turn(messages, head, end)
		size := 0
		for i := end - 1; i >= begin; i-- {
			size += tokens(&messages[i])
			if total+size > budget && end < len(messages) {
				return cut(messages, head, end, total, true)
			}
		}
		total += size
		if total > budget { // the newest turn
			return cut(messages, head, begin, total, false)
		}
		end = begin
	}
	return Fitted{Messages: messages, Tokens: total, Fits: total <= budget}
}

// turn returns where the turn that ends before end begins, at the head or behind it.
func turn(messages []model.Message, head, end int) int {
	asked := false
	for i := end - 1; i >= head; i-- {
		switch messages[i].Role {
		case model.RoleUser:
			asked = true
		case model.RoleSystem: // belongs to the user messages after it, if there are any
		default:
			if asked {
				return i + 1
			}
		}
	}
	return head
}

func cut(messages []model.Message, head, from, total int, fits bool) Fitted {
	kept := append(make([]model.Message, 0, head+len(messages)-from), messages[:head]...)
	return Fitted{Messages: append(kept, messages[from:]...), Tokens: total, LeftOut: from - head, Fits: fits}
}
