package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/skein-dev/skein/internal/store"
)

// Queries that search messages.
const (
	searchColumns = `t.id, t.namespace, t.name, t.title, ` + messageColumns
	searchJoin    = ` JOIN thread t ON t.key = m.thread JOIN thread_head h ON h.thread = t.key`

	// Queries for SQLite, which has to bring message_text up to date before a search.
	qTextBehind = `SELECT CASE WHEN s.done < COALESCE((SELECT max(key) FROM message), 0) OR EXISTS (SELECT 1 FROM message_text_stale) THEN 1 ELSE 0 END
		FROM message_text_state s`
	qTextDone     = `SELECT done FROM message_text_state`
	qTextSetDone  = `UPDATE message_text_state SET done = ?`
	qTextStale    = `SELECT key FROM message_text_stale ORDER BY key LIMIT ?`
	qTextFresh    = `DELETE FROM message_text_stale WHERE key = ?`
	qTextRemove   = `DELETE FROM message_text WHERE rowid = ?`
	qTextAdd      = `INSERT INTO message_text (rowid, content) SELECT key, content FROM message WHERE key = ? AND content IS NOT NULL`
	qTextAddNext  = `INSERT INTO message_text (rowid, content) SELECT key, content FROM message WHERE key > ? AND key <= ? AND content IS NOT NULL`
	qTextNext     = `SELECT COALESCE(max(n.key), 0), count(*) FROM (SELECT key FROM message WHERE key > ? ORDER BY key LIMIT ?) n`
	searchSQLite  = `SELECT ` + searchColumns + `, -bm25(message_text) AS rank FROM message_text JOIN message m ON m.key = message_text.rowid` + searchJoin
	matchSQLite   = `message_text MATCH ?`
	textOfMessage = `to_tsvector('simple', regexp_replace(left(m.content, 200000), '[\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\x7f]+', ' ', 'g'))`
)

// textStep is how many messages one transaction indexes, so that other writers need not wait long.
const textStep = 500

// IndexMessages implements store.Searcher. PostgreSQL keeps its index up to date by itself.
func (s *Store) IndexMessages(ctx context.Context) error {
	if s.dialect.searchesByItself {
		return nil
	}
	for {
		behind := false
		if err := s.readers.read(ctx, func(c *conn) error { return c.row(ctx, qTextBehind, nil, &behind) }); err != nil || !behind {
			return err
		}
		if err := s.writer.do(ctx, func(t *tx) error { return t.indexSome() }); err != nil {
			return fmt.Errorf("index messages: %w", err)
		}
	}
}

// indexSome indexes some messages: first those that have changed, then the next ones.
func (t *tx) indexSome() error {
	stale, err := column[int64](t.ctx, t, qTextStale, textStep)
	if err != nil {
		return err
	}
	var done int64
	if err := t.row(t.ctx, qTextDone, nil, &done); err != nil {
		return err
	}
	for _, key := range stale {
		statements := []string{qTextRemove, qTextFresh}
		if key <= done { // a message with a later key is among the next ones
			statements = append(statements, qTextAdd)
		}
		for _, query := range statements {
			if err := t.write(t.ctx, query, key); err != nil {
				return err
			}
		}
	}
	if len(stale) == textStep {
		return nil
	}
	var last int64
	var n int
	if err := t.row(t.ctx, qTextNext, []any{done, textStep}, &last, &n); err != nil || n == 0 {
		return err
	}
	if err := t.write(t.ctx, qTextAddNext, done, last); err != nil {
		return err
	}
	return t.write(t.ctx, qTextSetDone, last)
}

// Search implements store.Searcher.
func (s *Store) Search(ctx context.Context, q store.SearchQuery) (hits []store.SearchHit, more bool, err error) {
	terms, err := store.ParseSearch(q.Text)
	if err != nil {
		return nil, false, err
	}
	q.Limit = pageSize(q.Limit)
	if q.Namespaces != nil && len(q.Namespaces) == 0 {
		return []store.SearchHit{}, false, nil
	}
	if err := s.IndexMessages(ctx); err != nil {
		return nil, false, err
	}
	query, args := s.dialect.search(terms)
	var where []string
	if q.Namespaces != nil {
		where = append(where, `t.namespace IN (`+strings.TrimSuffix(strings.Repeat("?, ", len(q.Namespaces)), ", ")+`)`)
		for _, ns := range q.Namespaces {
			args = append(args, ns)
		}
	}
	if q.ThreadID != "" {
		where, args = append(where, `t.id = ?`), append(args, q.ThreadID)
	}
	if q.Role != "" {
		where, args = append(where, `m.role = ?`), append(args, string(q.Role))
	}
	for _, cond := range where {
		query += ` AND ` + cond
	}
	query += ` ORDER BY rank DESC, m.key DESC LIMIT ? OFFSET ?`
	hits, err = readList(long(ctx), s.readers, scanHit, query, append(args, q.Limit+1, max(q.Offset, 0))...)
	if err != nil {
		return nil, false, fmt.Errorf("search messages: %w", err)
	}
	for i := range hits {
		if hit := &hits[i]; hit.Message.Content != nil {
			hit.Snippet = store.Snippet(*hit.Message.Content, terms)
		}
	}
	if more = len(hits) > q.Limit; more {
		hits = hits[:q.Limit]
	}
	return hits, more, nil
}

func scanHit(scan scanner) (*store.SearchHit, error) {
	var hit store.SearchHit
	m, err := scanMessage(func(dst ...any) error {
		all := append([]any{&hit.ThreadID, &hit.Namespace, &hit.Name, &hit.Title}, dst...)
		return scan(append(all, &hit.Rank)...)
	})
	if err != nil {
		return nil, err
	}
	hit.Message = *m
	return &hit, nil
}

// searchByFTS5 writes the terms as an FTS5 query. Words are letters and digits only, so quotes need no escaping.
func searchByFTS5(terms []store.SearchTerm) (query string, args []any) {
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
	return searchSQLite + ` WHERE ` + matchSQLite, []any{match}
}

// searchByTSQuery writes the terms as a tsquery of PostgreSQL.
func searchByTSQuery(terms []store.SearchTerm) (query string, args []any) {
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
	return `SELECT ` + searchColumns + `, CAST(ts_rank(` + textOfMessage + `, to_tsquery('simple', ?)) AS double precision) AS rank FROM message m` + searchJoin +
		` WHERE m.content IS NOT NULL AND ` + textOfMessage + ` @@ to_tsquery('simple', ?)`, []any{match, match}
}
