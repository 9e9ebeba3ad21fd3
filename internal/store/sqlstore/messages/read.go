// Package messages holds the messages of threads: pages of them, changes, and forks, which read the messages of their
// origin.
package messages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/inbox"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Message implements store.Store.
func (s Store) Message(ctx context.Context, threadID, messageID string) (m *store.Message, err error) {
	err = s.DB.Readers.Snapshot(ctx, func(c *sqldb.Conn) error {
		m, err = Scan(c.One(ctx, queries.Message, threadID, messageID))
		if errors.Is(err, store.ErrNotFound) {
			m, err = Scan(c.One(ctx, queries.Inherited, messageID, threadID))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("message %s of thread %s: %w", messageID, threadID, err)
	}
	return m, nil
}

// MessageIndex implements store.RelationStore.
func (s Store) MessageIndex(ctx context.Context, threadID, messageID string) (index int64, err error) {
	err = s.DB.Readers.Snapshot(ctx, func(c *sqldb.Conn) error {
		var key, base, seq int64
		if err := c.Row(ctx, queries.KeyAndBase, []any{threadID}, &key, &base); err != nil {
			return err
		}
		err := c.Row(ctx, queries.MessageSeq, []any{key, messageID}, &seq)
		if base != 0 && errors.Is(err, store.ErrNotFound) {
			m, inherited := Scan(c.One(ctx, queries.InheritedByKey, messageID, key))
			if inherited != nil {
				return inherited
			}
			seq, err = m.Seq, nil
		}
		if err != nil {
			return err
		}
		r, err := removalOf(ctx, c, key)
		if err != nil {
			return err
		}
		behind := int64(0)
		if r != nil && seq > r.hi {
			if err := c.Row(ctx, queries.CountRows, []any{key, r.hi, seq}, &behind); err != nil {
				return err
			}
			seq = r.lo
		}
		counted, err := viewCount(ctx, c, key, base, seq)
		index = counted.Total(true, 0, true) + behind - 1
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("message %s of thread %s: %w", messageID, threadID, err)
	}
	return index, nil
}

// RunMessages implements store.RelationStore. Its cost grows with the thread's own messages.
func (s Store) RunMessages(ctx context.Context, threadID, runID string) (found []store.Message, err error) {
	err = s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		found, err = sqldb.List(ctx, c, Scan, queries.RunMessages, threadID, runID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("messages of run %s of thread %s: %w", runID, threadID, err)
	}
	return found, nil
}

// Messages implements store.Store. Its cost does not grow with the thread, wherever the page is: see message_block.
func (s Store) Messages(ctx context.Context, threadID string, q store.MessageQuery) (page *store.MessagePage, err error) {
	q.Limit = sqldb.PageSize(q.Limit)
	q.Offset = max(q.Offset, 0)
	err = s.DB.Readers.Snapshot(ctx, func(c *sqldb.Conn) error {
		p := pager{Querier: c, ctx: ctx, q: q}
		page, err = p.page(threadID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("messages of thread %s: %w", threadID, err)
	}
	return page, nil
}

// pager reads one page from one snapshot.
type pager struct {
	sqldb.Querier
	ctx     context.Context
	q       store.MessageQuery
	key     int64
	base    int64
	lastSeq int64
	// removing says that messages after lastSeq are being removed.
	removing bool

	// stored is how many messages are found by their position. behind follow them, and then those of the inbox, whose sequence
	// numbers are in queued.
	stored int64
	behind []store.Message
	queued []int64
}

func (p *pager) page(threadID string) (*store.MessagePage, error) {
	var counted string
	var queued int64
	var asleep txn.Sleep
	if err := p.Row(p.ctx, queries.Counts, []any{threadID}, &p.key, &counted, &queued, &p.base, &p.lastSeq, &asleep); err != nil {
		return nil, err
	}
	c, err := txn.ParseCounts(counted)
	if err != nil {
		return nil, err
	}
	total := c.Total(p.q.IncludeSilent, p.q.MaxDepth, p.q.AllDepths)
	if asleep&txn.AsleepCutting != 0 {
		if p.behind, err = p.afterRemoval(); err != nil {
			return nil, err
		}
	}
	if p.q.AfterSeq > 0 {
		return p.after(total, p.behind)
	}
	p.stored = total - int64(len(p.behind))
	if p.q.QueuedOnly {
		p.stored, p.behind = 0, nil
	}
	if (p.q.IncludeQueued || p.q.QueuedOnly) && queued > 0 {
		if p.queued, err = p.waitingSeqs(); err != nil {
			return nil, err
		}
	}
	total = p.stored + int64(len(p.behind)+len(p.queued))
	// The page holds the messages from start up to end, counted from the oldest.
	start := int64(p.q.Offset)
	end := min(start+int64(p.q.Limit), total)
	if p.q.Order != "asc" {
		end = total - int64(p.q.Offset)
		start = max(end-int64(p.q.Limit), 0)
	}
	page := &store.MessagePage{Messages: []store.Message{}, Total: total, HasMore: start > 0 && start < total}
	if p.q.Order == "asc" {
		page.HasMore = end < total && start < total
	}
	if start < end {
		var cut bool
		if page.Messages, cut, err = p.bounded(start, end); err != nil {
			return nil, err
		}
		page.HasMore = page.HasMore || cut
	}
	if p.q.Order == "desc" {
		slices.Reverse(page.Messages)
	}
	return page, nil
}

// part reads the messages from start up to end, oldest first.
func (p *pager) part(start, end int64) ([]store.Message, error) {
	messages, err := p.span(start, min(end, p.stored), p.stored)
	if err != nil {
		return nil, err
	}
	start, end = max(start-p.stored, 0), max(end-p.stored, 0) // of what follows
	n := int64(len(p.behind))
	messages = append(messages, p.behind[min(start, n):min(end, n)]...)
	start, end = max(start-n, 0), max(end-n, 0)
	if start >= end {
		return messages, nil
	}
	err = p.Rows(p.ctx, queries.InboxBetween, []any{p.key, p.queued[start], p.queued[end-1]}, func(scan sqldb.Scanner) error {
		item, err := inbox.Scan(scan)
		if err != nil || item.Kind != store.InboxMessage {
			return err
		}
		m, err := Queued(item)
		if err == nil && p.selects(m.Silent, m.Depth) {
			messages = append(messages, *m)
		}
		return err
	})
	return messages, err
}

// span reads the stored messages from start up to end of total, oldest first.
func (p *pager) span(start, end, total int64) ([]store.Message, error) {
	if start >= end {
		return []store.Message{}, nil
	}
	if p.base == 0 && total-end <= txn.BlockSeqs && total-end < start {
		return p.list(SpanQuery(p.q, " DESC"), append(p.filterArgs(p.key, 0, p.lastSeq), end-start, total-end)...)
	}
	at, err := p.locate(start, total)
	if err != nil {
		return nil, err
	}
	return p.Read(at, end-start)
}

// SpanQuery returns a query that selects by an index alone and only then reads messages, so that skipped messages are
// not read.
func SpanQuery(q store.MessageQuery, order string) string {
	return `SELECT ` + queries.MessageColumns + ` FROM message m WHERE m.key IN (SELECT s.key FROM message s WHERE s.thread = ? AND s.seq > ? AND s.seq <= ?` +
		filter(q, "s") + ` ORDER BY s.seq` + order + ` LIMIT ? OFFSET ?) ORDER BY m.seq`
}

// Read returns n messages from a place on, first from the segments and then from the thread's own.
func (p *pager) Read(at place, n int64) ([]store.Message, error) {
	messages := []store.Message{}
	if at.seq < p.base {
		inherited, err := Segments(p.ctx, p, queries.Segments, p.key, at.seq)
		if err != nil {
			return nil, err
		}
		for _, s := range inherited {
			if n == 0 {
				break
			}
			page, err := p.list(SpanQuery(p.q, ""), append(p.filterArgs(s.Source, max(s.Lo, at.seq), s.Hi), n, at.skip)...)
			if err != nil {
				return nil, err
			}
			messages = append(messages, page...)
			n -= int64(len(page))
			at.skip = 0 // the place lies in the first segment
		}
	}
	if n == 0 {
		return messages, nil
	}
	page, err := p.list(SpanQuery(p.q, ""), append(p.filterArgs(p.key, max(p.base, at.seq), p.lastSeq), n, at.skip)...)
	return append(messages, page...), err
}

// after reads what follows a sequence number, oldest first.
func (p *pager) after(total int64, behind []store.Message) (*store.MessagePage, error) {
	if p.q.AfterSeq < p.base || p.removing {
		messages, err := p.Read(place{seq: p.q.AfterSeq}, int64(p.q.Limit+p.q.Offset)+1)
		if err != nil {
			return nil, err
		}
		for _, m := range behind {
			if m.Seq > p.q.AfterSeq {
				messages = append(messages, m)
			}
		}
		return p.cut(messages[min(p.q.Offset, len(messages)):], total), nil
	}
	query := `SELECT ` + queries.MessageColumns + ` FROM message m WHERE m.thread = ? AND m.seq > ? AND m.seq <= ?` + filter(p.q, "m") + ` ORDER BY m.seq LIMIT ? OFFSET ?`
	messages, err := p.list(query, append(p.filterArgs(p.key, p.q.AfterSeq, p.lastSeq), p.q.Limit+1, p.q.Offset)...)
	if err != nil {
		return nil, err
	}
	return p.cut(messages, total), nil
}

func (p *pager) cut(messages []store.Message, total int64) *store.MessagePage {
	more := len(messages) > p.q.Limit
	if more {
		messages = messages[:p.q.Limit]
	}
	return &store.MessagePage{Messages: messages, Total: total, HasMore: more}
}

// filter returns the query's conditions on messages, for the WHERE of a query: each follows an AND. With a depth other than 0, they have a
// placeholder, whose value filterArgs adds.
func filter(q store.MessageQuery, table string) (cond string) {
	if !q.IncludeSilent {
		cond += ` AND ` + table + `.silent = 0`
	}
	switch {
	case q.AllDepths:
	case q.MaxDepth == 0:
		cond += ` AND ` + table + `.depth = 0`
	default:
		cond += ` AND ` + table + `.depth <= ?`
	}
	return cond
}

func (p *pager) filterArgs(args ...any) []any {
	if !p.q.AllDepths && p.q.MaxDepth > 0 {
		args = append(args, p.q.MaxDepth)
	}
	return args
}

func (p *pager) list(query string, args ...any) ([]store.Message, error) {
	return sqldb.List(p.ctx, p, Scan, query, args...)
}

// afterRemoval ends the page's view of the thread where messages are being removed, and returns the few messages that
// follow: those of the transaction that has decided on the removal.
func (p *pager) afterRemoval() ([]store.Message, error) {
	r, err := removalOf(p.ctx, p, p.key)
	if err != nil || r == nil {
		return nil, err
	}
	last := p.lastSeq
	p.removing, p.lastSeq = true, r.lo
	query := `SELECT ` + queries.MessageColumns + ` FROM message m WHERE m.thread = ? AND m.seq > ? AND m.seq <= ?` + filter(p.q, "m") + ` ORDER BY m.seq`
	return p.list(query, p.filterArgs(p.key, r.hi, last)...)
}

// waitingSeqs returns the sequence numbers of the messages of the inbox that the query selects. An inbox may have more than fits into
// memory, so it looks at one message at a time.
func (p *pager) waitingSeqs() (seqs []int64, err error) {
	err = p.Rows(p.ctx, queries.Inbox, []any{p.key}, func(scan sqldb.Scanner) error {
		item, err := inbox.Scan(scan)
		if err != nil || item.Kind != store.InboxMessage {
			return err
		}
		var m struct {
			Silent bool `json:"silent"`
			Depth  int  `json:"depth"`
		}
		if err := json.Unmarshal(item.Payload, &m); err != nil {
			return fmt.Errorf("inbox item %d is not a message: %w", item.Seq, err)
		}
		if p.selects(m.Silent, m.Depth) {
			seqs = append(seqs, item.Seq)
		}
		return nil
	})
	return seqs, err
}

// selects reports whether the query selects such a message.
func (p *pager) selects(silent bool, depth int) bool {
	return (p.q.IncludeSilent || !silent) && (p.q.AllDepths || depth <= p.q.MaxDepth)
}

// Queued returns the message of an inbox item.
func Queued(item *store.InboxItem) (*store.Message, error) {
	var m store.Message
	if err := json.Unmarshal(item.Payload, &m); err != nil {
		return nil, fmt.Errorf("inbox item %d is not a message: %w", item.Seq, err)
	}
	m.MarkQueued()
	return &m, nil
}

// QueuedMessage implements store.Store. It holds one item of the inbox at a time.
func (s Store) QueuedMessage(ctx context.Context, threadID, messageID string) (found *store.InboxItem, err error) {
	err = s.DB.OfThread(ctx, threadID, func(c *sqldb.Conn, key int64) error {
		found = nil
		return c.Rows(ctx, queries.Inbox, []any{key}, func(scan sqldb.Scanner) error {
			item, err := inbox.Scan(scan)
			if err != nil || item.Kind != store.InboxMessage || found != nil {
				return err
			}
			var m struct {
				ID string `json:"id"`
			}
			if json.Unmarshal(item.Payload, &m) == nil && m.ID == messageID {
				found = item
			}
			return nil
		})
	})
	if err == nil && found == nil {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("queued message %s of thread %s: %w", messageID, threadID, err)
	}
	return found, nil
}

// Store reads messages.
type Store struct{ DB *txn.DB }
