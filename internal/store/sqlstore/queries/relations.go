package queries

import (
	"strings"

	"github.com/skein-dev/skein/internal/store"
)

// ParentsAtOnce is how many threads one query asks for. The number is constant, so that the query is prepared once.
const ParentsAtOnce = 50

// ParentRelationships lists the relationships of ParentsAtOnce threads with their parents.
var ParentRelationships = `SELECT t.id, ` + RelationshipColumns + ` FROM thread t JOIN relationship r ON r.thread = t.key
	WHERE t.id IN (` + strings.TrimSuffix(strings.Repeat("?, ", ParentsAtOnce), ", ") + `) AND r.role = '` + store.RelationChild + `'
	ORDER BY t.id, r.created_at, r.peer, r.type`
