package window

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/skein-dev/skein/internal/model"
)

// leastResult is how many tokens of a result stay at least, of one that is shortened.
const leastResult = 150

// perNote is more than what is said in place of what was left out.
const perNote = 90

// Shorten leaves out the middle of the largest results of tools until the messages have no more than budget tokens, or
// until nothing more can be left out. The messages that are given stay as they are. It tells how many results were
// shortened, and how many tokens there are then.
func Shorten(messages []model.Message, budget int) (out []model.Message, shortened, tokens int) {
	type result struct{ at, size int }
	var results []result
	for i := range messages {
		tokens += Message(&messages[i])
		if messages[i].Role == model.RoleTool {
			if size := Text(messages[i].Content); size > leastResult+perNote {
				results = append(results, result{i, size})
			}
		}
	}
	if tokens <= budget || len(results) == 0 {
		return messages, 0, tokens
	}
	slices.SortStableFunc(results, func(a, b result) int { return b.size - a.size })
	// The largest are brought down to one level, no more of them than needed.
	level, sum := 0, 0
	for n, r := range results {
		sum += r.size
		level = (sum - (tokens - budget) - (n+1)*perNote) / (n + 1)
		if n+1 == len(results) || level+perNote >= results[n+1].size {
			break
		}
	}
	level = max(level, leastResult)
	out = slices.Clone(messages)
	for _, r := range results {
		if r.size <= level+perNote {
			break
		}
		out[r.at].Content = withoutMiddle(&messages[r.at], level)
		shortened++
	}
	tokens = 0
	for i := range out {
		tokens += Message(&out[i])
	}
	return out, shortened, tokens
}

// withoutMiddle is the content of a result with its middle left out.
func withoutMiddle(m *model.Message, level int) string {
	text := m.Content
	head, tail := first(text, level*3/4), last(text, level/4)
	if len(head)+len(tail) >= len(text) {
		return text
	}
	left := utf8.RuneCountInString(text[len(head) : len(text)-len(tail)])
	return fmt.Sprintf("%s\n[%d of %d characters are left out here: they do not fit the model's window. To read them, call the tool again for a part (a range, a page, a filter), "+
		"or have code read the message of the thread with tool_call_id %q, which has all of it.]\n%s", head, left, utf8.RuneCountInString(text), clipID(m.ToolCallID), tail)
}

// clipID keeps the ids of others from making a note long.
func clipID(id string) string {
	return first(id, 40)
}

// first gives as much of the beginning of a text as has no more than so many tokens.
func first(text string, tokens int) string {
	ascii, other := 0, 0
	for i, r := range text {
		if r < utf8.RuneSelf {
			ascii++
		} else {
			other++
		}
		if (2*ascii+6)/7+other > tokens {
			return text[:i]
		}
	}
	return text
}

// last gives as much of the end of a text as has no more than so many tokens.
func last(text string, tokens int) string {
	ascii, other := 0, 0
	for i := len(text); i > 0; {
		r, size := utf8.DecodeLastRuneInString(text[:i])
		if r < utf8.RuneSelf {
			ascii++
		} else {
			other++
		}
		if (2*ascii+6)/7+other > tokens {
			return text[i:]
		}
		i -= size
	}
	return text
}
