package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/pressly/goose/v3"

	"github.com/skein-dev/skein/internal/store"
)

// Migrating is a database that the suite may migrate itself.
type Migrating struct {
	Dialect goose.Dialect
	Files   fs.FS
	DB      *sql.DB // empty
	// Open opens the store in the database after DB was closed.
	Open func() (store.Store, error)
}

// firstRows are rows in the first version of the schema: a thread with everything that belongs to one.
var firstRows = []string{
	`INSERT INTO thread (key, id, namespace, name, agent, user_id, task_id, title, arguments, created_at, parent_id, reference, root_id, depth,
		child, terminated_at, terminated_reason, registry_status)
		VALUES (7, 'old', 'team', 'orders', 'analyst', 'ada', 'task', 'Orders', '{"a":1}', 5, '', '', 'old', 0, NULL, 0, '', '')`,
	`INSERT INTO thread_head (thread, namespace, version, last_seq, counts, queued, waiting, running, work_since, last_activity_at, activity_second)
		VALUES (7, 'team', 4, 9, '1/1', 1, 1, 1, 6, 6000000, 6)`,
	`INSERT INTO lease (thread, owner, epoch, expires_at) VALUES (7, '', 3, 0)`,
	`INSERT INTO message (thread, seq, id, role, silent, depth, status, created_at, run_id, tool_call_id, content, rest)
		VALUES (7, 2, 'm1', 'user', 0, 0, 'completed', 5, '', NULL, 'hello', NULL)`,
	`INSERT INTO message (thread, seq, id, role, silent, depth, status, created_at, run_id, tool_call_id, content, rest)
		VALUES (7, 4, 'm2', 'assistant', 1, 0, 'completed', 6, 'r', NULL, 'aside', '{"name":"n","metadata":{"k":"v"}}')`,
	`INSERT INTO log (thread, seq, type, run_id, message_id, data, created_at) VALUES (7, 3, 'run.started', 'r', '', '{"status":"running"}', 5)`,
	`INSERT INTO inbox (thread, seq, key, kind, limited, payload, created_at) VALUES (7, 9, 'k', 'message', 1, '{"id":"m3","role":"user","content":"next","created_at":6}', 6)`,
	`INSERT INTO inbox_key (thread, key, seq) VALUES (7, 'k', 9)`,
	`INSERT INTO run (thread, id, seq, agent, status, reason, message, steps, started_at, ended_at, state, usage)
		VALUES (7, 'r', 3, 'analyst', 'running', '', '', 2, 5, 0, '{"n":1}', NULL)`,
	`INSERT INTO kv (thread, key, value, updated_at) VALUES (7, 'color', '"blue"', 5)`,
	`INSERT INTO file (thread, path, parent, dir, mime_type, digest, size, metadata, width, height, created_at)
		VALUES (7, '/f.txt', '/', 0, 'text/plain', '` + digest0 + `', 12, NULL, 0, 0, 5)`,
	`INSERT INTO effect_firing (effect_id, due, thread_id, namespace, name, effect, args, status, attempts, error, fired_at, ended_at, owner, available_at)
		VALUES ('e', 8, 'old', 'team', 'remind', 'remind', '{"x":2}', 'pending', 0, '', 8, 0, '', 8)`,
}

const digest0 = "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"

