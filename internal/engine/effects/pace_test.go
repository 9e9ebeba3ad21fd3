package effects

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
)

// TestPace covers EFF-02: a firing that was recorded for a later moment begins then, and not when claims are renewed next, which is never here.
func TestPace(t *testing.T) {
	g := NewWithT(t)
	st, err := sqlitetest.Open(t.Context(), sqlstore.SQLiteOptions{Dir: t.TempDir()})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = st.Close() }()
	record := store.DueRecord{Schedule: store.EffectSchedule{EffectID: "e"}}
	for i := range int64(5) {
		at := time.Now().Add(time.Duration(i) * 100 * time.Millisecond).UnixMicro()
		record.Firings = append(record.Firings, store.Firing{EffectID: "e", Due: i, Namespace: "n", Target: toolTarget().Encode(), AvailableAt: at})
	}
	g.Expect(st.RecordDue(t.Context(), record)).To(Succeed())
	r := &slow{began: make(chan string, 5), end: make(chan struct{})}
	w := NewWorker(Options{
		Store: st, Runner: r, Clock: clock.RealClock{}, Log: logr.Discard(), Owner: "a", Workers: 10, ClaimTTL: time.Hour,
		Retry: Retry{Attempts: 3, First: time.Second}, Fault: func(string) {},
	})
	over := make(chan struct{})
	go func() { defer close(over); w.Run(t.Context()) }()
	for range 5 {
		g.Eventually(r.began, time.Minute).Should(Receive())
	}
	close(r.end)
	g.Eventually(func() (map[string]int64, error) { return st.PendingFirings(t.Context()) }, time.Minute).Should(BeEmpty())
}

// TestChanged expects that the end of one firing costs no renewal of the others, of which thousands may have the same effect.
func TestChanged(t *testing.T) {
	g := NewWithT(t)
	w, _ := newWorker(nil)
	key := func(effect, thread string) store.FiringKey {
		return store.FiringKey{EffectID: effect, Due: 1, ThreadID: thread}
	}
	a, b, other, ending := key("e", "a"), key("e", "b"), key("other", "a"), key("e", "ending")
	for _, k := range []store.FiringKey{a, b, other, ending} {
		w.running[k] = &claim{}
	}
	w.running[ending].end(true)
	suspected := func() []store.FiringKey { return slices.Collect(maps.Keys(w.takeSuspects())) }

	w.HandleChange("e", "gone")
	w.HandleChange("e", "ending")
	w.HandleChange("none", "a")
	g.Expect(suspected()).To(BeEmpty())
	g.Expect(w.check).NotTo(Receive())
	w.HandleChange("e", "b")
	g.Expect(w.check).To(Receive())
	g.Expect(suspected()).To(ConsistOf(b))
	g.Expect(suspected()).To(BeEmpty(), "it was asked about")
	w.HandleChange("e", "")
	g.Expect(suspected()).To(ConsistOf(a, b))
	w.HandleChange(store.AnyEffect, "")
	g.Expect(suspected()).To(ConsistOf(a, b, other))
}
