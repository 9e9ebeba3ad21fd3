package threads

import (
	"encoding/json"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/env"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Scan reads a thread.
func Scan(scan sqldb.Scanner) (*store.Thread, error) { return scanWith(scan) }

// scanWith is Scan for a query with more columns.
func scanWith(scan sqldb.Scanner, more ...any) (*store.Thread, error) {
	r, err := scanRowWith(scan, more...)
	if err != nil {
		return nil, err
	}
	return &r.Thread, nil
}

func scanRow(scan sqldb.Scanner) (*row, error) { return scanRowWith(scan) }

func scanRowWith(scan sqldb.Scanner, more ...any) (*row, error) {
	var r row
	t := &r.Thread
	var arguments, child, fields sqldb.Text
	var counted, scoped string
	var asleep txn.Sleep
	if err := scan(append([]any{&t.ID, &t.Namespace, &t.Name, &t.Agent, &t.OriginAgent, &t.DeclaredAgent, &t.UserID, &t.TaskID, &t.Title, &arguments, &t.CreatedAt,
		&t.ParentID, &t.Reference, &t.RootID, &t.Depth, &t.OriginID, &t.ForkIndex, &child, &t.TerminatedAt, &t.TerminatedReason, &t.RegistryStatus,
		&scoped, &t.EnvRoot, &t.Waits, &t.Version, &counted, &t.Queued, &t.LastActivityAt, &t.LastSeq,
		&t.ArchivedAt, &fields, &t.Appended, &t.UserActivityAt, &t.Diff.Added, &t.Diff.Changed, &t.Diff.Removed,
		&t.ObjectUID, &t.NamespaceUID, &t.RetainedAt, &t.DestroyedAt, &t.DestroyedReason, &t.IdleExpiry, &asleep}, more...)...); err != nil {
		return nil, err
	}
	r.arguments, r.fields = clearLeftOut(&arguments), clearLeftOut(&fields)
	t.Arguments = arguments.Raw()
	t.ScopedEnv = env.SplitNames(scoped)
	if child.Valid {
		if err := json.Unmarshal([]byte(child.String), &t.Child); err != nil {
			return nil, fmt.Errorf("thread %s: its child record is damaged: %w", t.ID, err)
		}
	}
	if err := fieldsFrom(fields, &t.Fields); err != nil {
		return nil, fmt.Errorf("thread %s: %w", t.ID, err)
	}
	c, err := txn.ParseCounts(counted)
	if err != nil {
		return nil, fmt.Errorf("thread %s: %w", t.ID, err)
	}
	t.Messages = c.Total(true, 0, true)
	t.Parked = asleep&txn.AsleepParked != 0
	t.Deleting = asleep&txn.AsleepDeleting != 0
	return &r, nil
}

// clearLeftOut reports whether a query has left out a long text, and makes it NULL.
func clearLeftOut(column *sqldb.Text) bool {
	if !column.Valid || column.String != "" {
		return false
	}
	column.Valid = false
	return true
}
