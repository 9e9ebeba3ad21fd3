package sqlstore

import (
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
)

func init() {
	add := func(name, text string, args int) {
		Queries[name] = struct {
			Text string
			Args int
		}{text, args}
	}
	add("contents", queries.Contents, 1)
	add("object size", queries.ObjectSize, 1)
	add("objects in use", queries.ObjectsInUse, queries.ObjectsAtOnce)
	add("orphans seen", queries.OrphansSeen, queries.ObjectsAtOnce)
	add("remnants of", queries.RemnantsOf, 1)
	add("is unread", queries.IsUnread, 1)
	add("remnants", queries.Remnants, 2)
	add("forget swept", queries.ForgetSwept, 1)
	add("file usage", queries.FileUsage, 1)
}
