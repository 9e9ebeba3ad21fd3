package conformance

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
)

// healthy is a load on one thread as it must be in the end: two messages were answered, a call was made and another refused, an effect
// did its work, another fired without a thread, and a schedule fired twice.
func healthy() (l *load, t *tree, all map[string]*looked) {
	said := func(id, role, text string, edit ...func(*runtimev1.Message)) runtimev1.Message {
		m := runtimev1.Message{ID: id, Role: role, Content: ptr.To(text)}
		for _, f := range edit {
			f(&m)
		}
		return m
	}
	calls := func(name, id, text string) func(*runtimev1.Message) {
		return func(m *runtimev1.Message) {
			m.ToolCalls = []runtimev1.ToolCall{{ID: id, Name: name, Arguments: `{"n":"` + text + `"}`}}
		}
	}
	answers := func(call, status string) func(*runtimev1.Message) {
		return func(m *runtimev1.Message) { m.ToolCallID, m.ToolStatus = call, status }
	}
	silent := func(m *runtimev1.Message) { m.Silent = true }
	t = &tree{id: "t", name: "tree", kept: true, said: map[string]*words{
		"call m1": {queued: true, must: true}, "ask m2": {queued: true, must: true}, "m3": {queued: true, mayn: true}, "m4": {must: true},
	}, effects: []string{"m5"}}
	one := func(name string) *skeinv1.ScheduledEffect {
		return &skeinv1.ScheduledEffect{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.Unix(0, 0)},
			Status:     skeinv1.ScheduledEffectStatus{Phase: "Succeeded", ScheduledAt: 7, CompletionTime: ptr.To(metav1.Unix(1, 0))},
		}
	}
	l = &load{
		trees: &trees{threads: map[string]*tree{"t": t}},
		arrived: map[string]map[string]int{
			"call m1": {tool.IdempotencyKey("t", "c1"): 2}, "fire": {firingKey(one("fire"), 7): 1},
			ring: {firingKey(one("rings"), 1_000_000): 1, firingKey(one("rings"), 2_000_000): 1},
		},
		asked:   map[string]*tree{"call m1": t, "ask m2": t},
		decided: map[string]bool{"ask m2": false},
		soon:    map[string]*tree{"m6": t},
		alone:   map[string]*skeinv1.ScheduledEffect{"fire": one("fire")},
		rings:   one("rings"), fires: 2,
	}
	all = map[string]*looked{"t": {
		object: &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Name: "tree"}},
		record: &runtimev1.ThreadRecord{ThreadID: "t"},
		said: []runtimev1.Message{
			said("1", "user", "call m1"), said("2", "assistant", "", calls("count", "c1", "call m1")), said("3", "tool", "{}", answers("c1", "success")), said("4", "assistant", "ok"),
			said("5", "user", "m4", silent), said("6", "system", "once m6", silent),
			said("7", "user", "ask m2"), said("8", "assistant", "", calls("careful", "c2", "ask m2")), said("9", "tool", "no", answers("c2", "error")), said("10", "assistant", "ok"),
		},
		effects: []runtimev1.Effect{{Args: []byte(`{"n":"m5"}`)}},
		runs:    []runtimev1.Run{{ID: "r1", StartedAt: 1, EndedAt: 2, Status: runtimev1.RunSucceeded}, {ID: "r2", StartedAt: 3, EndedAt: 4, Status: runtimev1.RunSucceeded}},
	}}
	return l, t, all
}

// judged is what the oracle says of a load.
func judged(l *load, all map[string]*looked, fired, rung []runtimev1.Firing) (p problems) {
	for id, looked := range all {
		l.compare(&p, id, looked)
		l.kinship(&p, looked, all)
		l.results(&p, id, looked)
		l.answered(&p, id, looked)
		l.noted(&p, id, looked)
	}
	l.told(&p, all)
	l.called(&p, all)
	l.fired(&p, "fire", l.alone["fire"], fired)
	l.ringing(&p, rung)
	return p
}

