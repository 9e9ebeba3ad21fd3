package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeFields(e *env) {
	Describe("the fields of a thread", Label("THR-14"), func() {
		It("are kept, changed together and logged", func(ctx SpecContext) {
			id := e.thread(ctx)
			want := store.Fields{
				Draft: "dear", AutoSubmitDraft: true, AgentMode: "smart", MaxTokens: 4096,
				ActivatedSkills: []store.SkillActivation{{Name: "sql", Arguments: json.RawMessage(`{"db":"x"}`)}},
				Workspace:       &store.Workspace{Trees: []json.RawMessage{json.RawMessage(`{"uri":"file:///r"}`)}, Tags: []string{"a"}},
			}
			e.apply(ctx, id, &store.UpdateThread{Title: ptr("T"), EditFields: func(f *store.Fields) error { *f = want; return nil }})
			t := e.info(ctx, id)
			Expect(t.Fields).To(Equal(want))
			Expect(t.Title).To(Equal("T"))
			Expect(t.Version).To(Equal(int64(1)))
			e.apply(ctx, id, &store.UpdateThread{EditFields: func(f *store.Fields) error {
				f.Draft, f.Workspace.Tags[0] = "", "b"
				return nil
			}})
			events := e.events(ctx, id)
			Expect(events).To(HaveLen(2))
			Expect(events[1].Type).To(Equal(store.EventThreadUpdated))
			Expect(string(events[1].Data)).To(MatchJSON(`{"draft":"","workspace":{"trees":[{"uri":"file:///r"}],"tags":["b"]}}`))
			e.apply(ctx, id, &store.UpdateThread{Title: ptr("T"), EditFields: func(*store.Fields) error { return nil }})
			Expect(e.info(ctx, id).Version).To(Equal(int64(2)), "nothing has changed")
			refused := errors.New("refused")
			Expect(e.store.Apply(ctx, id, nil, &store.UpdateThread{Title: ptr("U"), EditFields: func(*store.Fields) error { return refused }})).To(MatchError(refused))
			Expect(e.info(ctx, id).Title).To(Equal("T"))
			e.apply(ctx, id, &store.UpdateThread{EditFields: func(f *store.Fields) error { *f = store.Fields{}; return nil }})
			Expect(e.info(ctx, id).Fields).To(Equal(store.Fields{}))
		})

		It("may be set by the creator", func(ctx SpecContext) {
			w := &store.Workspace{Tags: []string{"x"}}
			stored, _, err := e.store.CreateThread(ctx, store.Thread{ID: "f", Namespace: "n", Agent: "a", Fields: store.Fields{Workspace: w}})
			Expect(err).NotTo(HaveOccurred())
			Expect(stored.Fields).To(Equal(store.Fields{Workspace: w}))
		})

		It("count all messages ever appended, and record when a user last wrote", func(ctx SpecContext) {
			id := e.thread(ctx)
			m := e.say(ctx, id, "one")
			at := e.now()
			Expect(e.info(ctx, id)).To(And(HaveField("Appended", int64(1)), HaveField("UserActivityAt", at)))
			e.clock.Step(time.Second)
			e.apply(ctx, id, &store.AppendMessage{Message: &store.Message{Role: store.RoleAssistant, Content: ptr("two")}}, &store.DeleteMessage{ID: m.ID})
			Expect(e.info(ctx, id)).To(And(HaveField("Appended", int64(2)), HaveField("Messages", int64(1)), HaveField("UserActivityAt", at)))
			e.clock.Step(time.Second)
			e.apply(ctx, id, queued("q", "waits"))
			Expect(e.info(ctx, id)).To(And(HaveField("Appended", int64(2)), HaveField("UserActivityAt", e.now())))
		})

		It("count files added, replaced and removed", func(ctx SpecContext) {
			id := e.thread(ctx)
			put := func(path string, n byte) *store.PutFile {
				return &store.PutFile{File: store.File{Path: path, Digest: digest(n)}, Object: object(n), Uploaded: e.now()}
			}
			e.apply(ctx, id, put("/d/a", 1), put("/b", 1))
			e.apply(ctx, id, put("/b", 2))
			e.apply(ctx, id, put("/b", 2), &store.RemoveFile{Path: "/d/a"})
			e.apply(ctx, id, &store.RemoveFile{Path: "/d"})
			Expect(e.info(ctx, id).Diff).To(Equal(store.DiffStats{Added: 2, Changed: 1, Removed: 1}))
		})
	})

	Describe("an expected version", Label("THR-11"), func() {
		It("lets a transaction pass or fail, and the error has the current version", func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, &store.ExpectVersion{Version: 0}, &store.AppendMessage{Message: message("a")}, &store.AppendMessage{Message: message("b")})
			err := e.store.Apply(ctx, id, nil, &store.AppendMessage{Message: message("c")}, &store.ExpectVersion{Version: 0})
			Expect(err).To(MatchError(store.ErrConflict))
			var conflict *store.VersionError
			Expect(errors.As(err, &conflict)).To(BeTrue())
			Expect(conflict).To(HaveValue(Equal(store.VersionError{ThreadID: id, Expected: 0, Current: 1})))
			Expect(e.info(ctx, id).Messages).To(Equal(int64(2)))
		})
	})

	Describe("archiving", Label("THR-08"), func() {
		It("hides a thread from lists that do not ask for it, and is reversible", func(ctx SpecContext) {
			a, b := e.thread(ctx), e.thread(ctx)
			e.clock.Step(time.Second)
			e.apply(ctx, a, &store.UpdateThread{Archived: ptr(true)})
			at := e.now()
			Expect(e.info(ctx, a).ArchivedAt).To(Equal(at))
			e.clock.Step(time.Second)
			e.apply(ctx, a, &store.UpdateThread{Archived: ptr(true)})
			Expect(e.info(ctx, a)).To(And(HaveField("ArchivedAt", at), HaveField("Version", int64(1))))
			for _, ns := range []string{"", "default"} {
				Expect(e.list(ctx, store.ThreadQuery{Namespace: ns})).To(Equal([]string{b}))
				Expect(e.list(ctx, store.ThreadQuery{Namespace: ns, Archived: store.ArchivedOnly})).To(Equal([]string{a}))
				Expect(e.list(ctx, store.ThreadQuery{Namespace: ns, Archived: store.ArchivedShown})).To(Equal([]string{a, b}))
			}
			e.say(ctx, a, "still works")
			e.apply(ctx, a, &store.UpdateThread{Archived: ptr(false)})
			Expect(e.info(ctx, a).ArchivedAt).To(BeZero())
			Expect(e.list(ctx, store.ThreadQuery{})).To(Equal([]string{a, b}))
			Expect(string(e.events(ctx, a)[0].Data)).To(MatchJSON(`{"archived":true}`))
		})
	})

	Describe("lists of threads", Label("THR-15"), func() {
		It("are filtered, and continue after a thread", func(ctx SpecContext) {
			make := func(id, ns, agent, user, task string) {
				_, _, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: ns, Agent: agent, UserID: user, TaskID: task})
				Expect(err).NotTo(HaveOccurred())
			}
			make("a", "n", "x", "u", "t")
			make("b", "n", "y", "u", "") // in the same microsecond
			e.clock.Step(300 * time.Millisecond)
			make("c", "m", "x", "u", "")
			make("d", "n", "x", "", "")
			e.clock.Step(2 * time.Second)
			make("e", "n", "x", "u", "t")
			for _, c := range []struct {
				q    store.ThreadQuery
				want []string
			}{
				{store.ThreadQuery{Agent: "x"}, []string{"e", "d", "c", "a"}},
				{store.ThreadQuery{UserID: "u"}, []string{"e", "c", "b", "a"}},
				{store.ThreadQuery{TaskID: "t"}, []string{"e", "a"}},
				{store.ThreadQuery{Namespace: "n", Agent: "x", UserID: "u"}, []string{"e", "a"}},
				{store.ThreadQuery{Namespace: "m", Agent: "y"}, []string{}},
				{store.ThreadQuery{Agent: "none"}, []string{}},
			} {
				for _, archived := range []store.ArchivedFilter{store.ArchivedHidden, store.ArchivedShown} {
					c.q.Archived = archived
					Expect(e.list(ctx, c.q)).To(Equal(c.want), "%+v", c.q)
					Expect(e.pages(ctx, c.q)).To(Equal(c.want), "%+v", c.q)
				}
			}
			Expect(e.pages(ctx, store.ThreadQuery{})).To(Equal([]string{"e", "d", "c", "b", "a"}))
			Expect(e.pages(ctx, store.ThreadQuery{Namespace: "n", Archived: store.ArchivedShown})).To(Equal([]string{"e", "d", "b", "a"}))
		})

		It("are the same for both ways of filtering", func(ctx SpecContext) {
			// Create so many threads that they are not all read, with a few others in between.
			var few, many []string
			for i := range 2010 {
				t := store.Thread{ID: fmt.Sprintf("t-%04d", i), Namespace: "n", Agent: "many", UserID: "ada"}
				if i%400 == 7 {
					t.Agent = "few"
					few = append([]string{t.ID}, few...)
				} else {
					many = append([]string{t.ID}, many...)
				}
				e.clock.Step(10 * time.Millisecond)
				_, _, err := e.store.CreateThread(ctx, t)
				Expect(err).NotTo(HaveOccurred())
			}
			Expect(e.list(ctx, store.ThreadQuery{Agent: "few"})).To(Equal(few))
			Expect(e.list(ctx, store.ThreadQuery{Agent: "few", UserID: "ada"})).To(Equal(few))
			Expect(e.list(ctx, store.ThreadQuery{Agent: "many", Limit: 50})).To(Equal(many[:50]))
			Expect(e.list(ctx, store.ThreadQuery{UserID: "ada", Namespace: "n", Archived: store.ArchivedShown, Offset: 1990})).To(HaveLen(20))
		})
	})

	Describe("pages of threads", Label("THR-09", "THR-15"), func() {
		It("end early when their threads are large, and are whole", func(ctx SpecContext) {
			arguments := json.RawMessage(`{"a":"` + strings.Repeat("x", 3<<10) + `"}`)
			fields := store.Fields{
				Draft:           strings.Repeat("d", 40<<10),
				ActivatedSkills: []store.SkillActivation{{Name: "sql", Arguments: json.RawMessage(`{"db":"` + strings.Repeat("y", 40<<10) + `"}`)}},
				Workspace:       &store.Workspace{Trees: []json.RawMessage{json.RawMessage(`{"uri":"` + strings.Repeat("z", 10<<10) + `"}`)}},
			}
			var all []string
			for i := range 5 {
				id := fmt.Sprintf("large-%d", i)
				_, _, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a", Arguments: arguments})
				Expect(err).NotTo(HaveOccurred())
				if i != 2 { // this one is small, among others
					e.apply(ctx, id, &store.UpdateThread{EditFields: func(f *store.Fields) error { *f = fields; return nil }})
				}
				e.clock.Step(time.Second)
				all = append(all, id)
			}
			latest := slices.Clone(all)
			slices.Reverse(latest)
			q := store.ThreadQuery{Namespace: "n", MaxBytes: 210 << 10}
			page, more, err := e.store.Threads(ctx, q)
			Expect(err).NotTo(HaveOccurred())
			Expect(ids(page)).To(Equal(latest[:3]), "two large ones and a small one")
			Expect(more).To(BeTrue())
			Expect([]store.Fields{page[1].Fields, page[2].Fields}).To(Equal([]store.Fields{fields, {}}))
			Expect(page[0].Arguments).To(BeNil())
			Expect(e.pages(ctx, q)).To(Equal(latest))
			q.MaxBytes, q.Offset = 1, 3
			page, more, err = e.store.Threads(ctx, q)
			Expect(err).NotTo(HaveOccurred())
			Expect(ids(page)).To(Equal(latest[3:4]), "one at least")
			Expect(more).To(BeTrue())
			q.Offset = 4
			Expect(e.store.Threads(ctx, q)).To(HaveLen(1), "and none follows")

			for _, id := range all {
				e.apply(ctx, id, &store.Retain{})
			}
			page, more, err = e.store.Retained(ctx, "n", "", 10, 210<<10)
			Expect(err).NotTo(HaveOccurred())
			Expect(ids(page)).To(Equal(all[:3]))
			Expect(more).To(BeTrue())
			Expect([]any{page[1].Fields, page[1].Arguments}).To(Equal([]any{fields, arguments}))
			Expect([]any{page[2].Fields, page[2].Arguments}).To(Equal([]any{store.Fields{}, arguments}))
			Expect(e.store.Retained(ctx, "n", all[2], 10, 210<<10)).To(HaveLen(2), "the others")
			Expect(e.store.Retained(ctx, "n", all[3], 10, 1)).To(HaveExactElements(HaveField("ID", all[4])), "one at least, and none follows")
			_, more, err = e.store.Retained(ctx, "n", "", 4, 0)
			Expect(err).NotTo(HaveOccurred())
			Expect(more).To(BeTrue(), "a page ends with its number of threads too")
		})
	})

	Describe("finding", Label("THR-16", "IDS-01"), func() {
		It("finds threads by name and by short id, and lists the namespaces", func(ctx SpecContext) {
			make := func(id, ns, name string) {
				_, _, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: ns, Name: name, Agent: "a"})
				Expect(err).NotTo(HaveOccurred())
			}
			Expect(e.store.Namespaces(ctx)).To(BeEmpty())
			make("00000000-0000-4000-8000-0000000000aa", "b", "hello")
			make("10000000-0000-4000-8000-0000000000aa", "a", "hello")
			make("20000000-0000-4000-8000-0000000000bb", "c", "other")
			Expect(e.store.Namespaces(ctx)).To(Equal([]string{"a", "b", "c"}))
			find := func(q store.FindQuery) []string {
				GinkgoHelper()
				found, err := e.store.FindThreads(ctx, q)
				Expect(err).NotTo(HaveOccurred())
				return ids(found)
			}
			Expect(find(store.FindQuery{Name: "hello"})).To(HaveLen(2))
			Expect(find(store.FindQuery{Name: "hello", Limit: 1})).To(HaveLen(1))
			Expect(find(store.FindQuery{Name: "hello", Namespace: "a"})).To(Equal([]string{"10000000-0000-4000-8000-0000000000aa"}))
			Expect(find(store.FindQuery{ShortID: "0000000000aa"})).To(HaveLen(2))
			Expect(find(store.FindQuery{ShortID: "0000000000aa", Namespace: "b"})).To(Equal([]string{"00000000-0000-4000-8000-0000000000aa"}))
			Expect(find(store.FindQuery{ShortID: "0000000000bb"})).To(Equal([]string{"20000000-0000-4000-8000-0000000000bb"}))
			Expect(find(store.FindQuery{ShortID: "0000000000cc"})).To(BeEmpty())
			e.apply(ctx, "10000000-0000-4000-8000-0000000000aa", &store.Retain{})
			Expect(find(store.FindQuery{Name: "hello", Namespace: "a"})).To(HaveLen(1))
			Expect(find(store.FindQuery{Name: "hello", Namespace: "a", Present: true})).To(BeEmpty())
			Expect(find(store.FindQuery{Name: "hello", Namespace: "b", Present: true})).To(HaveLen(1))
			for _, q := range []store.FindQuery{{Name: "hello", Present: true}, {Namespace: "a", ShortID: "0000000000aa", Present: true}} {
				_, err := e.store.FindThreads(ctx, q)
				Expect(err).To(HaveOccurred())
			}
			_, err := e.store.FindThreads(ctx, store.FindQuery{})
			Expect(err).To(HaveOccurred())
		})
	})
}

// list returns the ids of the threads that a query selects.
func (e *env) list(ctx context.Context, q store.ThreadQuery) []string {
	GinkgoHelper()
	threads, _, err := e.store.Threads(ctx, q)
	Expect(err).NotTo(HaveOccurred())
	return ids(threads)
}

// pages returns what list returns, read in pages of one thread.
func (e *env) pages(ctx context.Context, q store.ThreadQuery) []string {
	GinkgoHelper()
	all := []string{}
	for q.Limit = 1; ; {
		threads, more, err := e.store.Threads(ctx, q)
		Expect(err).NotTo(HaveOccurred())
		if len(threads) == 0 {
			return all
		}
		all = append(all, threads[0].ID)
		if !more {
			return all
		}
		q.After = &store.ThreadCursor{LastActivityAt: threads[0].LastActivityAt, ID: threads[0].ID}
	}
}
