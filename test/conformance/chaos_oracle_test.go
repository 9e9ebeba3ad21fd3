package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
)

// failings looks whether messages were answered, tools called, effects fired, and values and decisions kept as clients were told.
func (l *load) failings(ctx context.Context, p *problems, all map[string]*looked) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.called(p, all)
	for id, looked := range all {
		l.results(p, id, looked)
		l.answered(p, id, looked)
		l.noted(p, id, looked)
	}
	for text, o := range l.alone {
		if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		list, err := l.client().Firings(ctx, l.ns, o.Name, runtimeclient.FiringPage{})
		if err != nil {
			return err
		}
		l.fired(p, text, o, list.Firings)
	}
	for t, keys := range l.values {
		if all[t.id] == nil {
			continue
		}
		for _, key := range keys {
			if value, err := l.client().Thread(l.ns, t.id).Value(ctx, key); err != nil || string(value) != fmt.Sprintf("%q", key) {
				p.add("%s: the value %s is %s: %v", t.name, key, value, err)
			}
		}
	}
	return nil
}

// called looks at the requests that came to the tools: each of them was asked for, came under one key, which is that of a call in its
// conversation, and was not refused. What was approved came.
func (l *load) called(p *problems, all map[string]*looked) {
	for text, keys := range l.arrived {
		t := l.asked[text]
		// A thread that lost messages may have asked its model anew.
		if text != ring && len(keys) != 1 && (t == nil || t.living()) {
			p.add("the call %q came under %d keys: %v", text, len(keys), keys)
		}
		if approved, ok := l.decided[text]; ok && !approved {
			p.add("the call %q was refused, and made", text)
		}
		if t == nil && l.alone[text] == nil && text != ring {
			p.add("nobody asked for the call %q", text)
		}
		if t == nil || !t.living() || all[t.id] == nil {
			continue
		}
		own := keysOf(all[t.id], text)
		for key, n := range keys {
			if !own[key] {
				p.add("%s: the call %q came %d times under a key that no call in its conversation has: %s", t.name, text, n, key)
			}
		}
	}
	for text, approved := range l.decided {
		if t := l.asked[text]; approved && t != nil && t.living() && all[t.id] != nil && !all[t.id].endedWithParent() && len(l.arrived[text]) == 0 {
			p.add("%s: the call %q was approved, and not made", t.name, text)
		}
	}
}

// textOf returns the text of the call of a tool of the load, "" for another tool.
func textOf(c runtimev1.ToolCall) string {
	var args struct{ N string }
	if c.Name == "count" || c.Name == "careful" {
		_ = json.Unmarshal([]byte(c.Arguments), &args)
	}
	return args.N
}

// keysOf returns the idempotency keys of the calls in a conversation with a text.
func keysOf(l *looked, text string) map[string]bool {
	keys := map[string]bool{}
	for _, m := range l.said {
		for _, c := range m.ToolCalls {
			if textOf(c) == text {
				keys[tool.IdempotencyKey(l.record.ThreadID, c.ID)] = true
			}
		}
	}
	return keys
}

// results looks whether a thread has one result for each call of a tool, each of them of a call that came.
func (l *load) results(p *problems, id string, looked *looked) {
	name := looked.object.Name
	calls, of, results := map[string]string{}, map[string]string{}, map[string]int{}
	for _, m := range looked.said {
		for _, c := range m.ToolCalls {
			if text := textOf(c); text != "" {
				calls[c.ID], of[c.ID] = text, m.RunID
			}
		}
		text := calls[m.ToolCallID]
		if m.Role != runtimev1.RoleTool || text == "" {
			continue
		}
		if results[m.ToolCallID]++; results[m.ToolCallID] > 1 {
			p.add("%s: the call %q has %d results", name, text, results[m.ToolCallID])
		}
		approved, decided := l.decided[text]
		if m.ToolStatus != "success" {
			continue
		}
		if keys := l.arrived[text]; len(keys) == 0 {
			p.add("%s: the call %q has a result, and never came", name, text)
		} else if t := l.asked[text]; t != nil && t.id == id && keys[tool.IdempotencyKey(id, m.ToolCallID)] == 0 {
			p.add("%s: the call %q came under another key than its own: %v", name, text, keys)
		}
		if decided && !approved {
			p.add("%s: the call %q was refused, and succeeded", name, text)
		}
	}
	for call, text := range calls {
		if t := l.asked[text]; t != nil && t.id == id && t.living() && !looked.cutOff(of[call]) && results[call] == 0 {
			p.add("%s: the call %q of the run %s has no result, after the runs %+v", name, text, of[call], looked.runs)
		}
	}
}