// world is a load, and what is there in the end.
type world struct {
	*load
	tree  *tree
	seen  *looked
	all   map[string]*looked
	fired []runtimev1.Firing
	rung  []runtimev1.Firing
}

// endWithParent adds a terminated parent of the thread, and marks the thread as terminated for that reason.
func (w *world) endWithParent() {
	w.seen.record.ParentID = "parent"
	w.seen.record.Terminated, w.seen.record.TerminatedReason = ptr.To[int64](2), skeinv1.ReasonParentTerminated
	w.all["parent"] = &looked{
		object: &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Name: "parent"}},
		record: &runtimev1.ThreadRecord{ThreadID: "parent", Terminated: ptr.To[int64](1), TerminatedReason: skeinv1.ReasonTerminatedByRequest},
	}
	w.threads["parent"] = &tree{id: "parent", name: "parent", terminated: true, asked: true}
}

// TestChaosSees breaks what the oracle of chaos looks at, one thing at a time.
func TestChaosSees(t *testing.T) {
	without := func(w *world, id string) {
		w.seen.said = slices.DeleteFunc(w.seen.said, func(m runtimev1.Message) bool { return m.ID == id })
	}
	again := func(w *world, n int, id string) {
		m := w.seen.said[n]
		m.ID = id
		w.seen.said = slices.Insert(w.seen.said, n+1, m)
	}
	for _, c := range []struct {
		says string // "" when all is well
		does func(*world)
	}{
		{"", func(*world) {}},
		{"", func(w *world) { // it answered once more, because a child told it something
			told := runtimev1.Message{ID: "4b", Role: "system", Content: ptr.To("done"), Silent: true, Metadata: map[string]any{"subagent_id": "child"}}
			answer := runtimev1.Message{ID: "4c", Role: "assistant", Content: ptr.To("ok")}
			w.seen.said = slices.Insert(w.seen.said, 4, told, answer)
		}},
		{"", func(w *world) { // the end of its parent cut a call off, and what was due
			w.endWithParent()
			without(w, "9")
			without(w, "10")
			without(w, "6")
			w.seen.said[len(w.seen.said)-1].RunID = "r2"
			w.seen.runs[1].Status = runtimev1.RunTerminated
		}},
		{`the call "call m1" of the run r1 has no result`, func(w *world) { // of a run before
			w.endWithParent()
			w.seen.said[1].RunID = "r1"
			without(w, "3")
		}},
		{"", func(w *world) { // a call that was approved, too
			w.endWithParent()
			without(w, "9")
			without(w, "10")
			w.seen.said[len(w.seen.said)-1].RunID = "r2"
			w.decided["ask m2"] = true
			w.seen.runs[1].Status = runtimev1.RunTerminated
		}},
		{`ended with its parent parent, which was not terminated`, func(w *world) { w.endWithParent(); w.all["parent"].record.Terminated = nil }},
		{`ended with its parent, and has none`, func(w *world) { w.endWithParent(); w.seen.record.ParentID = "" }},
		{`was terminated (TerminatedByRequest), and no client asked for it`, func(w *world) {
			w.seen.record.Terminated, w.seen.record.TerminatedReason = ptr.To[int64](1), skeinv1.ReasonTerminatedByRequest
		}},
		{`the message "call m1" is lost`, func(w *world) { without(w, "1") }},
		{`the message "m4" is lost`, func(w *world) { without(w, "5") }},
		{`the message "call m1" is there 2 times`, func(w *world) { again(w, 0, "1b") }},
		{`the message with the id 4 is there 2 times`, func(w *world) { again(w, 3, "4") }},
		{`the message "m3" was refused and is there`, func(w *world) { again(w, 0, "1b"); w.seen.said[1].Content = ptr.To("m3") }},
		{`2 answers follow each other`, func(w *world) { again(w, 3, "4b") }},
		{`the message "ask m2" has no answer`, func(w *world) { without(w, "10") }},
		{`1 messages wait`, func(w *world) { w.seen.waiting = 1 }},
		{`the run r2 is running`, func(w *world) { w.seen.runs[1].Status, w.seen.runs[1].EndedAt = runtimev1.RunRunning, 0 }},
		{`was terminated and is not`, func(w *world) { w.tree.terminated = true }},
		{`was deleted and is there`, func(w *world) { w.tree.deleted = true }},
		{`outlives its parent gone, which was deleted`, func(w *world) { w.seen.record.ParentID = "gone" }},
		{`has a relationship with gone, which is gone`, func(w *world) {
			w.seen.related = []runtimev1.Relationship{{ThreadID: "gone"}}
			w.seen.object.Status.RelationshipCount = 1
		}},
		{`the effect m5 is there 0 times`, func(w *world) { w.seen.effects = nil }},
		{`the effect m6 did its work 0 times`, func(w *world) { without(w, "6") }},
		{`the effect m6 did its work 2 times`, func(w *world) { again(w, 5, "6b") }},
		{`the effect m6 waits yet`, func(w *world) {
			w.seen.effects = append(w.seen.effects, runtimev1.Effect{Args: []byte(`{"n":"m6"}`)})
		}},
		{`the call "call m1" came under 2 keys`, func(w *world) { w.arrived["call m1"]["other"] = 1 }},
		{`under a key that no call in its conversation has: other`, func(w *world) { w.arrived["call m1"] = map[string]int{"other": 1} }},
		{`the call "call m1" has a result, and never came`, func(w *world) { delete(w.arrived, "call m1") }},
		{`the call "call m1" has 2 results`, func(w *world) { again(w, 2, "3b") }},
		{`the call "call m1" of the run  has no result`, func(w *world) { without(w, "3") }},
		{`nobody asked for the call "m9"`, func(w *world) { w.arrived["m9"] = map[string]int{"key": 1} }},
		{`the call "ask m2" was refused, and made`, func(w *world) { w.arrived["ask m2"] = map[string]int{tool.IdempotencyKey("t", "c2"): 1} }},
		{`the call "ask m2" was refused, and succeeded`, func(w *world) { w.seen.said[8].ToolStatus = "success" }},
		{`the call "ask m2" was approved, and not made`, func(w *world) { w.decided["ask m2"] = true }},
		{`fire fired 0 times`, func(w *world) { w.fired = nil }},
		{`fire fired 2 times`, func(w *world) { w.fired = append(w.fired, w.fired[0]) }},
		{`fire fired for 8, and was due at 7`, func(w *world) { w.fired[0].Due = 8 }},
		{`fire: its firing did not succeed`, func(w *world) { w.fired[0].Status = "failed" }},
		{`fire: its firing succeeded, and no request came`, func(w *world) { delete(w.arrived, "fire") }},
		{`fire: 2 requests came in the attempts of its firing`, func(w *world) { w.arrived["fire"][firingKey(w.alone["fire"], 7)] = 2 }},
		{`fire: a request came under another key than that of its firing: other`, func(w *world) { w.arrived["fire"]["other"] = 1 }},
		{`rings: its firing succeeded, and no request came`, func(w *world) { delete(w.arrived, ring) }},
		{`rings: 1 requests came under a key that no firing has: other`, func(w *world) { w.arrived[ring]["other"] = 1 }},
	} {
		t.Run(c.says, func(t *testing.T) {
			g := NewWithT(t)
			w := &world{fired: []runtimev1.Firing{{Due: 7, Status: "succeeded", Attempts: 1}}, rung: []runtimev1.Firing{
				{Due: 2_000_000, Status: "succeeded", Attempts: 1}, {Due: 1_000_000, Status: "succeeded", Attempts: 1}}}
			w.load, w.tree, w.all = healthy()
			w.seen = w.all["t"]
			c.does(w)
			found := judged(w.load, w.all, w.fired, w.rung)
			if c.says == "" {
				g.Expect(found).To(BeEmpty())
				return
			}
			g.Expect(found).To(ContainElement(ContainSubstring(c.says)))
		})
	}
}
