package sqlstore

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// LimitPages simulates a full disk: the database cannot grow beyond n pages. 0 removes the limit.
func (s *Store) LimitPages(n int) error {
	if n == 0 {
		n = 1<<32 - 2
	}
	return s.writer.do(context.Background(), func(t *tx) error {
		_, err := t.exec(t.ctx, fmt.Sprintf("PRAGMA max_page_count = %d", n))
		return err
	})
}

// SetBlockSeqs sets blockSeqs, so that few messages produce as many rows of message_block as thousands usually do.
func SetBlockSeqs(n int64) { blockSeqs = n }

// LeftOver returns the number of remnants of threads, which have no head, and of their messages.
func (s *Store) LeftOver(ctx context.Context) (threads, messages int, err error) {
	err = s.readers.read(ctx, func(c *conn) error {
		if err := c.row(ctx, `SELECT count(*) FROM thread WHERE namespace = ''`, nil, &threads); err != nil {
			return err
		}
		return c.row(ctx, `SELECT count(*) FROM message m JOIN thread t ON t.key = m.thread WHERE t.namespace = ''`, nil, &messages)
	})
	return threads, messages, err
}

// Plan returns how the database executes a query.
func (s *Store) Plan(ctx context.Context, query string, args ...any) (plan []string, err error) {
	err = s.readers.read(ctx, func(c *conn) error {
		return c.rows(ctx, "EXPLAIN QUERY PLAN "+query, args, func(scan scanner) error {
			var id, parent, unused int
			var detail string
			err := scan(&id, &parent, &unused, &detail)
			plan = append(plan, detail)
			return err
		})
	})
	return plan, err
}

// Queries are the queries whose plans the tests check, with the number of their parameters.
var Queries = map[string]struct {
	Text string
	Args int
}{
	"thread":             {qThread, 1},
	"head":               {qHead, 1},
	"children":           {qChildren, 1},
	"by name":            {qThreadsByName, 2},
	"by name within":     {qThreadsOfNamespaceByName, 3},
	"by short id":        {qThreadsByShort, 2},
	"by short id within": {qThreadsOfNamespaceByShort, 3},
	"namespaces":         {qNamespaces, 0},
	"message":            {qMessage, 2},
	"message by key":     {qMessageByKey, 2},
	"tool results":       {qToolResults, 3},
	"events":             {qEvents, 5},
	"lines":              {qLines, 5},
	"newest lines":       {qNewestLines, 5},
	"count lines":        {qCountLines, 1},
	"oldest lines":       {qOldestLines, 2},
	"remove lines":       {qRemoveLines, 2},
	"inbox":              {qInbox, 1},
	"inbox of":           {qInboxOf, 1},
	"position":           {qPosition, 1},
	"last edit":          {qLastEdit, 2},
	"runs":               {qRuns, 3},
	"value":              {qValue, 2},
	"files direct":       {qFilesDirect, 2},
	"files below":        {qFilesBelow, 3},
	"file":               {qFile, 2},
	"digest used":        {qDigestUsed, 1},
	"work namespaces":    {qWorkNamespaces, 0},
	"work":               {qWork, 3},
	"wakes":              {qWakes, 2},
	"held in":            {qHeldIn, 1},
	"firings ready":      {qFiringsReady, 1},
	"claimable":          {qClaimable, 2},
	"delete firings":     {qDeleteFirings, 1},
	"purge messages":     {qPurgeMessages, 3},
	"vectors":            {qVectors, 6},
	"usage records":      {qUsageRecords, 4},
}

// PageQueries returns the queries of pages of messages, each with the number of its parameters.
func PageQueries() map[string]int {
	queries := map[string]int{}
	for _, q := range []store.MessageQuery{{}, {IncludeSilent: true}, {MaxDepth: 2}, {AllDepths: true}, {AllDepths: true, IncludeSilent: true}} {
		args := 5
		if q.MaxDepth > 0 {
			args++
		}
		queries[spanQuery(q, "")], queries[spanQuery(q, " DESC")] = args, args
	}
	return queries
}

// Panic runs a transaction that panics.
func (s *Store) Panic(ctx context.Context) error {
	return s.writer.do(ctx, func(*tx) error { panic("oops") })
}

// ListPlan returns how the database executes a list. by says that the filter selects few threads.
func (s *Store) ListPlan(ctx context.Context, q store.ThreadQuery, by bool) ([]string, error) {
	q.Limit = 50
	var f *byColumn
	if by {
		f = &filters(q)[0]
	}
	query, args := listQuery(q, f)
	return s.Plan(ctx, query, args...)
}
