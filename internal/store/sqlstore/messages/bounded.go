package messages

import (
	"slices"

	"github.com/skein-dev/skein/internal/store"
)

// boundedStep is how many messages of a page with a limit of bytes are read at a time, so that at most so many are read in
// vain.
const boundedStep = 16

// bounded reads the stored messages from start up to end of total, oldest first, as far as the query's limit of bytes allows:
// the oldest of them with the order asc, else the newest. cut reports that some are left out.
func (p *pager) bounded(start, end, total int64) (messages []store.Message, cut bool, err error) {
	if p.q.MaxBytes <= 0 {
		messages, err = p.span(start, end, total)
		return messages, false, err
	}
	messages = []store.Message{}
	left, forward := p.q.MaxBytes, p.q.Order == "asc"
	for start < end {
		from, to := start, min(start+boundedStep, end)
		if !forward {
			from, to = max(end-boundedStep, start), end
		}
		part, err := p.span(from, to, total)
		if err != nil {
			return nil, false, err
		}
		if !forward {
			slices.Reverse(part)
		}
		for i := range part {
			if left -= textBytes(&part[i]); left < 0 && len(messages) > 0 {
				cut = true
				break
			}
			messages = append(messages, part[i])
		}
		if cut {
			break
		}
		if forward {
			start = to
		} else {
			end = from
		}
	}
	if !forward {
		slices.Reverse(messages)
	}
	return messages, cut, nil
}

// textBytes returns how many bytes the texts of a message have.
func textBytes(m *store.Message) int64 {
	n := len(m.ReasoningContent)
	if m.Content != nil {
		n += len(*m.Content)
	}
	for _, c := range m.ToolCalls {
		n += len(c.Arguments)
	}
	return int64(n)
}
