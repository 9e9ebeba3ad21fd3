package related

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/store"
)

// Limits of an excerpt.
const (
	// maxSaid is how much of one message is shown, maxResult how much of the result of a call, and maxArguments how much of
	// the arguments of a call, all in bytes.
	maxSaid      = 8 << 10
	maxResult    = 2 << 10
	maxArguments = 512
	// maxRead is how many messages of a conversation are read at most: the first ones and the newest.
	maxRead   = 1000
	firstRead = 20
	pageSize  = 100
	// minWord is the length of the shortest word of a goal that is looked for, in characters.
	minWord = 4
)

// excerpt is a conversation as Markdown, of limited size. Messages that the user or the model of the conversation does
// not see are left out: silent ones, and those within called prompts.
type excerpt struct {
	store  store.Store
	thread *store.Thread
	redact func(text string) string
	// bytes limits the text of all messages together.
	bytes int
	// goal selects messages when there are too many: those that have its words come first.
	goal string
}

// entry is one message as Markdown. number counts the messages that an excerpt can have, from 0.
type entry struct {
	number int64
	text   string
	score  int
}

// build returns the conversation. If it is too long, build returns the first message and those that have most words of the goal. It
// returns "" for a conversation without messages.
func (e *excerpt) build(ctx context.Context) (string, error) {
	entries, total, err := e.read(ctx)
	if err != nil || total == 0 {
		return "", err
	}
	return e.write(e.choose(entries), total), nil
}

// from returns the conversation from one message on, as much as fits.
func (e *excerpt) from(ctx context.Context, number int64) (string, error) {
	page, err := e.page(ctx, number, pageSize)
	if err != nil {
		return "", err
	}
	if number >= page.Total {
		return "", invalid("from", fmt.Sprintf("the conversation has %d messages: give a number from 0 to %d", page.Total, max(page.Total-1, 0)))
	}
	var fits []entry
	for i, size := 0, 0; i < len(page.Messages); i++ {
		next := e.entry(number+int64(i), &page.Messages[i])
		if size += len(next.text); size > e.bytes && len(fits) > 0 {
			break
		}
		fits = append(fits, next)
	}
	return e.write(fits, page.Total), nil
}

// read returns the messages to choose from: all, or the first and the newest of a long conversation.
func (e *excerpt) read(ctx context.Context) (entries []entry, total int64, err error) {
	add := func(from, to int64) error {
		for from < to {
			page, err := e.page(ctx, from, min(pageSize, int(to-from)))
			if err != nil {
				return err
			}
			total = page.Total
			for i := range page.Messages {
				entries = append(entries, e.entry(from+int64(i), &page.Messages[i]))
			}
			if from += int64(len(page.Messages)); len(page.Messages) == 0 || !page.HasMore {
				return nil
			}
		}
		return nil
	}
	if err := add(0, firstRead); err != nil {
		return nil, 0, err
	}
	return entries, total, add(max(firstRead, total-maxRead+firstRead), total)
}

func (e *excerpt) page(ctx context.Context, offset int64, limit int) (*store.MessagePage, error) {
	return e.store.Messages(ctx, e.thread.ID, store.MessageQuery{Order: "asc", Offset: int(offset), Limit: limit})
}

// choose returns the messages that fit, in order. The first message is always among them. Then those come that have most
// words of the goal, and of these the newest.
func (e *excerpt) choose(entries []entry) []entry {
	size := 0
	for i := range entries {
		size += len(entries[i].text)
	}
	if size <= e.bytes {
		return entries
	}
	words := wordsOf(e.goal)
	for i := range entries {
		lower := strings.ToLower(entries[i].text)
		for _, w := range words {
			if strings.Contains(lower, w) {
				entries[i].score++
			}
		}
	}
	ranked := slices.Clone(entries)
	ranked[0].score = len(words) + 1
	slices.SortStableFunc(ranked, func(a, b entry) int {
		if a.score != b.score {
			return b.score - a.score
		}
		return int(b.number - a.number)
	})
	var kept []entry
	left := e.bytes
	for _, x := range ranked {
		if len(x.text) <= left || len(kept) == 0 {
			kept, left = append(kept, x), left-len(x.text)
		}
	}
	slices.SortFunc(kept, func(a, b entry) int { return int(a.number - b.number) })
	return kept
}

// wordsOf returns the different words of a text that are long enough to tell something, in lower case.
func wordsOf(text string) []string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	words = slices.DeleteFunc(words, func(w string) bool { return len([]rune(w)) < minWord })
	slices.Sort(words)
	return slices.Compact(words)
}

// write returns the messages with a heading for the conversation, and says where messages are left out.
func (e *excerpt) write(entries []entry, total int64) string {
	t := e.thread
	var b strings.Builder
	fmt.Fprintf(&b, "# Thread %s (T-%s)\n\n", t.Name, t.ID)
	if t.Title != "" {
		fmt.Fprintf(&b, "Title: %s\n", e.redact(t.Title))
	}
	fmt.Fprintf(&b, "Agent: %s. Messages: %d.", t.Agent, total)
	if t.TerminatedAt != 0 {
		b.WriteString(" The thread is terminated.")
	}
	b.WriteString("\n")
	next := int64(0)
	gap := func(to int64) {
		switch {
		case to == next+1:
			fmt.Fprintf(&b, "\n[message %d is left out]\n", next)
		case to > next:
			fmt.Fprintf(&b, "\n[messages %d to %d are left out]\n", next, to-1)
		}
	}
	for _, x := range entries {
		gap(x.number)
		b.WriteString(x.text)
		next = x.number + 1
	}
	gap(total)
	return b.String()
}

// entry returns a message as Markdown. Secrets are taken out before a text is cut, since half a secret would not be found.
func (e *excerpt) entry(number int64, m *store.Message) entry {
	var b strings.Builder
	at := time.UnixMicro(m.CreatedAt).UTC().Format(time.RFC3339)
	limit := maxSaid
	if m.Role == store.RoleTool {
		limit = maxResult
		fmt.Fprintf(&b, "\n## %d: result of %s (%s), %s\n", number, m.Name, m.ToolStatus, at)
	} else {
		fmt.Fprintf(&b, "\n## %d: %s, %s\n", number, m.Role, at)
	}
	if m.Content != nil && strings.TrimSpace(*m.Content) != "" {
		fmt.Fprintf(&b, "\n%s\n", clip.Text(e.redact(*m.Content), limit))
	}
	for _, c := range m.ToolCalls {
		fmt.Fprintf(&b, "\nCalls %s with %s\n", c.Name, clip.Text(e.redact(c.Arguments), maxArguments))
	}
	for _, a := range m.Attachments {
		fmt.Fprintf(&b, "\nAttached: %s (%s, %d bytes)\n", a.Path, a.MimeType, a.Size)
	}
	return entry{number: number, text: b.String()}
}
