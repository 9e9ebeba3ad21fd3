package transcript

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// CalledPromptMessages returns, in order, the messages of called prompts of a thread after a sequence number of the log for which wanted
// returns true.
func CalledPromptMessages(ctx context.Context, s store.Store, threadID string, after int64, wanted func(*store.Message) bool) (*Conversation, error) {
	c := New()
	for {
		page, err := s.Messages(ctx, threadID, store.MessageQuery{Order: "asc", AfterSeq: after, Limit: PageSize, IncludeSilent: true, AllDepths: true})
		if err != nil {
			return nil, fmt.Errorf("read the messages of a called prompt: %w", err)
		}
		for i := range page.Messages {
			m := &page.Messages[i]
			if after = m.Seq; wanted(m) {
				c.Add(*m)
			}
		}
		if len(page.Messages) < PageSize {
			return c, nil
		}
	}
}
