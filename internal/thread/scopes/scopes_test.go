package scopes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/thread/scopes"
)

func TestScopes(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "scopes")
}

// counted is a thread's state that counts how often it was fetched.
type counted struct {
	*thread.State
	fetched atomic.Int32
}

func (c *counted) StateEntries(ctx context.Context, q store.StateQuery) (*store.StatePage, error) {
	c.fetched.Add(1)
	return c.State.StateEntries(ctx, q)
}

var _ = Describe("the scopes of state", func() {
	var db *sqlstore.Store
	var backend *counted
	var logging sync.Mutex // work continues concurrently
	var logs []string

	BeforeEach(func(ctx SpecContext) {
		var err error
		db, err = sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: GinkgoT().TempDir()})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		bucket, err := thread.OpenBucket(ctx, "file://"+GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(bucket.Close)
		svc := thread.NewService(thread.Options{Store: db, Blobs: bucket})
		_, _, err = svc.Create(ctx, thread.NewThread{Thread: store.Thread{ID: "t1", Namespace: "default", Name: "t1", Agent: "helper"}})
		Expect(err).NotTo(HaveOccurred())
		st, err := svc.Open(ctx, "t1")
		Expect(err).NotTo(HaveOccurred())
		backend, logs = &counted{State: st}, nil
	})
	session := func(edit ...func(*scopes.Options)) *scopes.Session {
		o := scopes.Options{ID: "sess_1", ThreadID: "t1", Backend: backend, Log: funcr.New(func(_, args string) {
			logging.Lock()
			defer logging.Unlock()
			logs = append(logs, args)
		}, funcr.Options{})}
		for _, fn := range edit {
			fn(&o)
		}
		return scopes.New(o)
	}
	// save stores what a session has changed, as the engine does.
	save := func(ctx context.Context, s *scopes.Session, final bool) *scopes.Save {
		GinkgoHelper()
		v := s.Save(final)
		if len(v.Ops) > 0 {
			Expect(db.Apply(ctx, "t1", nil, v.Ops...)).To(Succeed())
		}
		v.Done()
		return v
	}
	// stored returns what others see, as one object.
	stored := func(ctx context.Context) string {
		GinkgoHelper()
		page, err := backend.State.StateEntries(ctx, store.StateQuery{})
		Expect(err).NotTo(HaveOccurred())
		object := map[string]json.RawMessage{}
		for _, e := range page.Entries {
			object[e.Key] = e.Value
		}
		data, err := json.Marshal(object)
		Expect(err).NotTo(HaveOccurred())
		return string(data)
	}
	skipped := func(ctx context.Context) (all []store.StateSkipped) {
		GinkgoHelper()
		events, err := db.LogEntries(ctx, "t1", 0, 0, store.EventStateSkipped)
		Expect(err).NotTo(HaveOccurred())
		for _, e := range events {
			var s store.StateSkipped
			Expect(json.Unmarshal(e.Data, &s)).To(Succeed())
			all = append(all, s)
		}
		return all
	}
	tooLarge := strings.Repeat("x", thread.MaxStateBytes)

	It("fetches the state of the thread once, at the first read", Label("STA-02", "STA-03"), func(ctx SpecContext) {
		first := session().Thread.State
		Expect(first.Loaded()).To(BeFalse())
		Expect(backend.fetched.Load()).To(BeZero(), "nothing before the first read")
		Expect(first.Has(ctx, "a")).To(BeFalse())
		Expect(first.Loaded()).To(BeTrue())
		first.Set(ctx, "a", 1)
		first.Set(ctx, "b", 2)
		Expect(first.Dirty()).To(BeTrue())
		Expect(first.Keys(ctx)).To(Equal([]string{"a", "b"}))
		Expect(first.Values(ctx)).To(Equal([]any{1, 2}))
		Expect(first.Entries(ctx)).To(Equal([]scopes.Entry{{Key: "a", Value: 1}, {Key: "b", Value: 2}}))
		Expect(first.Size(ctx)).To(Equal(2))
		Expect(backend.fetched.Load()).To(BeEquivalentTo(1))
	})

	It("merges writes without a fetch with what others wrote meanwhile", Label("STA-03"), func(ctx SpecContext) {
		before := session()
		before.Thread.State.Set(ctx, "list", []any{1})
		before.Thread.State.Set(ctx, "old", true)
		before.Thread.State.Set(ctx, "kept", "mine")
		save(ctx, before, true)
		s := session()
		s.Thread.State.Set(ctx, "new", "n")
		s.Thread.State.Delete("old")
		Expect(s.Thread.State.Push(ctx, "list", 2, 0)).To(Succeed())
		other := session()
		other.Thread.State.Set(ctx, "kept", "theirs")
		Expect(other.Thread.State.Push(ctx, "list", "other", 0)).To(Succeed())
		save(ctx, other, true)
		save(ctx, s, true)
		Expect(stored(ctx)).To(MatchJSON(`{"list":[1,"other",2],"kept":"theirs","new":"n"}`))
		Expect(s.Thread.State.Dirty()).To(BeFalse())
		Expect(s.Save(true).Empty()).To(BeTrue(), "stored values are not stored again")
		s.Thread.State.Clear()
		s.Thread.State.Set(ctx, "only", 1)
		save(ctx, s, true)
		Expect(stored(ctx)).To(MatchJSON(`{"only":1}`))
		Expect(backend.fetched.Load()).To(BeZero())
		Expect(s.Thread.State.Loaded()).To(BeFalse())
	})

	It("reads its own writes over what is stored", Label("STA-03"), func(ctx SpecContext) {
		before := session()
		before.Thread.State.Set(ctx, "list", []any{"a"})
		before.Thread.State.Set(ctx, "gone", 1)
		save(ctx, before, true)
		s := session().Thread.State
		s.Delete("gone")
		Expect(s.Push(ctx, "list", "b", 0)).To(Succeed())
		value, ok, err := s.Get(ctx, "list")
		Expect(err).NotTo(HaveOccurred())
		Expect(ok).To(BeTrue())
		Expect(value).To(Equal([]any{"a", "b"}))
		Expect(s.Keys(ctx)).To(Equal([]string{"list"}))
	})

	It("keeps the last max entries of a push, and refuses a push to a value that is not an array", Label("STA-04"), func(ctx SpecContext) {
		s := session()
		for i := range 5 {
			Expect(s.Thread.State.Push(ctx, "unread", i, 3)).To(Succeed())
			Expect(s.State.Push(ctx, "session", i, 2)).To(Succeed())
		}
		list, _ := s.State.Get("session")
		Expect(list).To(Equal([]any{3, 4}))
		s.State.Set(ctx, "text", "t")
		Expect(s.State.Push(ctx, "text", 1, 0)).To(MatchError(store.ErrNotArray))
		s.Thread.State.Set(ctx, "text", "t")
		Expect(s.Thread.State.Push(ctx, "text", 1, 0)).To(MatchError(store.ErrNotArray), "it is known without fetching")
		save(ctx, s, true)
		Expect(stored(ctx)).To(MatchJSON(`{"unread":[2,3,4],"text":"t"}`))

		blind := session()
		Expect(blind.Thread.State.Push(ctx, "text", 1, 0)).To(Succeed(), "it cannot be known yet")
		blind.Thread.State.Set(ctx, "more", 1)
		save(ctx, blind, true)
		Expect(stored(ctx)).To(MatchJSON(`{"unread":[2,3,4],"text":"t","more":1}`))
		Expect(skipped(ctx)).To(ConsistOf(And(HaveField("Reason", store.StateNotArray), HaveField("Key", "text"))))
		Expect(backend.fetched.Load()).To(BeZero())
		reader := session().Thread.State
		Expect(reader.Has(ctx, "text")).To(BeTrue())
		Expect(reader.Push(ctx, "text", 1, 0)).To(MatchError(store.ErrNotArray))
	})

	It("saves what it can without waiting when the memory of the namespace is used up", Label("STA-05", "K8S-12"), func(ctx SpecContext) {
		budget := membudget.New(4<<20, time.Minute)
		s := session(func(o *scopes.Options) { o.Memory = budget.Open("default") })
		s.Thread.State.Set(ctx, "seen", 1.0)
		others := budget.Open("default")
		DeferCleanup(others.Close)
		for others.TryDraw(64<<10) == nil {
		}
		for others.TryDraw(1) == nil {
		}
		save(ctx, s, false)
		Expect(stored(ctx)).To(MatchJSON(`{"seen":1}`))
	})

	It("does not save values that are too large, and reports them at the end", Label("STA-05"), func(ctx SpecContext) {
		s := session()
		s.Thread.State.Set(ctx, "big", tooLarge)
		s.State.Set(ctx, "big", tooLarge)
		Expect(save(ctx, s, false).State).To(BeNil())
		Expect(skipped(ctx)).To(BeEmpty(), "it may still become smaller")
		Expect(s.Thread.State.Dirty()).To(BeTrue())
		Expect(save(ctx, s, true).State).To(BeNil())
		Expect(stored(ctx)).To(MatchJSON(`{}`))
		large := func(scope store.StateScope) OmegaMatcher {
			return And(HaveField("Scope", scope), HaveField("Reason", store.ReasonStateTooLarge), HaveField("Bytes", BeNumerically(">", thread.MaxStateBytes)), HaveField("Limit", BeEquivalentTo(thread.MaxStateBytes)))
		}
		Expect(skipped(ctx)).To(ConsistOf(large(store.ScopeThread), large(store.ScopeSession)))
	})

	It("saves values that are small enough again by the end", Label("STA-05"), func(ctx SpecContext) {
		s := session()
		s.Thread.State.Set(ctx, "big", tooLarge)
		s.State.Set(ctx, "big", tooLarge)
		save(ctx, s, false)
		s.Thread.State.Set(ctx, "big", "small")
		s.State.Set(ctx, "big", "small")
		Expect(string(save(ctx, s, true).State)).To(MatchJSON(`{"big":"small"}`))
		Expect(stored(ctx)).To(MatchJSON(`{"big":"small"}`))
		Expect(skipped(ctx)).To(BeEmpty())
	})

	It("leaves out values that cannot be serialised", Label("STA-05"), func(ctx SpecContext) {
		s := session()
		for _, set := range []func(context.Context, string, any){s.Thread.State.Set, s.State.Set} {
			set(ctx, "fn", func() {})
			set(ctx, "ok", 1)
		}
		Expect(string(save(ctx, s, true).State)).To(MatchJSON(`{"ok":1}`))
		Expect(stored(ctx)).To(MatchJSON(`{"ok":1}`))
		Expect(skipped(ctx)).To(ConsistOf(
			And(HaveField("Scope", store.ScopeThread), HaveField("Key", "fn"), HaveField("Reason", store.StateNotSerializable)),
			And(HaveField("Scope", store.ScopeSession), HaveField("Key", "fn"), HaveField("Reason", store.StateNotSerializable))))
	})

	It("reports each value that cannot be serialised once, also with saves before the end", Label("STA-05"), func(ctx SpecContext) {
		s := session()
		s.State.Set(ctx, "fn", func() {})
		s.Skip(store.ScopeThread, "loop", "it contains itself")
		save(ctx, s, false)
		s.State.Set(ctx, "more", 1)
		Expect(string(save(ctx, s, false).State)).To(MatchJSON(`{"more":1}`))
		Expect(save(ctx, s, true).Ops).To(BeEmpty())
		Expect(skipped(ctx)).To(ConsistOf(
			And(HaveField("Scope", store.ScopeThread), HaveField("Key", "loop"), HaveField("Message", HaveSuffix("was skipped: it contains itself"))),
			And(HaveField("Scope", store.ScopeSession), HaveField("Key", "fn"))))
	})

	It("restores the state of a session, and has separate state for each request", Label("STA-01"), func(ctx SpecContext) {
		s := session()
		s.State.Set(ctx, "z", 1)
		s.State.Set(ctx, "a", "text")
		again := session()
		Expect(again.Restore(ctx, save(ctx, s, false).State)).To(Succeed())
		Expect(again.State.Entries()).To(Equal([]scopes.Entry{{Key: "z", Value: 1.0}, {Key: "a", Value: "text"}}))
		Expect(again.Save(false).Empty()).To(BeTrue())
		Expect(again.Restore(ctx, []byte("[1]"))).To(MatchError(ContainSubstring("damaged")))
		one := s.Request()
		one.Set(ctx, "k", 1)
		Expect(s.Request().Has("k")).To(BeFalse())
		Expect(one.Delete("k")).To(BeTrue())
		Expect(one.Delete("k")).To(BeFalse())
		Expect(one.Size()).To(BeZero())
	})

	It("waits for work that continues after the response, and saves its writes", Label("STA-06"), func(ctx SpecContext) {
		s := session()
		release := make(chan struct{})
		s.WaitUntil(ctx, func(ctx context.Context) error {
			<-release
			s.Thread.State.Set(ctx, "late", true)
			s.WaitUntil(ctx, func(context.Context) error { s.State.Set(ctx, "later", true); return nil })
			return errors.New("in the end it failed")
		})
		s.WaitUntil(ctx, func(context.Context) error { panic("oh") })
		Expect(s.Working()).To(BeTrue())
		impatient, cancel := context.WithTimeoutCause(ctx, time.Millisecond, errors.New("no more time"))
		defer cancel()
		Expect(s.Wait(impatient)).To(MatchError("no more time"))
		close(release)
		Expect(s.Wait(ctx)).To(Succeed())
		Expect(s.Working()).To(BeFalse())
		Expect(string(save(ctx, s, true).State)).To(MatchJSON(`{"later":true}`))
		Expect(stored(ctx)).To(MatchJSON(`{"late":true}`))
		Expect(logs).To(ConsistOf(ContainSubstring("in the end it failed"), ContainSubstring("panic: oh")))
	}, SpecTimeout(20*time.Second))

	It("calls listeners once, in order, at the end and at the destruction", Label("STA-06"), func(ctx SpecContext) {
		var heard []string
		refuse := errors.New("not now")
		s := session(func(o *scopes.Options) { o.Destroy = func(context.Context) error { return refuse } })
		for i := range 2 {
			s.OnCompleted(func(_ context.Context, s *scopes.Session) {
				heard = append(heard, fmt.Sprint("completed ", s.ID, " ", i))
			})
			s.Thread.OnDestroyed(func(_ context.Context, t *scopes.Thread) {
				heard = append(heard, fmt.Sprint("destroyed ", t.ID, " ", i))
			})
		}
		s.Thread.State.Set(ctx, "pending", 1)
		Expect(s.Thread.Destroy(ctx)).To(MatchError(refuse))
		Expect(heard).To(BeEmpty())
		Expect(s.Thread.State.Dirty()).To(BeTrue())
		refuse = nil
		Expect(s.Thread.Destroy(ctx)).To(Succeed())
		Expect(s.Thread.State.Dirty()).To(BeFalse(), "values that were not stored are gone too")
		s.Complete(ctx)
		s.Complete(ctx)
		Expect(s.Thread.Destroy(ctx)).To(Succeed())
		Expect(heard).To(Equal([]string{"destroyed t1 0", "destroyed t1 1", "completed sess_1 0", "completed sess_1 1"}))
		Expect(session().Thread.Destroy(ctx)).To(MatchError(ContainSubstring("cannot be destroyed from here")))
	})
})