// answered looks whether a thread has answered what it was sent, and nothing twice: an answer follows its last message, and between
// two answers there is something that the second one is about.
func (l *load) answered(p *problems, id string, looked *looked) {
	t := l.threads[id]
	if t == nil || !t.living() {
		return
	}
	open, answers := "", 0
	for _, m := range looked.said {
		child := m.Metadata["subagent_id"] != nil // tells of a child, and has the thread go on
		switch {
		case m.Silent && !child:
		case m.Role != runtimev1.RoleAssistant:
			answers = 0
			if sent := t.said[ptr.Deref(m.Content, "")]; m.Role == runtimev1.RoleUser && sent != nil && sent.queued {
				open = *m.Content
			}
		case len(m.ToolCalls) == 0:
			open = ""
			if answers++; answers > 1 {
				p.add("%s: %d answers follow each other: %s", t.name, answers, m.ID)
			}
		}
	}
	if open != "" && !unlucky(looked.runs) {
		p.add("%s: the message %q has no answer, after the runs %+v", t.name, open, looked.runs)
	}
}

// unlucky reports whether the last run of a thread did not succeed, so that what it was about has no answer.
func unlucky(runs []runtimev1.Run) bool {
	if len(runs) == 0 {
		return false
	}
	last := slices.MaxFunc(runs, func(a, b runtimev1.Run) int { return int(a.StartedAt - b.StartedAt) })
	return last.Status != runtimev1.RunSucceeded
}

// noted looks whether the effects of a thread that were due soon did their work once, and wait no more.
func (l *load) noted(p *problems, id string, looked *looked) {
	said := map[string]int{}
	for _, m := range looked.said {
		said[strings.TrimSpace(ptr.Deref(m.Content, ""))]++
	}
	for text, t := range l.soon {
		if t.id != id {
			continue
		}
		if n := said["once "+text]; n > 1 || n == 0 && t.living() && !looked.endedWithParent() {
			p.add("%s: the effect %s did its work %d times", t.name, text, n)
		}
		for _, e := range looked.effects {
			if strings.Contains(string(e.Args), `"`+text+`"`) {
				p.add("%s: the effect %s waits yet", t.name, text)
			}
		}
	}
}

// fired looks whether an effect without a thread fired once, at its due time, and called the tool under the key of that firing alone.
func (l *load) fired(p *problems, text string, o *skeinv1.ScheduledEffect, firings []runtimev1.Firing) {
	if len(firings) != 1 || o.Status.CompletionTime == nil {
		p.add("%s fired %d times, its phase is %s", o.Name, len(firings), o.Status.Phase)
		return
	}
	f := firings[0]
	if f.Due != o.Status.ScheduledAt {
		p.add("%s fired for %d, and was due at %d", o.Name, f.Due, o.Status.ScheduledAt)
	}
	key := firingKey(o, f.Due)
	l.attempted(p, o.Name, f, l.arrived[text][key])
	for other := range l.arrived[text] {
		if other != key {
			p.add("%s: a request came under another key than that of its firing: %s", o.Name, other)
		}
	}
}

// firingKey is the idempotency key of the tool that a firing calls.
func firingKey(o *skeinv1.ScheduledEffect, due int64) string {
	return tool.IdempotencyKey(string(o.UID), fmt.Sprintf("effect:%s:%d", o.UID, due))
}

// attempted looks whether a firing succeeded, and its attempts explain its requests.
func (l *load) attempted(p *problems, name string, f runtimev1.Firing, requests int) {
	if f.Status != "succeeded" {
		p.add("%s: its firing did not succeed: %+v", name, f)
	} else if requests == 0 {
		p.add("%s: its firing succeeded, and no request came: %+v", name, f)
	}
	if requests > f.Attempts {
		p.add("%s: %d requests came in the attempts of its firing: %+v", name, requests, f)
	}
}

// rung suspends the schedule, and expects that each of its due times has fired once, and that each firing called the tool under its own key.
func (l *load) rung(ctx context.Context) {
	GinkgoHelper()
	suspendNow(ctx, l.rings)
	list := (&storm{ns: l.ns}).firings(ctx, l.rings, true)
	Expect(l.rings.CreationTimestamp).NotTo(BeZero())
	l.fires = consecutive(l.rings, list)
	counted(ctx, l.rings, l.fires)
	var p problems
	l.locked(func() { l.ringing(&p, list.Firings) })
	Expect(p).To(BeEmpty())
}

// ringing looks whether the requests of the schedule are those of its firings.
func (l *load) ringing(p *problems, firings []runtimev1.Firing) {
	came := maps.Clone(l.arrived[ring])
	for _, f := range firings {
		key := firingKey(l.rings, f.Due)
		l.attempted(p, l.rings.Name, f, came[key])
		delete(came, key)
	}
	// The history has those that ended last. Those before them had keys of the same kind.
	for n := range l.fires {
		delete(came, firingKey(l.rings, l.rings.CreationTimestamp.Add(time.Duration(n+1)*time.Second).UnixMicro()))
	}
	for key, n := range came {
		p.add("%s: %d requests came under a key that no firing has: %s", l.rings.Name, n, key)
	}
}
