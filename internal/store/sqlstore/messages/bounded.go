package messages

import (
	"slices"

	"github.com/skein-dev/skein/internal/store"
)

// boundedStep is the largest number of messages of a page with a limit of bytes that are read at a time, so that at most so many are
// read in vain. The first is read alone, and its size says how many the next read may fetch.
const boundedStep = 16

// bounded reads the messages from start up to end, oldest first, as far as the query's limit of bytes allows: the oldest of them
// with the order asc, else the newest. cut reports that some are left out.
func (p *pager) bounded(start, end int64) (messages []store.Message, cut bool, err error) {
	if p.q.MaxBytes <= 0 {
		messages, err = p.part(start, end)
		return messages, false, err
	}
	messages = []store.Message{}
	left, forward := p.q.MaxBytes, p.q.Order == "asc"
	for step := int64(1); start < end; {
		from, to := start, min(start+step, end)
		if !forward {
			from, to = max(end-step, start), end
		}
		part, err := p.part(from, to)
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
		if used := p.q.MaxBytes - left; used > 0 {
			step = min(max(left*int64(len(messages))/used, 1), boundedStep)
		} else {
			step = boundedStep
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

// textBytes returns how many bytes the texts of a message have, with its metadata and its attachments.
func textBytes(m *store.Message) int64 {
	n := m.Extras() + int64(len(m.ReasoningContent))
	if m.Content != nil {
		n += int64(len(*m.Content))
	}
	for _, c := range m.ToolCalls {
		n += int64(len(c.Arguments))
	}
	return n
}