// DescribeMigrations checks that data of each earlier version of the schema survives the migration.
func DescribeMigrations(name string, fresh func(ctx context.Context) Migrating) bool {
	return Describe("the schema of "+name, func() {
		describeCountedRows(fresh)
		describeOldMessages(fresh)

		It("is migrated from every earlier version, with the data of that version", func(ctx SpecContext) {
			first := fresh(ctx)
			versions := versionsOf(first)
			Expect(first.DB.Close()).To(Succeed())
			Expect(versions).NotTo(BeEmpty())
			for _, v := range versions {
				By(fmt.Sprintf("from version %d", v))
				m := fresh(ctx)
				p := provider(m)
				_, err := p.UpTo(ctx, versions[0])
				Expect(err).NotTo(HaveOccurred())
				for _, row := range firstRows {
					_, err := m.DB.ExecContext(ctx, row)
					Expect(err).NotTo(HaveOccurred(), row)
				}
				_, err = p.UpTo(ctx, v)
				Expect(err).NotTo(HaveOccurred())
				Expect(m.DB.Close()).To(Succeed())
				s, err := m.Open()
				Expect(err).NotTo(HaveOccurred())
				checkFirstRows(ctx, s)
				Expect(s.Close()).To(Succeed())
			}
		})

		It("may be one release newer: releases say which ones can use it, and others are told what to do", Label("K8S-10"), func(ctx SpecContext) {
			newer := func(minimum int64) Migrating {
				m := fresh(ctx)
				_, err := provider(m).Up(ctx)
				Expect(err).NotTo(HaveOccurred())
				for _, change := range []string{
					`ALTER TABLE run ADD COLUMN added_later TEXT NOT NULL DEFAULT ''`, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)`,
					fmt.Sprintf(`UPDATE schema_reader SET minimum = %d`, minimum),
				} {
					_, err := m.DB.ExecContext(ctx, change)
					Expect(err).NotTo(HaveOccurred(), change)
				}
				return m
			}
			versions := versionsOf(fresh(ctx))
			known := versions[len(versions)-1]
			By("opening one that says that this release can use it")
			m := newer(known)
			Expect(m.DB.Close()).To(Succeed())
			s, err := m.Open()
			Expect(err).NotTo(HaveOccurred())
			Expect(s.Ping(ctx)).To(Succeed())
			_, _, err = s.CreateThread(ctx, store.Thread{ID: "t", Namespace: "ns", Name: "t", Agent: "a"})
			Expect(err).NotTo(HaveOccurred())
			Expect(s.Apply(ctx, "t", nil, &store.PutRun{Run: store.Run{ID: "r", Status: store.RunRunning}})).To(Succeed())
			Expect(s.Run(ctx, "t", "r")).To(HaveField("Status", store.RunRunning))
			Expect(s.Close()).To(Succeed())

			By("opening one that says that it cannot")
			m = newer(known + 1)
			Expect(m.DB.Close()).To(Succeed())
			_, err = m.Open()
			Expect(err).To(MatchError(ContainSubstring(
				"its schema 99999 is for releases that know schema %d or later, and this one knows %d: run the newer release, or restore a backup from before the update", known+1, known)))

			By("finding it changed while it is open")
			m = newer(known)
			s, err = m.Open()
			Expect(err).NotTo(HaveOccurred())
			_, err = m.DB.ExecContext(ctx, fmt.Sprintf(`UPDATE schema_reader SET minimum = %d`, known+1))
			Expect(err).NotTo(HaveOccurred())
			Expect(s.Ping(ctx)).To(MatchError(ContainSubstring("migrated by a newer release")))
			Expect(s.Close()).To(Succeed())
			Expect(m.DB.Close()).To(Succeed())
		})

		It("is migrated down to nothing, and up again", func(ctx SpecContext) {
			m := fresh(ctx)
			p := provider(m)
			_, err := p.Up(ctx)
			Expect(err).NotTo(HaveOccurred())
			_, err = p.DownTo(ctx, 0)
			Expect(err).NotTo(HaveOccurred())
			Expect(m.DB.Close()).To(Succeed())
			s, err := m.Open()
			Expect(err).NotTo(HaveOccurred())
			Expect(s.Ping(ctx)).To(Succeed())
			Expect(s.Close()).To(Succeed())
		})
	})
}

func provider(m Migrating) *goose.Provider {
	GinkgoHelper()
	p, err := goose.NewProvider(m.Dialect, m.DB, m.Files, goose.WithDisableGlobalRegistry(true))
	Expect(err).NotTo(HaveOccurred())
	return p
}

func versionsOf(m Migrating) (versions []int64) {
	for _, s := range provider(m).ListSources() {
		versions = append(versions, s.Version)
	}
	return versions
}

// checkFirstRows reads everything that firstRows inserted, and continues the thread.
func checkFirstRows(ctx context.Context, s store.Store) {
	GinkgoHelper()
	t, err := s.Thread(ctx, "old")
	Expect(err).NotTo(HaveOccurred())
	Expect([]any{t.Namespace, t.Name, t.Agent, t.UserID, t.TaskID, t.Title, string(t.Arguments)}).To(
		Equal([]any{"team", "orders", "analyst", "ada", "task", "Orders", `{"a":1}`}))
	Expect([]string{t.OriginAgent, t.DeclaredAgent}).To(Equal([]string{"analyst", "analyst"}))
	Expect([]int64{t.Version, t.Messages, t.Queued, t.LastSeq}).To(Equal([]int64{4, 2, 1, 9}))
	page, err := s.Messages(ctx, "old", store.MessageQuery{Order: "asc", IncludeSilent: true, IncludeQueued: true})
	Expect(err).NotTo(HaveOccurred())
	Expect(contents(page.Messages)).To(Equal([]string{"hello", "aside", "next"}))
	Expect(page.Messages[1].Metadata).To(Equal(map[string]any{"k": "v"}))
	Expect(s.Inbox(ctx, "old")).To(ConsistOf(HaveField("Key", "k")))
	events, err := s.Events(ctx, "old", 0, 0)
	Expect(err).NotTo(HaveOccurred())
	Expect(events).To(HaveLen(3))
	r, err := s.Run(ctx, "old", "")
	Expect(err).NotTo(HaveOccurred())
	Expect([]any{r.ID, r.Status, r.Steps, string(r.State)}).To(Equal([]any{"r", store.RunRunning, 2, `{"n":1}`}))
	Expect(s.Value(ctx, "old", "color")).To(MatchJSON(`"blue"`))
	f, err := s.File(ctx, "old", "/f.txt")
	Expect(err).NotTo(HaveOccurred())
	Expect([]any{f.Digest, f.Size}).To(Equal([]any{digest0, int64(12)}))
	Expect(s.Firing(ctx, store.FiringKey{EffectID: "e", Due: 8, ThreadID: "old"})).To(HaveField("Effect", "remind"))
	Expect(s.Runnable(ctx, 10)).To(Equal([]string{"old"}))

	fence, err := s.Acquire(ctx, "old", "me", 1e9)
	Expect(err).NotTo(HaveOccurred())
	m := message("today")
	Expect(s.Apply(ctx, "old", fence, &store.AppendMessage{Message: m}, &store.Dequeue{Seqs: []int64{9}})).To(Succeed())
	Expect(m.Seq).To(Equal(int64(10)))
	digests, err := s.PurgeThread(ctx, "old")
	Expect(err).NotTo(HaveOccurred())
	Expect(digests).To(HaveLen(1), "the contents of its file are freed")
}
