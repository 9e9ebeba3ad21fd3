package sqlstore

import "github.com/skein-dev/skein/internal/store/sqlstore/backup"

// BackedUp says what a backup has of the schema.
type BackedUp struct {
	Columns map[string][]string // by table
	// LeftOut are the tables that no backup has, with the reason. Unread are columns of the others, as table.column.
	LeftOut map[string]string
	Unread  map[string]bool
}

// InBackups returns what a backup has of the schema.
func InBackups() BackedUp {
	return BackedUp{Columns: backup.Columns(), LeftOut: backup.LeftOut, Unread: backup.Unread}
}
