package sqldb

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// pgxLink is a connection to PostgreSQL. Queued statements are sent with the next one, in one round trip.
type pgxLink struct {
	db     *pgx.Conn
	queued pgx.Batch
	// patient is set while statements may take any time.
	patient bool
}

var _ Link = (*pgxLink)(nil)

func (l *pgxLink) Queue(_ context.Context, query string, args []any) error {
	l.queued.Queue(numbered(query), plain(args)...)
	return nil
}

// setInterruptible says whether statements may take any time. The end of a context interrupts every one.
func (l *pgxLink) setInterruptible(on bool) { l.patient = on }

// bound returns a context for a statement. It ends after AnswerTimeout at the latest, unless statements may take any time.
func (l *pgxLink) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, set := ctx.Deadline(); l.patient || set && time.Until(end) <= AnswerTimeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, AnswerTimeout)
}

// drop discards what is queued, and reports whether that included the beginning of the transaction.
func (l *pgxLink) drop() (begun bool) {
	queued := l.queued.QueuedQueries
	l.queued = pgx.Batch{}
	return len(queued) > 0 && strings.HasPrefix(queued[0].SQL, "BEGIN")
}

// Send sends what is queued and then the statement. It returns the results positioned at those of the statement.
func (l *pgxLink) send(ctx context.Context, query string, args []any) (pgx.BatchResults, error) {
	batch := l.queued
	l.queued = pgx.Batch{}
	before := batch.Len()
	batch.Queue(numbered(query), plain(args)...)
	results := l.db.SendBatch(ctx, &batch)
	for range before {
		if _, err := results.Exec(); err != nil {
			_ = results.Close()
			return nil, err
		}
	}
	return results, nil
}

func (l *pgxLink) Exec(ctx context.Context, query string, args []any) (n int64, err error) {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	results, err := l.send(ctx, query, args)
	if err != nil {
		return 0, err
	}
	tag, err := results.Exec()
	if end := results.Close(); err == nil {
		err = end
	}
	if err == nil && query == Commit && tag.String() != Commit {
		err = errNotCommitted
	}
	return tag.RowsAffected(), err
}

func (l *pgxLink) query(ctx context.Context, query string, args []any) (RowSet, error) {
	ctx, cancel := l.bound(ctx)
	results, err := l.send(ctx, query, args)
	if err != nil {
		cancel()
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close()
		cancel()
		return nil, err
	}
	return &pgxRows{Rows: rows, results: results, read: cancel}, nil
}

func (l *pgxLink) Close() error { return ClosePostgres(l.db) }

// ClosePostgres closes a connection.
func ClosePostgres(db *pgx.Conn) error {
	// Discard what was not sent: no caller waits for it. Do not wait long for a server that does not answer.
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = db.Close(ctx)
	return nil
}

// pgxRows are the rows of the last statement of a batch.
type pgxRows struct {
	pgx.Rows
	results pgx.BatchResults
	read    context.CancelFunc // ends the context that the rows are read with
}

func (r *pgxRows) Scan(dst ...any) error {
	for i, d := range dst {
		if b, ok := d.(*bool); ok {
			dst[i] = (*number)(b)
		}
	}
	return r.Rows.Scan(dst...)
}

func (r *pgxRows) Close() error {
	defer r.read()
	r.Rows.Close()
	return r.results.Close()
}

// number is a boolean column, stored as 0 or 1.
type number bool

// ScanInt64 implements pgtype.Int64Scanner.
func (n *number) ScanInt64(v pgtype.Int8) error {
	*n = v.Int64 != 0
	return nil
}

// plain converts arguments to the forms that PostgreSQL's columns take: booleans to numbers, and texts to those that
// it can hold.
func plain(args []any) []any {
	for i, a := range args {
		switch a := a.(type) {
		case bool:
			args[i] = 0
			if a {
				args[i] = 1
			}
		case string:
			if t := text(a); t != a {
				args[i] = t
			}
		}
	}
	return args
}

// numberedQueries caches queries with their parameters numbered.
var numberedQueries sync.Map

// numbered replaces "?" with "$1", "$2", … No query of the store has a question mark in a literal.
func numbered(query string) string {
	if known, ok := numberedQueries.Load(query); ok {
		return known.(string)
	}
	var b strings.Builder
	n := 0
	for part := range strings.SplitSeq(query, "?") {
		if n > 0 {
			b.WriteString("$" + strconv.Itoa(n))
		}
		b.WriteString(part)
		n++
	}
	out := b.String()
	numberedQueries.Store(query, out)
	return out
}
