package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
)

func openSQLite(ctx context.Context, dir string) *sqlstore.Store {
	GinkgoHelper()
	s, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: dir})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.Close)
	return s
}

func appendText(ctx context.Context, s store.Store, id, text string) error {
	return s.Apply(ctx, id, nil, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: &text}})
}

var _ = Describe("SQLite's data folder", Label("K8S-05"), func() {
	It("belongs to one store at a time, and the error for a second says what to do", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		first := openSQLite(ctx, dir)
		_, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: dir})
		Expect(err).To(MatchError(And(ContainSubstring(dir), ContainSubstring("in use by another manager"), ContainSubstring("use PostgreSQL for more than one replica"))))
		Expect(first.Close()).To(Succeed())
		openSQLite(ctx, dir)
	})

	It("may have any name", func(ctx SpecContext) {
		dir := filepath.Join(GinkgoT().TempDir(), "a b?c#d%20&é")
		s := openSQLite(ctx, dir)
		Expect(s.Ping(ctx)).To(Succeed())
		Expect(filepath.Join(dir, "skein.db")).To(BeARegularFile())
	})

	It("is private to the user", func(ctx SpecContext) {
		dir := filepath.Join(GinkgoT().TempDir(), "data")
		openSQLite(ctx, dir)
		info, err := os.Stat(dir)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o700)))
	})

	It("is required", func(ctx SpecContext) {
		_, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{})
		Expect(err).To(MatchError(ContainSubstring("--data-dir")))
	})

	It("is refused when its schema is of a newer release", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		Expect(openSQLite(ctx, dir).Close()).To(Succeed())
		db, err := sql.Open("sqlite", filepath.Join(dir, "skein.db"))
		Expect(err).NotTo(HaveOccurred())
		_, err = db.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)")
		Expect(err).NotTo(HaveOccurred())
		_, err = db.Exec("UPDATE schema_reader SET minimum = 999")
		Expect(err).NotTo(HaveOccurred())
		Expect(db.Close()).To(Succeed())
		_, err = sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: dir})
		Expect(err).To(MatchError(ContainSubstring("its schema 999 is for releases that know schema 999 or later")))
	})

	It("is refused when the database file holds something else", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(dir, "skein.db"), []byte(strings.Repeat("no database at all", 1000)), 0o600)).To(Succeed())
		_, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: dir})
		Expect(err).To(MatchError(ContainSubstring("file is not a database")))
		Expect(errors.Is(err, store.ErrUnavailable)).To(BeFalse(), "trying again does not help")
	})
})

