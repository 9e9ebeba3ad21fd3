package sqlstore

import (
	"context"
	"database/sql"
)

// sqlLink is a connection of database/sql, with the statements that were prepared on it.
type sqlLink struct {
	db    *sql.Conn
	stmts map[string]*sql.Stmt
}

var _ link = (*sqlLink)(nil)

func (l *sqlLink) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if s := l.stmts[query]; s != nil {
		return s, nil
	}
	s, err := l.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	l.stmts[query] = s
	return s, nil
}

func (l *sqlLink) exec(ctx context.Context, query string, args []any) (int64, error) {
	s, err := l.stmt(ctx, query)
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (l *sqlLink) queue(ctx context.Context, query string, args []any) error {
	_, err := l.exec(ctx, query, args)
	return err
}

func (l *sqlLink) query(ctx context.Context, query string, args []any) (rowset, error) {
	s, err := l.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

func (l *sqlLink) close() error {
	for _, s := range l.stmts {
		_ = s.Close()
	}
	return l.db.Close()
}
