package window

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/skein-dev/skein/internal/model"
)

// leastResult is the least number of tokens that stay of a shortened result.
const leastResult = 150

// perNote is an upper bound for the tokens of the note in place of what was left out.
const perNote = 90

// Shorten leaves out the middle of the largest tool results until the messages have at most budget tokens, or nothing
// more can be left out. It does not change the given messages. It returns the number of shortened results and the
// remaining tokens.
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
	// Bring the largest results down to one level, and no more of them than needed.
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

// withoutMiddle returns the content of a result without its middle.
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

// clipID keeps long ids from making a note long.
func clipID(id string) string {
	return first(id, 40)
}

// first returns the longest beginning of a text that has at most the given number of tokens.
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

// last returns the longest end of a text that has at most the given number of tokens.
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
