package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
)

// sqliteLink is a connection of SQLite's driver with its prepared statements. It calls the driver directly: a link has
// one user at a time, and what database/sql does for concurrent users costs as much as a short statement.
type sqliteLink struct {
	db    driver.Conn
	stmts map[string]*sqliteStmt
	args  []driver.NamedValue // of the statement that runs now
	// interruptible is set while the end of a context interrupts a query before its first row.
	interruptible bool
}

// sqliteStmt is a prepared statement.
type sqliteStmt struct {
	exec interface {
		driver.StmtExecContext
		driver.StmtQueryContext
	}
	close func() error
	row   []driver.Value
}

var _ Link = (*sqliteLink)(nil)

func newSQLiteLink(db driver.Conn) *sqliteLink {
	return &sqliteLink{db: db, stmts: map[string]*sqliteStmt{}}
}

func (l *sqliteLink) setInterruptible(on bool) { l.interruptible = on }

// watched returns the context for the driver: without cancellation unless the link is interruptible.
func (l *sqliteLink) watched(ctx context.Context) context.Context {
	if l.interruptible {
		return ctx
	}
	return context.Background()
}

// bounds matches bounds of a query that are parameters.
var bounds = regexp.MustCompile(`\b(LIMIT|OFFSET) \?`)

// Compiled returns the text that SQLite compiles for a query. SQLite plans with the value of "LIMIT ?", so it compiles such a statement again each time
// that it is bound, which takes longer than most queries do. It does not look into a cast.
func Compiled(query string) string { return bounds.ReplaceAllString(query, "$1 CAST(? AS INTEGER)") }

func (l *sqliteLink) stmt(query string) (*sqliteStmt, error) {
	if s := l.stmts[query]; s != nil {
		return s, nil
	}
	p, err := l.db.Prepare(Compiled(query))
	if err != nil {
		return nil, err
	}
	s := &sqliteStmt{close: p.Close}
	var ok bool
	if s.exec, ok = p.(interface {
		driver.StmtExecContext
		driver.StmtQueryContext
	}); !ok {
		return nil, errors.Join(fmt.Errorf("the driver's statements (%T) take no context", p), p.Close())
	}
	l.stmts[query] = s
	return s, nil
}

// named returns arguments in the driver's form. They are valid until the next statement.
func (l *sqliteLink) named(args []any) (_ []driver.NamedValue, err error) {
	l.args = l.args[:0]
	for i, a := range args {
		v := driver.NamedValue{Ordinal: i + 1}
		switch a := a.(type) {
		case nil, int64, float64, bool, []byte:
			v.Value = a
		case string:
			v.Value = args[i]
			if t := text(a); t != a {
				v.Value = t
			}
		case int:
			v.Value = int64(a)
		default:
			if v.Value, err = driver.DefaultParameterConverter.ConvertValue(a); err != nil {
				return nil, fmt.Errorf("parameter %d: %w", i+1, err)
			}
		}
		l.args = append(l.args, v)
	}
	return l.args, nil
}

func (l *sqliteLink) Exec(ctx context.Context, query string, args []any) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s, err := l.stmt(query)
	if err != nil {
		return 0, err
	}
	named, err := l.named(args)
	if err != nil {
		return 0, err
	}
	r, err := s.exec.ExecContext(l.watched(ctx), named)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (l *sqliteLink) Queue(ctx context.Context, query string, args []any) error {
	_, err := l.Exec(ctx, query, args)
	return err
}

func (l *sqliteLink) query(ctx context.Context, query string, args []any) (RowSet, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := l.stmt(query)
	if err != nil {
		return nil, err
	}
	named, err := l.named(args)
	if err != nil {
		return nil, err
	}
	rows, err := s.exec.QueryContext(l.watched(ctx), named)
	if err != nil {
		return nil, err
	}
	if n := len(rows.Columns()); len(s.row) != n {
		s.row = make([]driver.Value, n)
	}
	return &sqliteRows{ctx: ctx, rows: rows, row: s.row}, nil
}

func (l *sqliteLink) Close() error {
	for _, s := range l.stmts {
		_ = s.close()
	}
	return l.db.Close()
}

// sqliteRows are the rows of one result.
type sqliteRows struct {
	ctx  context.Context
	rows driver.Rows
	row  []driver.Value
	err  error
}

func (r *sqliteRows) Next() bool {
	if r.err == nil {
		r.err = r.ctx.Err()
	}
	if r.err == nil {
		r.err = r.rows.Next(r.row)
	}
	return r.err == nil
}

func (r *sqliteRows) Err() error {
	if errors.Is(r.err, io.EOF) {
		return nil
	}
	return r.err
}

func (r *sqliteRows) Close() error { return r.rows.Close() }

func (r *sqliteRows) Scan(dst ...any) error {
	if len(dst) != len(r.row) {
		return fmt.Errorf("the row has %d columns, %d are read", len(r.row), len(dst))
	}
	for i, d := range dst {
		if err := assign(d, r.row[i]); err != nil {
			return fmt.Errorf("column %d: %w", i+1, err)
		}
	}
	return nil
}

// assign stores a value of the driver in dst.
func assign(dst any, v driver.Value) error {
	switch d := dst.(type) {
	case *string:
		if s, ok := v.(string); ok {
			*d = s
			return nil
		}
	case *int64:
		if n, ok := v.(int64); ok {
			*d = n
			return nil
		}
	case *int:
		if n, ok := v.(int64); ok {
			*d = int(n)
			return nil
		}
	case *bool:
		if n, ok := v.(int64); ok {
			*d = n != 0
			return nil
		}
	case *Text:
		switch v := v.(type) {
		case nil:
			d.String, d.Valid = "", false
			return nil
		case string:
			d.String, d.Valid = v, true
			return nil
		}
	case *sql.NullString:
		switch v := v.(type) {
		case nil:
			*d = sql.NullString{}
			return nil
		case string:
			*d = sql.NullString{String: v, Valid: true}
			return nil
		}
		return d.Scan(v)
	case *sql.NullInt64:
		switch v := v.(type) {
		case nil:
			*d = sql.NullInt64{}
			return nil
		case int64:
			*d = sql.NullInt64{Int64: v, Valid: true}
			return nil
		}
		return d.Scan(v)
	case *[]byte:
		switch v := v.(type) {
		case nil:
			*d = nil
			return nil
		case []byte:
			*d = v // the driver's own copy
			return nil
		case string:
			*d = []byte(v)
			return nil
		}
	case sql.Scanner:
		return d.Scan(v)
	}
	return assignKind(reflect.ValueOf(dst).Elem(), v)
}

// assignKind is assign for named types and for other sizes of numbers.
func assignKind(to reflect.Value, v driver.Value) error {
	switch v := v.(type) {
	case string:
		if to.Kind() == reflect.String {
			to.SetString(v)
			return nil
		}
	case int64:
		switch {
		case to.CanInt() && !to.OverflowInt(v):
			to.SetInt(v)
			return nil
		case to.CanUint() && v >= 0 && !to.OverflowUint(uint64(v)):
			to.SetUint(uint64(v))
			return nil
		case to.Kind() == reflect.Bool:
			to.SetBool(v != 0)
			return nil
		case to.CanFloat():
			to.SetFloat(float64(v))
			return nil
		}
	case float64:
		switch {
		case to.CanFloat():
			to.SetFloat(v)
			return nil
		case to.CanInt() && v == math.Trunc(v) && math.Abs(v) < 1<<53:
			to.SetInt(int64(v))
			return nil
		}
	}
	return fmt.Errorf("a %T does not fit into a %s", v, to.Type())
}
