package sqlstore_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("SQLite's lists of threads", Label("THR-15"), func() {
	It("read an index and never sort rows that they do not return", func(ctx SpecContext) {
		s := openSQLite(ctx, GinkgoT().TempDir())
		cursor := &store.ThreadCursor{LastActivityAt: 1, ID: "x"}
		for name, c := range map[string]struct {
			q     store.ThreadQuery
			few   bool
			index string
		}{
			"all":               {store.ThreadQuery{}, false, "SEARCH a USING INDEX thread_head_activity (archived=?)"},
			"after":             {store.ThreadQuery{After: cursor}, false, "SEARCH a USING INDEX thread_head_activity (archived=? AND activity_second<?)"},
			"archived too":      {store.ThreadQuery{Archived: store.ArchivedShown}, false, "SEARCH a USING INDEX thread_head_activity (archived=?)"},
			"namespace":         {store.ThreadQuery{Namespace: "n"}, false, "SEARCH a USING INDEX thread_head_namespace_activity (namespace=? AND archived=?)"},
			"namespace after":   {store.ThreadQuery{Namespace: "n", After: cursor}, false, "SEARCH a USING INDEX thread_head_namespace_activity (namespace=? AND archived=? AND activity_second<?)"},
			"namespace by UID":  {store.ThreadQuery{Namespace: "n", NamespaceUIDs: []string{"u"}}, false, "SEARCH a USING INDEX thread_head_namespace_activity (namespace=? AND archived=?)"},
			"agent with many":   {store.ThreadQuery{Namespace: "n", Agent: "a"}, false, "SEARCH a USING INDEX thread_head_namespace_activity (namespace=? AND archived=?)"},
			"agent with few":    {store.ThreadQuery{Namespace: "n", Agent: "a"}, true, "INDEX thread_agent (agent=?)"},
			"user with few":     {store.ThreadQuery{UserID: "u", Agent: "a"}, true, "INDEX thread_user (user_id=?)"},
			"task with few":     {store.ThreadQuery{TaskID: "t"}, true, "INDEX thread_task (task_id=?)"},
			"user with so many": {store.ThreadQuery{UserID: "u"}, false, "SEARCH a USING INDEX thread_head_activity (archived=?)"},
		} {
			plan, err := s.ListPlan(ctx, c.q, c.few)
			Expect(err).NotTo(HaveOccurred(), name)
			text := strings.Join(plan, "\n")
			Expect(text).To(ContainSubstring(c.index), "%s:\n%s", name, text)
			Expect(text).NotTo(ContainSubstring("message"), "%s:\n%s", name, text)
			for _, step := range plan {
				Expect(step).NotTo(Or(HavePrefix("SCAN a"), HavePrefix("SCAN f"), HavePrefix("SCAN h"), HavePrefix("SCAN t ")), "%s:\n%s", name, text)
			}
			if !c.few { // sorts only within a second
				Expect(strings.Count(text, "USE TEMP B-TREE FOR LAST 2 TERMS OF ORDER BY")).To(Equal(strings.Count(text, "SEARCH a ")), "%s:\n%s", name, text)
			}
		}
	})
})
