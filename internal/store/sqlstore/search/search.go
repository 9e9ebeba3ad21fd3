// Package search finds messages: by their words, and by vectors.
package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Ranked is how many matches a search ranks. Tests set it lower.
var Ranked int64 = store.MaxRanked

// textStep is how many messages one transaction indexes, so that other writers need not wait long.
const textStep = 500

// IndexMessages implements store.Searcher. PostgreSQL keeps its index up to date by itself.
func (s Store) IndexMessages(ctx context.Context) error {
	if s.DB.Dialect.SearchesByItself {
		return nil
	}
	for {
		behind := false
		if err := s.DB.Readers.Row(ctx, queries.TextBehind, nil, &behind); err != nil || !behind {
			return err
		}
		if err := s.DB.Writer.Do(ctx, indexSome); err != nil {
			return fmt.Errorf("index messages: %w", err)
		}
	}
}

// indexSome indexes some messages: first those that have changed, then the next ones.
func indexSome(t *txn.Tx) error {
	stale, err := sqldb.Column[int64](t.Ctx, t, queries.TextStale, textStep)
	if err != nil {
		return err
	}
	var done int64
	if err := t.Row(t.Ctx, queries.TextDone, nil, &done); err != nil {
		return err
	}
	for _, key := range stale {
		statements := []string{queries.TextRemove, queries.TextFresh}
		if key <= done { // a message with a later key is among the next ones
			statements = append(statements, queries.TextAdd)
		}
		for _, query := range statements {
			if err := t.Write(t.Ctx, query, key); err != nil {
				return err
			}
		}
	}
	if len(stale) == textStep {
		return nil
	}
	var last int64
	var n int
	if err := t.Row(t.Ctx, queries.TextNext, []any{done, textStep}, &last, &n); err != nil || n == 0 {
		return err
	}
	if err := t.Write(t.Ctx, queries.TextAddNext, done, last); err != nil {
		return err
	}
	return t.Write(t.Ctx, queries.TextSetDone, last)
}

// Search implements store.Searcher.
func (s Store) Search(ctx context.Context, q store.SearchQuery) (hits []store.SearchHit, more bool, err error) {
	terms, err := store.ParseSearch(q.Text)
	if err != nil {
		return nil, false, err
	}
	q.Limit = sqldb.PageSize(q.Limit)
	if q.Namespaces != nil && len(q.Namespaces) == 0 {
		return []store.SearchHit{}, false, nil
	}
	if err := s.IndexMessages(ctx); err != nil {
		return nil, false, err
	}
	var where []string
	var args []any
	if q.Namespaces != nil {
		among, names := queries.Placeholders(q.Namespaces)
		where, args = append(where, `t.namespace IN `+among), append(args, names...)
	}
	if q.NamespaceUIDs != nil {
		foreign, uids := queries.ForeignCondition("t", q.NamespaceUIDs)
		where, args = append(where, `NOT (`+foreign+`)`), append(args, uids...)
	}
	if q.ThreadID != "" {
		where, args = append(where, `t.id = ?`), append(args, q.ThreadID)
	}
	if q.Role != "" {
		where, args = append(where, `m.role = ?`), append(args, string(q.Role))
	}
	var conditions strings.Builder
	for _, cond := range where {
		conditions.WriteString(` AND ` + cond)
	}
	query, args := s.DB.Dialect.Search(terms, conditions.String(), args, Ranked)
	args = append(args, q.Limit+1, max(q.Offset, 0))
	err = s.DB.Readers.Interruptible().Read(ctx, func(c *sqldb.Conn) error {
		var size int64
		hits, more = []store.SearchHit{}, false
		return c.Rows(ctx, query, args, func(scan sqldb.Scanner) error {
			hit, err := scanHit(scan)
			if err != nil {
				return err
			}
			size += hit.Message.Bytes()
			if len(hits) == q.Limit || q.MaxBytes > 0 && size > q.MaxBytes && len(hits) > 0 {
				more = true
				return errEnough
			}
			hits = append(hits, *hit)
			return nil
		})
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, false, fmt.Errorf("search messages: %w", err)
	}
	for i := range hits {
		if hit := &hits[i]; hit.Message.Content != nil {
			hit.Snippet = store.Snippet(*hit.Message.Content, terms)
		}
	}
	return hits, more, nil
}

// errEnough ends the reading of hits.
var errEnough = errors.New("the page is full")

func scanHit(scan sqldb.Scanner) (*store.SearchHit, error) {
	var hit store.SearchHit
	m, err := messages.Scan(func(dst ...any) error {
		all := append([]any{&hit.ThreadID, &hit.Namespace, &hit.Name, &hit.Title}, dst...)
		return scan(append(all, &hit.Rank)...)
	})
	if err != nil {
		return nil, err
	}
	hit.Message = *m
	return &hit, nil
}

// ByFTS5 returns a query for the newest matches, the best first, in FTS5. conditions and their arguments restrict the messages. The arguments
// of a page follow. Words are letters and digits only, so quotes need no escaping.
func ByFTS5(terms []store.SearchTerm, conditions string, args []any, ranked int64) (query string, all []any) {
	var wanted, unwanted []string
	for _, t := range terms {
		text := `"` + strings.Join(t.Words, " ") + `"`
		if t.Prefix {
			text += ` *`
		}
		if t.Not {
			unwanted = append(unwanted, ` NOT `+text)
		} else {
			wanted = append(wanted, text)
		}
	}
	match := `(` + strings.Join(wanted, ` AND `) + `)` + strings.Join(unwanted, ``)
	return queries.SearchSQLite(conditions), slices.Concat([]any{match}, args, []any{ranked})
}

// ByTSQuery is ByFTS5 for PostgreSQL, with a tsquery.
func ByTSQuery(terms []store.SearchTerm, conditions string, args []any, ranked int64) (query string, all []any) {
	var parts []string
	for _, t := range terms {
		quoted := make([]string, len(t.Words))
		for i, w := range t.Words {
			quoted[i] = `'` + w + `'`
		}
		text := strings.Join(quoted, ` <-> `)
		if t.Prefix {
			text += `:*`
		}
		if t.Not {
			text = `!(` + text + `)`
		} else {
			text = `(` + text + `)`
		}
		parts = append(parts, text)
	}
	match := strings.Join(parts, ` & `)
	return queries.SearchPostgres(conditions), slices.Concat([]any{match, match}, args, []any{ranked})
}

// Store searches messages.
type Store struct{ DB *txn.DB }
