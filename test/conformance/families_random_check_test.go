package conformance

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// problems are what is not as it must be, in sentences.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// settle waits until the threads are as they must be.
func (w *trees) settle(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, w.problems).WithTimeout(w.patience).WithPolling(500 * time.Millisecond).Should(BeEmpty())
	var threads skeinv1.ThreadList
	Expect(cluster.Client.List(ctx, &threads, client.InNamespace(w.ns))).To(Succeed())
	AddReportEntry("threads in the end", len(threads.Items))
	GinkgoWriter.Printf("trees: %d threads are left\n", len(threads.Items))
}

// clear deletes the threads, and waits until nothing is left of them. rows also returns what is left outside of the cluster.
func (w *trees) clear(ctx context.Context, rows func(context.Context) []string) {
	GinkgoHelper()
	Eventually(ctx, func() error { // an API server ends a request after a minute
		return cluster.Client.DeleteAllOf(ctx, &skeinv1.Thread{}, client.InNamespace(w.ns))
	}).WithTimeout(w.patience).Should(Succeed())
	Eventually(ctx, func(ctx context.Context) (p problems, err error) {
		for _, l := range []client.ObjectList{&skeinv1.ThreadList{}, &skeinv1.SubagentList{}, &skeinv1.ScheduledEffectList{}} {
			if err := cluster.Client.List(ctx, l, client.InNamespace(w.ns)); err != nil {
				return nil, err
			}
			for _, o := range objectsOf(l) {
				if s, ok := o.(*skeinv1.Subagent); !ok || len(s.OwnerReferences) > 0 {
					p.add("%T %s is left", o, o.GetName())
				}
			}
		}
		return append(p, rows(ctx)...), nil
	}).WithTimeout(w.patience).Should(BeEmpty())
}

func objectsOf(l client.ObjectList) (out []client.Object) {
	switch l := l.(type) {
	case *skeinv1.ThreadList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	case *skeinv1.SubagentList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	case *skeinv1.ScheduledEffectList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	}
	return out
}