var _ = Describe("SQLite on a full disk", func() {
	It("refuses writes as unavailable, continues to read, and recovers by itself", func(ctx SpecContext) {
		s := openSQLite(ctx, GinkgoT().TempDir())
		_, _, err := s.CreateThread(ctx, store.Thread{ID: "t", Namespace: "n", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		Expect(appendText(ctx, s, "t", "before")).To(Succeed())

		Expect(s.LimitPages(1)).To(Succeed()) // limited to its present size
		large := strings.Repeat("x", 1<<20)
		Expect(appendText(ctx, s, "t", large)).To(MatchError(store.ErrUnavailable))
		page, err := s.Messages(ctx, "t", store.MessageQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).To(HaveLen(1))

		Expect(s.LimitPages(0)).To(Succeed())
		Expect(appendText(ctx, s, "t", large)).To(Succeed())
		Expect(s.Ping(ctx)).To(Succeed())
		t, err := s.Thread(ctx, "t")
		Expect(err).NotTo(HaveOccurred())
		Expect(t.Messages).To(Equal(int64(2)))
		Expect(t.Version).To(Equal(int64(2)))
	})

	It("acknowledges no write that it could not store", func(ctx SpecContext) {
		s := openSQLite(ctx, GinkgoT().TempDir())
		_, _, err := s.CreateThread(ctx, store.Thread{ID: "t", Namespace: "n", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		Expect(appendText(ctx, s, "t", "before")).To(Succeed())
		Expect(s.LimitPages(1)).To(Succeed())
		var wg sync.WaitGroup
		var mu sync.Mutex
		acknowledged := int64(1)
		for range 16 {
			wg.Go(func() {
				defer GinkgoRecover()
				err := appendText(ctx, s, "t", strings.Repeat("x", 1<<20))
				if err == nil { // after the failed connection was replaced
					mu.Lock()
					acknowledged++
					mu.Unlock()
					return
				}
				Expect(err).To(MatchError(store.ErrUnavailable))
			})
		}
		wg.Wait()
		t, err := s.Thread(ctx, "t")
		Expect(err).NotTo(HaveOccurred())
		Expect(t.Messages).To(Equal(acknowledged))
	})
})

var _ = Describe("A search of the memory", Label("K8S-11"), func() {
	It("compares with a bounded number of messages, the newest", func(ctx SpecContext) {
		sqlstore.SetCompared(5)
		DeferCleanup(sqlstore.SetCompared, int64(20_000))
		s := openSQLite(ctx, GinkgoT().TempDir())
		_, _, err := s.CreateThread(ctx, store.Thread{ID: "t", Namespace: "n", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		for i := range 8 {
			text := fmt.Sprint(i)
			Expect(s.Apply(ctx, "t", nil, &store.AppendMessage{Message: &store.Message{ID: text, Role: store.RoleUser, Content: &text, CreatedAt: int64(i + 1)}},
				&store.PutEmbedding{MessageID: text, Content: text, Agent: "a", Space: "s", Vector: []float32{float32(8 - i), 1}})).To(Succeed())
		}
		near, err := s.Nearest(ctx, store.NearestQuery{Namespace: "n", Agent: "a", Space: "s", Vector: []float32{1, 0}, Limit: 10})
		Expect(err).NotTo(HaveOccurred())
		Expect(near).To(HaveLen(5))
		Expect(near[0].Message.ID).To(Equal("3"), "the nearest of the five newest")
	})
})

var _ = Describe("SQLite's purge", Label("THR-09"), func() {
	It("fences the holder and leaves no work even when it is interrupted, and can be repeated", func(ctx SpecContext) {
		s := openSQLite(ctx, GinkgoT().TempDir())
		_, _, err := s.CreateThread(ctx, store.Thread{ID: "t", Namespace: "n", Agent: "a"}, &store.PutRun{Run: store.Run{ID: "r", Status: store.RunRunning}},
			&store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}})
		Expect(err).NotTo(HaveOccurred())
		fence, err := s.Acquire(ctx, "t", "me", time.Hour)
		Expect(err).NotTo(HaveOccurred())
		purging, cutOff := context.WithCancel(ctx)
		DeferCleanup(s.Subscribe(func(store.Notification) { cutOff() })) // after the first of its commits

		_, err = s.PurgeThread(purging, "t")
		Expect(err).To(MatchError(context.Canceled))
		Expect(s.Apply(ctx, "t", fence, &store.AppendEvent{Event: store.Event{Type: "event:late"}})).To(MatchError(store.ErrFenced))
		Expect(s.Runnable(ctx, 10)).To(BeEmpty())
		Expect(s.Apply(ctx, "t", nil, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}})).To(MatchError(store.ErrTerminated))

		_, err = s.PurgeThread(ctx, "t")
		Expect(err).NotTo(HaveOccurred())
		_, err = s.Thread(ctx, "t")
		Expect(err).To(MatchError(store.ErrNotFound))
	})
})

var _ = Describe("SQLite's writer", func() {
	It("survives a transaction that panics", func(ctx SpecContext) {
		s := openSQLite(ctx, GinkgoT().TempDir())
		Expect(s.Panic(ctx)).To(MatchError(ContainSubstring("oops")))
		Expect(s.Ping(ctx)).To(Succeed())
	})
})

var _ = Describe("SQLite's plans", func() {
	It("scan no table", func(ctx SpecContext) {
		s := openSQLite(ctx, GinkgoT().TempDir())
		for name, q := range sqlstore.Queries {
			plan, err := s.Plan(ctx, q.Text, make([]any, q.Args)...)
			Expect(err).NotTo(HaveOccurred(), name)
			for _, step := range plan {
				// "n" is the list of namespaces itself, "ended" that of terminated threads, "c" what the parts of the query find,
				// and "tree" the threads that the query has found. The newest threads are read from their index, and those with work from theirs.
				allowed := step == "SCAN n" || step == "SCAN h USING COVERING INDEX thread_head_work" || step == "SCAN ended" || step == "SCAN c" || step == "SCAN tree" || step == "SCAN a USING INDEX thread_head_activity" || !strings.HasPrefix(step, "SCAN")
				Expect(allowed).To(BeTrue(), "%s: %v", name, plan)
			}
		}
	})

	It("use the index that is meant for the query", func(ctx SpecContext) {
		s := openSQLite(ctx, GinkgoT().TempDir())
		for name, index := range map[string]string{
			"tool results": "message_tool_call", "files below": "file_path", "file": "file_path", "digest used": "file_digest", "work": "thread_head_work",
			"claimable": "effect_firing_space", "due firings": "effect_firing_space", "oldest due": "effect_firing_pending", "unended effects": "effect_firing_active", "last ended": "effect_firing_ended", "children": "thread_parent", "message": "message_id", "runs": "run_seq",
			"vectors": "embedding_memory", "wakes": "inbox_held", "unfinished": "thread_unfinished", "unfinished below": "thread_unfinished",
			"working children": "thread_unfinished", "children since": "thread_parent", "child states": "thread_reference", "undeclared": "thread_undeclared",
			"by name": "thread_name", "by name within": "thread_name", "present by name": "thread_name", "owned": "thread_owned", "sum of messages": "message_usage_namespace", "part to count": "message_order", "retained": "thread_retained",
		} {
			q := sqlstore.Queries[name]
			plan, err := s.Plan(ctx, q.Text, make([]any, q.Args)...)
			Expect(err).NotTo(HaveOccurred(), name)
			Expect(strings.Join(plan, "\n")).To(ContainSubstring("INDEX "+index+" "), name)
		}
		plan, err := s.Plan(ctx, sqlstore.Queries["files direct"].Text, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(plan).To(ContainElement("SEARCH f USING PRIMARY KEY (thread=? AND parent=?)"))
	})

	It("find what waits by the threads that have work, and pass over the inboxes of all others", func(ctx SpecContext) {
		s := openSQLite(ctx, GinkgoT().TempDir())
		plan, err := s.Plan(ctx, sqlstore.Queries["waiting items"].Text)
		Expect(err).NotTo(HaveOccurred())
		Expect(plan).To(HaveExactElements("SCAN h USING COVERING INDEX thread_head_work", "SEARCH i USING PRIMARY KEY (thread=?)"))
	})

	It("find the firings to claim without sorting those that were recorded together, and their keys in the index alone", func(ctx SpecContext) {
		s := openSQLite(ctx, GinkgoT().TempDir())
		for name, want := range map[string]string{
			"claimable": "SEARCH effect_firing USING INDEX effect_firing_space ", "claimable keys": "SEARCH effect_firing USING COVERING INDEX effect_firing_space ",
		} {
			plan, err := s.Plan(ctx, sqlstore.Queries[name].Text, nil, nil, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(plan).To(ConsistOf(HavePrefix(want)), name)
		}
	})

	It("rank the newest matches of a search without sorting all of them", func(ctx SpecContext) {
		s := openSQLite(ctx, GinkgoT().TempDir())
		for _, conditions := range []string{"", " AND t.id = 't'", " AND t.namespace IN ('n')", " AND m.role = 'user'"} {
			plan, err := s.SearchPlan(ctx, conditions)
			Expect(err).NotTo(HaveOccurred())
			i := slices.IndexFunc(plan, func(step string) bool { return strings.HasPrefix(step, "SCAN message_text VIRTUAL TABLE") })
			Expect(i).To(BeNumerically(">", 0), "%s: %v", conditions, plan)
			Expect(plan[slices.Index(plan, "CO-ROUTINE r"):slices.Index(plan, "SCAN r")]).NotTo(ContainElement(ContainSubstring("TEMP B-TREE")), "%s: %v", conditions, plan)
		}
	})

	It("find a page of messages by an index alone, without sorting skipped rows", func(ctx SpecContext) {
		s := openSQLite(ctx, GinkgoT().TempDir())
		for query, args := range sqlstore.PageQueries() {
			plan, err := s.Plan(ctx, query, make([]any, args)...)
			Expect(err).NotTo(HaveOccurred())
			Expect(plan).To(ConsistOf("SEARCH m USING INTEGER PRIMARY KEY (rowid=?)", "LIST SUBQUERY 1",
				"SEARCH s USING COVERING INDEX message_order (thread=? AND seq>? AND seq<?)", "USE TEMP B-TREE FOR ORDER BY"))
		}
	})
})
