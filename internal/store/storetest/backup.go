package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// DescribeBackup checks that what is in one database is the same after a backup and a restore into another one, of this kind or not.
// tables are those that a backup has. With long, random sequences are played too.
func DescribeBackup(name string, long bool, tables iter.Seq[string], from, to func() Backend) bool {
	return Describe("a backup "+name, Label("K8S-09"), func() {
		b := &backups{tables: tables}
		BeforeEach(func() {
			b.source.start(from())
			b.target.start(to())
			b.restore = store.Restore{ID: "b1", Namespace: "default"}
		})
		b.describeWhole()
		if long {
			b.describeAny()
		}
		b.describeSteps()
		b.describeEffects()
		b.describeForeign()
		b.describeNamesake()
		b.describeEarlier()
	})
}

// backups has the database that is backed up, and the one into which the backup goes.
type backups struct {
	source, target env
	restore        store.Restore
	tables         iter.Seq[string]
}

// copied is a backup of a namespace.
type copied struct {
	rows []store.BackupRow
	sum  *store.BackupSummary
}

func (b *backups) read(ctx context.Context, e *env, namespace string) copied {
	GinkgoHelper()
	return b.readOf(ctx, e, store.Namespace{Name: namespace})
}

func (b *backups) readOf(ctx context.Context, e *env, ns store.Namespace) copied {
	GinkgoHelper()
	var c copied
	sum, err := e.store.Backup(ctx, ns, func(r store.BackupRow) error {
		r.Data = slices.Clone(r.Data)
		c.rows = append(c.rows, r)
		return nil
	})
	Expect(err).NotTo(HaveOccurred())
	c.sum = sum
	return c
}

// send sends the rows in pieces, each of them twice, and the contents.
func (b *backups) send(ctx context.Context, c copied) {
	GinkgoHelper()
	for piece := range slices.Chunk(c.rows, 7) {
		for range 2 {
			Expect(b.target.store.RestoreRows(ctx, b.restore, piece)).To(Succeed())
		}
	}
	for i, x := range c.sum.Contents {
		x.Object = fmt.Sprint("restored/", i)
		Expect(b.target.store.RestoreContents(ctx, b.restore, x, justNow)).To(BeEmpty())
	}
}

func (b *backups) finish(ctx context.Context, c copied) {
	GinkgoHelper()
	for range 2 {
		Expect(b.target.store.FinishRestore(ctx, b.restore, c.sum.Rows)).To(Succeed())
	}
}

// uids of the objects that adopt threads.
func newUID(id string) string { return "new-" + id }

func (b *backups) adopt(ctx context.Context, ids ...string) {
	GinkgoHelper()
	for _, id := range ids {
		t := b.target.info(ctx, id)
		if t.RetainedAt != 0 {
			b.target.apply(ctx, id, &store.Adopt{ObjectUID: newUID(id), Name: t.Name, Agent: "of the spec", Title: "of the spec"})
		}
	}
}

// answers returns what every read of a thread returns, but for what a restore changes.
func answers(ctx context.Context, s store.Store, id string) string {
	GinkgoHelper()
	var out strings.Builder
	say := func(what string, v any, err error) {
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			Expect(err).NotTo(HaveOccurred(), what)
		}
		data, _ := json.Marshal(v)
		fmt.Fprintf(&out, "%s: %s\n", what, data)
	}
	namespace := ""
	t, err := s.Thread(ctx, id)
	if err == nil {
		namespace = t.Namespace
		t.ObjectUID, t.RetainedAt = "", 0
		usage, err := s.Usage(ctx, store.UsageQuery{ThreadID: id, Subtree: true})
		say("usage", usage, err)
	}
	say("thread", t, err)
	for _, q := range []store.MessageQuery{{}, {Order: "asc", Limit: 1000, IncludeSilent: true, AllDepths: true, IncludeQueued: true}, {Limit: 2, Offset: 1, Order: "desc"}} {
		page, err := s.Messages(ctx, id, q)
		say("messages", page, err)
	}
	events, err := s.Events(ctx, id, 0, 1000)
	say("events", events, err)
	inbox, err := s.Inbox(ctx, id)
	say("inbox", inbox, err)
	runs, err := s.Runs(ctx, id, 100, 0)
	say("runs", runs, err)
	files, err := s.Files(ctx, id, "/", true)
	say("files", files, err)
	quota, err := s.FileUsage(ctx, id)
	say("file usage", quota, err)
	state, err := s.State(ctx, id, store.StateQuery{})
	say("state", state, err)
	warnings, err := s.StateWarnings(ctx, id)
	say("warnings", warnings, err)
	keys, err := s.ValueKeys(ctx, id, store.KeyQuery{})
	say("keys", keys, err)
	for _, key := range []string{"v0", "v1"} {
		v, err := s.Value(ctx, id, key)
		say(key, json.RawMessage(v), err)
	}
	env, err := s.Env(ctx, id)
	say("env", env, err)
	relations, _, err := s.Relationships(ctx, id, 100, 0)
	say("relationships", relations, err)
	children, err := s.ChildrenSince(ctx, id, 0) // retained ones too: restored ones are until they are adopted
	for i := range children {
		children[i].ObjectUID, children[i].RetainedAt = "", 0
	}
	say("children", children, err)
	living, err := s.LivingChildren(ctx, namespace, id)
	say("living", living, err)
	records, err := s.UsageRecords(ctx, id, 100, 0)
	say("usage records", records, err)
	imported, err := s.Imported(ctx, id)
	say("imported", imported, err)
	_, result, err := s.Recorded(ctx, id, "once")
	say("once", result, err)
	return out.String()
}

