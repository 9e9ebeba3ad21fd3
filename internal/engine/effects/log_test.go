package effects

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
)

// TestLogLines covers K8S-06: a line about a firing names its ScheduledEffect, and its thread by the keys of all lines about threads.
func TestLogLines(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(noon)
	st, err := sqlitetest.Open(t.Context(), sqlstore.SQLiteOptions{Dir: t.TempDir(), Clock: clock})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = st.Close() })
	var lines []map[string]any
	log := funcr.NewJSON(func(line string) {
		var l map[string]any
		g.Expect(json.Unmarshal([]byte(line), &l)).To(Succeed())
		lines = append(lines, l)
	}, funcr.Options{})
	r := &runner{err: errors.New("lost")}
	w := NewWorker(Options{Store: st, Runner: r, Clock: clock, Log: log, Owner: "a", Workers: 1, ClaimTTL: time.Hour, Retry: Retry{Attempts: 3, First: time.Second}, Fault: func(string) {}})
	_, _, err = st.CreateThread(t.Context(), store.Thread{ID: "t", Namespace: "n", Name: "orders", Agent: "a"})
	g.Expect(err).NotTo(HaveOccurred())
	for _, thread := range []string{"t", ""} {
		lines = nil
		f := store.Firing{EffectID: "e" + thread, Due: noon.UnixMicro(), ThreadID: thread, Namespace: "n", Name: "remind", Target: toolTarget().Encode()}
		g.Expect(st.RecordFiring(t.Context(), f)).To(BeTrue())
		claimed, err := st.ClaimFirings(t.Context(), "a", time.Hour, map[string]int{"n": 1})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(claimed).To(HaveLen(1))
		w.fire(t.Context(), &claimed[0], &claim{epoch: claimed[0].Epoch})
		g.Expect(lines).To(HaveLen(1))
		g.Expect(lines[0]).To(And(HaveKeyWithValue("msg", "effect will be tried again"), HaveKeyWithValue("namespace", "n"), HaveKeyWithValue("scheduledEffect", "remind")))
		if thread == "" {
			g.Expect(lines[0]).NotTo(Or(HaveKey("name"), HaveKey("thread")))
		} else {
			g.Expect(lines[0]).To(And(HaveKeyWithValue("name", "orders"), HaveKeyWithValue("thread", "t")))
		}
	}
}
