package transcript

import (
	"context"

	"github.com/skein-dev/skein/internal/store"
)

// Reread updates the conversation c of a thread to the position at, and returns it. It reads what was added, or everything when an
// earlier message was changed, by the run's own code (edited) or by another writer. seen is the position up to which the
// conversation shows all edits and removals; Reread moves it. After an error the conversation is as it was.
func Reread(ctx context.Context, s store.Store, t *store.Thread, c *Conversation, seen *int64, at store.Position, edited bool, limit int) (_ *Conversation, news bool, err error) {
	if !edited {
		last, err := s.LastEdit(ctx, t.ID, *seen)
		if err != nil {
			return c, false, err
		}
		if last == 0 {
			news, err = c.Refresh(ctx, s, t.ID)
			if err == nil {
				*seen = at.LastSeq
			}
			return c, news, err
		}
	}
	conv, err := Load(ctx, s, t, limit)
	if err != nil {
		return c, false, err
	}
	conv.keepEnds(c)
	c.Release()
	*seen = at.LastSeq
	return conv, true, nil
}