// everything makes threads that together have a row in every table that a backup has. It returns their ids.
func (b *backups) everything(ctx context.Context) []string {
	GinkgoHelper()
	e := &b.source
	text := "of a page"
	root := e.thread(ctx)
	for i := range 20 {
		e.say(ctx, root, fmt.Sprint("hello ", i))
	}
	m := e.say(ctx, root, "remember me")
	call := &store.Message{Role: store.RoleAssistant, Content: &text, Silent: true, Depth: 1, ToolCalls: []store.ToolCall{{ID: "c1", Name: "f", Arguments: "{}"}}, Metadata: map[string]any{"k": "v"}}
	title := "Set by code"
	once := &store.Once{Key: "once", Fingerprint: "f", Result: func() (json.RawMessage, error) { return json.RawMessage(`{"a":1}`), nil }}
	e.apply(ctx, root, once, &store.AppendMessage{Message: call}, &store.UpdateThread{Title: &title, EditFields: func(f *store.Fields) error { f.AgentMode = "plan"; return nil }},
		putFile("/a/one.txt", 1), putFile("/two.txt", 2), &store.SetFileQuota{Bytes: ptrTo(int64(1 << 30))},
		&store.PutValue{Key: "v0", Value: json.RawMessage(`{"deep":[1,2]}`)},
		&store.MergeState{Changes: []store.StateChange{{Verb: store.StateSet, Key: "b", Value: json.RawMessage(`1`)}, {Verb: store.StatePush, Key: "a", Value: json.RawMessage(`"x"`)}}},
		&store.SkipState{RunID: "r1", Skipped: store.StateSkipped{Scope: store.ScopeThread, Reason: store.ReasonStateTooLarge, Message: "too large"}},
		&store.SetEnv{Vars: []store.EnvVar{{Name: "TOKEN", Type: store.EnvSecret, Value: []byte{0, 255, 1}, KeyID: 4242, Origin: store.EnvSet}}},
		&store.PutEmbedding{MessageID: m.ID, Content: "remember me", Agent: "helper", Space: "s", Vector: []float32{1, 2}},
		&store.SetIdleExpiry{Expiry: time.Hour.Microseconds()},
		&store.PutRun{Run: store.Run{ID: "r1", Agent: "helper", Status: store.RunRunning}})
	e.apply(ctx, root, &store.PutRun{Run: store.Run{ID: "r1", Agent: "helper", Status: store.RunSucceeded, Steps: 2, Usage: json.RawMessage(`{"inputTokens":7,"cost":0.25}`), SessionState: json.RawMessage(`{"s":1}`)}},
		&store.AddTaskUsage{RunID: "r1", Task: "title", Agent: "helper", Usage: store.RunUsage{InputTokens: 3}},
		&store.PutRun{Run: store.Run{ID: "r2", Agent: "helper", Status: store.RunWaiting, WakeAt: e.now() + 5, State: json.RawMessage(`{"waits":"approval"}`)}},
		queued("q1", "next"))
	held := &store.Enqueue{Item: store.InboxItem{Key: "hook", Kind: store.InboxHook, Payload: json.RawMessage(`{}`)}}
	e.apply(ctx, root, held)
	e.apply(ctx, root, &store.Delay{Seq: held.Seq, Until: e.now() + 100, Tries: 2})
	f, err := e.store.Acquire(ctx, root, "someone", time.Minute)
	Expect(err).NotTo(HaveOccurred())
	Expect(f.Epoch).To(BeNumerically(">", 0))

	_, err = e.store.ReserveChild(ctx, store.ChildTask{ID: root + "-1", ParentID: root, Reference: "child-1", Namespace: "default", Kind: "helper", Agent: "worker", Task: json.RawMessage(`{"n":1}`)}, nil)
	Expect(err).NotTo(HaveOccurred())
	child := "00000000-0000-4000-8000-00000000c001"
	_, _, err = e.store.CreateThread(ctx, store.Thread{ID: child, Namespace: "default", Name: "child-1", Agent: "worker", ParentID: root, Reference: "child-1", RegistryStatus: "running",
		Child: &store.Child{Name: "helper", Blocking: true, ToolCallID: "c1"}, Arguments: json.RawMessage(`{"x":1}`), UserID: "ada", TaskID: "t"})
	Expect(err).NotTo(HaveOccurred())
	e.say(ctx, child, "I am the child")
	e.apply(ctx, child, &store.PutRun{Run: store.Run{ID: "r3", Agent: "worker", Status: store.RunRunning}})

	fork, gone := "00000000-0000-4000-8000-00000000f001", e.thread(ctx)
	e.say(ctx, gone, "will be a remnant")
	_, _, err = e.store.CreateThread(ctx, store.Thread{ID: fork, Namespace: "default", Name: "fork", Agent: "helper"}, &store.Fork{Origin: gone, Newest: true})
	Expect(err).NotTo(HaveOccurred())
	e.say(ctx, fork, "own")
	e.clock.Step(time.Second)
	fork2 := "00000000-0000-4000-8000-00000000f002"
	_, _, err = e.store.CreateThread(ctx, store.Thread{ID: fork2, Namespace: "default", Name: "fork-2", Agent: "helper"}, &store.Fork{Origin: root, Index: 3})
	Expect(err).NotTo(HaveOccurred())
	_, err = e.store.PurgeThread(ctx, gone)
	Expect(err).NotTo(HaveOccurred())

	imported := e.thread(ctx, &store.ImportConversation{Record: store.ImportRecord{Manifest: json.RawMessage(`{"agentId":"x"}`)}, Lines: func(yield func(store.ImportLine, error) bool) {
		yield(store.ImportLine{Message: message("imported")}, nil)
	}})
	retained := e.thread(ctx)
	e.say(ctx, retained, "kept")
	e.apply(ctx, retained, &store.Retain{})
	Expect(e.store.SetKV(ctx, store.Namespace{Name: "default"}, "cache", store.KVEntry{Key: "k", Value: json.RawMessage(`[1]`), ExpiresAt: e.now() + time.Hour.Microseconds()})).To(Succeed())

	Expect(e.store.PutEffectArgs(ctx, store.EffectArgs{ID: "args-1", Namespace: "default", ThreadID: root, Args: json.RawMessage(`{"a":2}`)})).To(Succeed())
	_, err = e.store.RecordFiring(ctx, store.Firing{EffectID: "e-once", Due: 5, ThreadID: root, Namespace: "default", Name: "remind", Effect: "remind", Args: json.RawMessage(`{"a":2}`)})
	Expect(err).NotTo(HaveOccurred())
	next := store.EffectSchedule{EffectID: "e-daily", Namespace: "default", Name: "daily", Fingerprint: "f", Cursor: 10, Fired: 2, Skipped: 1, Day: "2030-01-01", DayFired: 2}
	Expect(e.store.RecordDue(ctx, store.DueRecord{Schedule: next, Firings: []store.Firing{{EffectID: "e-daily", Due: 9, Namespace: "default", Name: "daily", Origin: store.OriginSchedule, Target: json.RawMessage(`{}`)}},
		Skips: []store.EffectSkip{{EffectID: "e-daily", Due: 7, Until: 8, Count: 1, Reason: "Missed"}}})).To(Succeed())
	removed := next
	removed.Cursor = 11
	Expect(e.store.RecordDue(ctx, store.DueRecord{Schedule: removed, Was: &next, Requests: []store.FiringRequest{{ID: "at:1", Answer: json.RawMessage("[]")}},
		Firings: []store.Firing{{EffectID: "e-daily", Due: 11, Namespace: "default", Name: "daily", Origin: store.OriginSchedule}}})).To(Succeed())
	Expect(e.store.CancelFirings(ctx, "no", store.FiringKey{EffectID: "e-daily", Due: 11})).To(Equal(1))
	Expect(e.store.PruneFirings(ctx, "e-daily", store.HistoryLimits{})).To(Succeed())
	Expect(e.store.RecordDue(ctx, store.DueRecord{Schedule: next, Was: &removed, Skips: []store.EffectSkip{{EffectID: "e-daily", Due: 7, Until: 8, Count: 1, Reason: "Missed"}}})).To(Succeed())
	return []string{root, child, fork, fork2, imported, retained}
}

func ptrTo[T any](v T) *T { return &v }
