package thread_test

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("a writer", Label("THR-12"), func() {
	It("is exclusive, and cannot be used after its release", func(ctx SpecContext) {
		e := newEnv(ctx)
		e.create(ctx, "t")
		w, err := e.Acquire(ctx, "t", time.Minute)
		Expect(err).NotTo(HaveOccurred())
		_, err = e.Acquire(ctx, "t", time.Minute)
		Expect(err).To(MatchError(store.ErrLeaseHeld))
		st, err := w.State(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.SetValue(ctx, "k", json.RawMessage(`1`))).To(Succeed())

		for range 2 {
			Expect(w.Release(ctx)).To(Succeed())
		}
		_, err = w.State(ctx)
		Expect(err).To(MatchError(thread.ErrReleased))
		Expect(w.Renew(ctx, time.Minute)).To(MatchError(thread.ErrReleased))
		Expect(st.SetValue(ctx, "k", json.RawMessage(`2`))).To(MatchError(store.ErrFenced), "nor through values that it returned")
		Expect(e.open(ctx, "t").Value(ctx, "k")).To(MatchJSON(`1`))
		_, err = e.Acquire(ctx, "t", time.Minute)
		Expect(err).NotTo(HaveOccurred())
	})

	It("that was paused past its lease commits nothing once another has taken over", func(ctx SpecContext) {
		e := newEnv(ctx)
		e.create(ctx, "t")
		paused, err := e.Acquire(ctx, "t", time.Minute)
		Expect(err).NotTo(HaveOccurred())
		st, err := paused.State(ctx)
		Expect(err).NotTo(HaveOccurred())
		e.clock.Step(2 * time.Minute)
		Expect(st.SetValue(ctx, "k", json.RawMessage(`1`))).To(Succeed(), "nobody has taken over")
		next, err := e.Acquire(ctx, "t", time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(next.Epoch()).To(BeNumerically(">", paused.Epoch()))
		Expect(st.SetValue(ctx, "k", json.RawMessage(`2`))).To(MatchError(store.ErrFenced))
		Expect(paused.Renew(ctx, time.Minute)).To(MatchError(store.ErrFenced))
		Expect(paused.Release(ctx)).To(Succeed())
		_, err = e.Acquire(ctx, "t", time.Minute)
		Expect(err).To(MatchError(store.ErrLeaseHeld), "the old holder's release is not the new one's")
	})

	It("is identified by its token only", func(ctx SpecContext) {
		e := newEnv(ctx)
		e.create(ctx, "t")
		w, err := e.Acquire(ctx, "t", time.Minute)
		Expect(err).NotTo(HaveOccurred())
		same, err := e.WriterOf("t", w.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(same.Renew(ctx, time.Minute)).To(Succeed())
		for _, token := range []string{"", "x", "x.1", w.Token() + "x", w.Token()[1:]} {
			_, err := e.WriterOf("t", token)
			Expect(thread.IsInvalid(err)).To(BeTrue(), token)
		}
		for _, ttl := range []time.Duration{0, time.Millisecond, 2 * time.Hour} {
			_, err := e.Acquire(ctx, "t", ttl)
			Expect(thread.IsInvalid(err)).To(BeTrue(), ttl.String())
		}
		_, err = e.Acquire(ctx, "none", time.Minute)
		Expect(err).To(MatchError(store.ErrNotFound))
	})
})

var _ = Describe("the fields of a thread", Label("THR-14"), func() {
	It("are checked, changed together and removed by their zero values", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		Expect(st.Update(ctx, thread.ThreadUpdate{Title: ptr("T"), Draft: ptr("d"), MaxTokens: ptr(int64(5)), Tags: &[]string{"a"}})).To(Succeed())
		Expect(st.Update(ctx, thread.ThreadUpdate{Draft: ptr(""), Tags: &[]string{}})).To(Succeed())
		t, err := st.Info(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(t.Title).To(Equal("T"))
		Expect(t.Fields).To(Equal(store.Fields{MaxTokens: 5}))
		long := string(make([]byte, 2000))
		for _, u := range []thread.ThreadUpdate{
			{Title: &long}, {Title: ptr("a\x00b")}, {Draft: ptr(string([]byte{0xff}))}, {MaxTokens: ptr(int64(-1))}, {ExpectVersion: ptr(int64(-1))},
			{Trees: &[]json.RawMessage{json.RawMessage(`1`)}}, {Tags: &[]string{""}}, {Tags: ptr(make([]string, 101))},
		} {
			Expect(thread.IsInvalid(st.Update(ctx, u))).To(BeTrue(), "%+v", u)
		}
		Expect(st.Update(ctx, thread.ThreadUpdate{Draft: ptr("x"), ExpectVersion: ptr(int64(0))})).To(MatchError(store.ErrConflict))
	})

	It("record a skill once per name", Label("AGT-08"), func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		for i, args := range []string{`{"a":1}`, `{"a":2}`} {
			skill, recorded, err := st.ActivateSkill(ctx, "sql", json.RawMessage(args))
			Expect(err).NotTo(HaveOccurred())
			Expect(recorded).To(Equal(i == 0))
			Expect(skill.Arguments).To(MatchJSON(`{"a":1}`))
		}
		for _, bad := range []struct{ name, args string }{{"", ""}, {"x", "1"}, {"x", "{"}, {"a\x00", ""}} {
			_, _, err := st.ActivateSkill(ctx, bad.name, json.RawMessage(bad.args))
			Expect(thread.IsInvalid(err)).To(BeTrue(), "%+v", bad)
		}
	})
})

var _ = Describe("a request under an idempotency key", Label("MSG-10"), func() {
	once := func(st *thread.State, key, fingerprint string) *thread.State {
		GinkgoHelper()
		bound, err := st.Idempotent(key, func() string { return fingerprint })
		Expect(err).NotTo(HaveOccurred())
		return bound
	}

	It("that was interrupted between its writes continues where it was", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		work := func(st *thread.State, cutOff bool) error { // a request of two writes
			if _, err := st.Inject(ctx, thread.NewMessage{Content: ptr("first")}); err != nil {
				return err
			}
			if cutOff {
				return errors.New("the process died")
			}
			_, err := st.Inject(ctx, thread.NewMessage{Content: ptr("second")})
			return err
		}
		Expect(work(once(st, "k", "f"), true)).NotTo(Succeed())
		for range 2 {
			Expect(work(once(st, "k", "f"), false)).To(Succeed())
		}
		page, err := st.Messages(ctx, store.MessageQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).To(HaveLen(2))
		Expect(work(once(st, "k", "another"), false)).To(MatchError(store.ErrKeyReused))
	})

	It("gets the result of the first one", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		injected, err := once(st, "a", "f").Inject(ctx, thread.NewMessage{Content: ptr("x")})
		Expect(err).NotTo(HaveOccurred())
		queued, err := once(st, "b", "f").Queue(ctx, thread.NewMessage{Content: ptr("y")})
		Expect(err).NotTo(HaveOccurred())
		e.clock.Step(time.Hour)
		Expect(once(st, "a", "f").Inject(ctx, thread.NewMessage{Content: ptr("x")})).To(And(HaveField("ID", injected.ID), HaveField("CreatedAt", injected.CreatedAt)))
		Expect(once(st, "b", "f").Queue(ctx, thread.NewMessage{Content: ptr("y")})).To(And(HaveField("ID", queued.ID), HaveField("CreatedAt", queued.CreatedAt)))
		deleted, err := once(st, "c", "f").DeleteMessage(ctx, injected.ID)
		Expect(err).NotTo(HaveOccurred())
		Expect(deleted).To(BeTrue())
		Expect(once(st, "c", "f").DeleteMessage(ctx, injected.ID)).To(BeTrue(), "as it was then")
	})

	It("is remembered for seven days", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		say := func() {
			_, err := once(st, "k", "f").Inject(ctx, thread.NewMessage{Content: ptr("x")})
			Expect(err).NotTo(HaveOccurred())
		}
		say()
		e.clock.Step(7*24*time.Hour - time.Second)
		Expect(e.SweepKeys(ctx)).To(BeZero())
		say()
		Expect(messages(ctx, st)).To(Equal(1))
		e.clock.Step(2 * time.Second)
		Expect(e.SweepKeys(ctx)).To(Equal(int64(1)))
		say()
		Expect(messages(ctx, st)).To(Equal(2))
	})
})

func messages(ctx context.Context, st *thread.State) int {
	GinkgoHelper()
	page, err := st.Messages(ctx, store.MessageQuery{})
	Expect(err).NotTo(HaveOccurred())
	return len(page.Messages)
}
