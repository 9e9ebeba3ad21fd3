package sqldb

import "context"

// Watched opens connections as open does, and calls executed for each statement that they execute.
func Watched(open Opener, executed func(query string)) Opener {
	return func(ctx context.Context, writes bool) (Link, error) {
		l, err := open(ctx, writes)
		if err != nil {
			return nil, err
		}
		return &watchedLink{l, executed}, nil
	}
}

type watchedLink struct {
	Link
	executed func(query string)
}

func (l *watchedLink) Exec(ctx context.Context, query string, args []any) (int64, error) {
	l.executed(query)
	return l.Link.Exec(ctx, query, args)
}

func (l *watchedLink) query(ctx context.Context, query string, args []any) (RowSet, error) {
	l.executed(query)
	return l.Link.query(ctx, query, args)
}

func (l *watchedLink) Queue(ctx context.Context, query string, args []any) error {
	l.executed(query)
	return l.Link.Queue(ctx, query, args)
}
