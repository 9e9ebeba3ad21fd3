package storetest

import (
	"context"
	"database/sql"

	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store/sqlstore"
)

// CheckBackedUp compares the columns of a database, as a query lists them with their tables, with those that a backup has. So a new
// table, or a new column, cannot be forgotten.
func CheckBackedUp(ctx context.Context, db *sql.DB, b sqlstore.BackedUp, query string) {
	rows, err := db.QueryContext(ctx, query)
	Expect(err).NotTo(HaveOccurred())
	defer rows.Close()
	have := map[string][]string{}
	for rows.Next() {
		var table, column string
		Expect(rows.Scan(&table, &column)).To(Succeed())
		if b.LeftOut[table] == "" && !b.Unread[table+"."+column] {
			have[table] = append(have[table], column)
		}
	}
	Expect(rows.Err()).NotTo(HaveOccurred())
	Expect(have).To(HaveLen(len(b.Columns)), "internal/store/sqlstore/backup/tables.go: list a new table, or leave it out with a reason")
	for table, columns := range b.Columns {
		Expect(columns).To(ConsistOf(have[table]), "internal/store/sqlstore/backup/tables.go: list each column of table %s", table)
	}
}