func (w *trees) problems(ctx context.Context) (p problems, err error) {
	if w.before != nil {
		w.before(ctx)
	}
	var threads skeinv1.ThreadList
	var subs skeinv1.SubagentList
	var effects skeinv1.ScheduledEffectList
	for _, l := range []client.ObjectList{&threads, &subs, &effects} {
		if err := cluster.Client.List(ctx, l, client.InNamespace(w.ns)); err != nil {
			return nil, err
		}
	}
	var all map[string]*looked
	owners := map[string]bool{}
	for i := range threads.Items {
		o := &threads.Items[i]
		ready := meta.IsStatusConditionTrue(o.Status.Conditions, skeinv1.ConditionReady)
		if !o.DeletionTimestamp.IsZero() || !ready && o.Status.TerminatedAt == 0 {
			if !o.DeletionTimestamp.IsZero() || !w.hopeless(o, threads.Items, subs.Items) {
				p.add("thread %s is not ready, or being deleted since %v: %+v", o.Name, o.DeletionTimestamp, o.Status.Conditions)
			}
			continue
		}
		owners[string(o.UID)] = true
	}
	if len(p) > 0 {
		return p, nil
	}
	if all, err = w.lookAtAll(ctx, threads.Items, owners); err != nil {
		return nil, err
	}
	for _, o := range effects.Items {
		if o.Spec.ThreadRef == nil {
			continue // it has no owner, so no thread deletes it
		}
		if c := metav1.GetControllerOf(&o); c == nil || !owners[string(c.UID)] {
			p.add("the effect %s is left over", o.Name)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	titles := map[string]int{}
	for id, l := range all {
		// Each request for a fork, a handoff or a rerun gave a title of its own.
		if title := l.record.Title; title != "" && l.record.ParentID == "" {
			if titles[title]++; titles[title] > 1 {
				p.add("%s has the title %q, and another one, too", l.object.Name, title)
			}
		}
		w.compare(&p, id, l)
		w.kinship(&p, l, all)
		registry(&p, l, subs.Items, all)
	}
	w.told(&p, all)
	if len(p) == 0 {
		err = w.gone(ctx, &p, all)
	}
	if err == nil && w.more != nil {
		err = w.more(ctx, &p, all)
	}
	slices.Sort(p)
	return p[:min(len(p), 40)], err
}

// hopeless reports whether a thread can never be stored: it is to be a fork of what is not there any more, or the child of a parent
// that was deleted without it before it was stored.
func (w *trees) hopeless(o *skeinv1.Thread, threads []skeinv1.Thread, subs []skeinv1.Subagent) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if from := o.Spec.ForkFrom; from != nil {
		for _, t := range w.threads {
			if t.name == from.ThreadRef.Name {
				return t.cut > 0 || !slices.ContainsFunc(threads, func(o skeinv1.Thread) bool { return o.Name == t.name })
			}
		}
	}
	return slices.ContainsFunc(subs, func(s skeinv1.Subagent) bool { return metav1.IsControlledBy(o, &s) && len(s.OwnerReferences) == 0 })
}

var unique = regexp.MustCompile(`\bm\d+\b`)

// compare looks whether a thread is what clients made of it.
func (w *trees) compare(p *problems, id string, l *looked) {
	name := l.object.Name
	for _, r := range l.runs {
		if !r.Ended() {
			p.add("%s: the run %s is %s", name, r.ID, r.Status)
		}
	}
	ended := l.record.Terminated != nil
	if l.waiting > 0 && !ended {
		p.add("%s: %d messages wait", name, l.waiting)
	}
	have := map[string]int{}
	ids := map[string]int{}
	for _, m := range l.said {
		ids[m.ID]++
		if m.Role == runtimev1.RoleUser && m.Content != nil && unique.MatchString(*m.Content) {
			have[*m.Content]++
		}
	}
	for text, n := range have {
		if n > 1 && !strings.HasPrefix(text, "[subagent ") {
			p.add("%s: the message %q is there %d times", name, text, n)
		}
	}
	for m, n := range ids {
		if n > 1 {
			p.add("%s: the message with the id %s is there %d times", name, m, n)
		}
	}
	t := w.threads[id]
	if t == nil {
		return
	}
	if t.deleted {
		p.add("%s was deleted and is there", name)
	}
	if t.terminated && !ended {
		p.add("%s was terminated and is not", name)
	}
	for text, m := range t.said {
		if n := have[text]; m.must && n == 0 && (!m.queued || !ended) {
			p.add("%s: the message %q is lost", name, text)
		} else if m.mayn && n > 0 {
			p.add("%s: the message %q was refused and is there", name, text)
		}
	}
	if said := texts(l.said); len(said) < len(t.begins) || !slices.Equal(said[:len(t.begins)], t.begins) {
		p.add("%s: it was forked with %q and has %q", name, t.begins, said)
	}
	for _, text := range t.effects {
		n := 0
		for _, e := range l.effects {
			if strings.Contains(string(e.Args), `"`+text+`"`) {
				n++
			}
		}
		if n > 1 || n == 0 && !ended {
			p.add("%s: the effect %s is there %d times", name, text, n)
		}
	}
}

// kinship looks whether a thread has the end of its parent, and whether the other end of each relationship agrees.
func (w *trees) kinship(p *problems, l *looked, all map[string]*looked) {
	name, id := l.object.Name, l.record.ThreadID
	ended := l.record.Terminated != nil
	if parent := l.record.ParentID; parent != "" {
		known := w.threads[parent]
		switch up := all[parent]; {
		case up != nil && up.record.Terminated != nil && !ended:
			p.add("%s outlives its parent %s, which was terminated", name, up.object.Name)
		case up == nil && (known == nil || !known.orphaned):
			p.add("%s outlives its parent %s, which was deleted", name, parent)
		case up == nil && known.ended && !ended:
			p.add("%s outlives its parent %s, which was terminated, and then deleted without it", name, known.name)
		case up != nil && up.record.Terminated == nil && l.endedWithParent():
			p.add("%s ended with its parent %s, which was not terminated", name, up.object.Name)
		}
	} else if l.endedWithParent() {
		p.add("%s ended with its parent, and has none", name)
	}
	if t := w.threads[id]; ended && l.record.TerminatedReason != skeinv1.ReasonSessionEnded && !l.endedWithParent() && (t == nil || !t.asked) {
		p.add("%s was terminated (%s), and no client asked for it", name, l.record.TerminatedReason)
	}
	for _, r := range l.related {
		other := all[r.ThreadID]
		if other == nil {
			p.add("%s has a relationship with %s, which is gone: %+v", name, r.ThreadID, r)
			continue
		}
		if !slices.ContainsFunc(other.related, func(o runtimev1.Relationship) bool { return same(o, mirrored(r, id)) }) {
			p.add("%s has %+v, and %s does not: %+v", name, r, other.object.Name, other.related)
		}
	}
	if n := l.object.Status.RelationshipCount; n != int64(len(l.related)) {
		p.add("%s: its status says %d relationships of %d", name, n, len(l.related))
	}
}

func same(a, b runtimev1.Relationship) bool {
	index := func(r runtimev1.Relationship) int64 {
		if r.MessageIndex == nil {
			return -1
		}
		return *r.MessageIndex
	}
	i, j := index(a), index(b)
	a.MessageIndex, b.MessageIndex = nil, nil
	return a == b && i == j
}

// registry looks whether the children that a thread lists are those that it has, and as they are.
func registry(p *problems, l *looked, subs []skeinv1.Subagent, all map[string]*looked) {
	name, counts, n := l.object.Name, skeinv1.ChildCounts{}, 0
	titles := map[string]int{}
	var shown []skeinv1.Subagent
	for _, s := range subs {
		if !metav1.IsControlledBy(&s, l.object) {
			continue
		}
		n++
		shown = append(shown, s)
		if !s.DeletionTimestamp.IsZero() {
			p.add("the subagent %s is being deleted", s.Name)
		}
		c, ok := l.children[s.Name]
		if !ok {
			p.add("%s does not list its child %s: %+v", name, s.Name, s.Status)
			continue
		}
		switch c.Status {
		case "completed":
			counts.Completed++
		case "failed":
			counts.Failed++
		case "terminated":
			counts.Terminated++
		case "pending":
			counts.Pending++
		default:
			counts.Running++
		}
		if s.Spec.Title != "" {
			titles[s.Spec.Title]++
		}
		child := all[c.ThreadID]
		if over := child == nil || child.record.Terminated != nil; over && (c.Status == "running" || c.Status == "pending") {
			p.add("%s lists its child %s (thread %s) as %s, which has ended; thread: %+v; its Subagent says %+v %+v", name, s.Name, c.ThreadID, c.Status, child, s.Status.Entry, s.Status.Conditions)
		}
		if child != nil && child.record.ParentID != l.record.ThreadID {
			p.add("%s lists the child %s, whose parent is %q", name, s.Name, child.record.ParentID)
		}
	}
	for title, n := range titles {
		if n > 1 {
			p.add("%s has %d children for the message %q", name, n, title)
		}
	}
	if len(l.children) != n || int(l.object.Status.ChildCount) != n {
		p.add("%s has %d children, lists %d, and its status says %d", name, n, len(l.children), l.object.Status.ChildCount)
	}
	if want, said := entriesOf(shown), l.object.Status.Children; !slices.Equal(said, want) {
		p.add("%s: its status lists the children %+v, and they are %+v", name, said, want)
	}
	if said := l.object.Status.ChildCounts; n > 0 && (said == nil || *said != counts) {
		p.add("%s has the children %+v, and its status says %+v", name, counts, said)
	}
}

// entriesOf returns the entries of Subagents in the order of a status: those that have not finished first, then the newest. They fit into
// one in number and size.
func entriesOf(subs []skeinv1.Subagent) (entries []skeinv1.ChildStatus) {
	finished := func(s skeinv1.Subagent) int {
		if s.Status.Entry != nil && slices.Contains([]string{"completed", "failed", "terminated"}, s.Status.Entry.Status) {
			return 1
		}
		return 0
	}
	slices.SortFunc(subs, func(a, b skeinv1.Subagent) int {
		return cmp.Or(finished(a)-finished(b), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for _, s := range subs {
		if s.Status.Entry == nil {
			entries = append(entries, skeinv1.ChildStatus{Reference: s.Name}) // which no status has
			continue
		}
		entries = append(entries, *s.Status.Entry)
	}
	return entries
}

// gone looks for what must not be there any more, for what must be, and at the files.
func (w *trees) gone(ctx context.Context, p *problems, all map[string]*looked) error {
	for id, t := range w.threads {
		if all[id] == nil {
			if t.kept && !t.deleted {
				p.add("%s is lost", t.name)
			}
			if _, err := w.client().Lookup(ctx, id); !apierrors.IsNotFound(err) {
				p.add("%s was deleted, and can be looked up: %v", t.name, err)
			}
			continue
		}
		for _, text := range t.files {
			r, err := w.client().Thread(w.ns, id).ReadFile(ctx, "/"+text)
			if err != nil {
				p.add("%s: the file %s: %v", t.name, text, err)
				continue
			}
			if content, err := io.ReadAll(r); err != nil || string(content) != strings.Repeat(text, w.bulk) {
				p.add("%s: the file %s has %d bytes: %v", t.name, text, len(content), err)
			}
			_ = r.Close()
		}
	}
	retained, err := w.client().Retained(ctx, w.ns, "", 1000)
	if err != nil {
		return err
	}
	for _, r := range retained.Threads {
		p.add("%s is retained", r.Name)
	}
	listed, err := w.client().History(ctx, w.ns, runtimeclient.HistoryOptions{Limit: 1000, Archived: "all"})
	if err != nil {
		return err
	}
	if len(listed.Items) != len(all) {
		p.add("the history has %d threads of %d", len(listed.Items), len(all))
	}
	return nil
}
