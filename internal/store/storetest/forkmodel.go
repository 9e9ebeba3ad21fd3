package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/skein-dev/skein/internal/store"
)

func describeForkModel(e *env) {
	Describe("any sequence of forks and edits", func() {
		It("leaves the state that copies would have", Label("REL-02", "MSG-11"), func(ctx SpecContext) {
			round := 0
			rapid.Check(GinkgoT(), func(t *rapid.T) {
				round++
				f := newForkModel(ctx, e.store, round, e.sums)
				f.create(t, nil)
				t.Repeat(map[string]func(*rapid.T){
					"append":   f.append,
					"burst":    f.burst,
					"update":   f.update,
					"delete":   f.delete,
					"delete2":  f.delete,
					"fork":     f.fork,
					"fork2":    f.fork,
					"truncate": f.truncate,
					"purge":    f.purge,
					"destroy":  f.destroy,
					"relate":   f.relate,
					"sweep":    f.sweep,
					"":         f.check,
				})
				for len(f.threads) > 0 {
					f.purge(t)
				}
				f.checkBytes(t)
			})
		})
	})
}

// forkModel is the expected state of threads. Each has its own copies of its messages.
type forkModel struct {
	ctx     context.Context
	store   store.Store
	round   int
	made    int
	threads []*forkThread
	links   map[forkLink]int // where each relationship was made: the number of a message of the parent, or 0 for none
	did     []string         // for people who look into a failure
	// sums returns the bytes of messages that the store counts in a namespace, and those that there are.
	sums func(ctx context.Context, namespace string) (counted, stored int64, err error)
}

func newForkModel(ctx context.Context, s store.Store, round int, sums func(context.Context, string) (counted, stored int64, err error)) *forkModel {
	return &forkModel{ctx: ctx, store: s, round: round, links: map[forkLink]int{}, sums: sums}
}

type forkThread struct {
	id       string
	messages []forkMessage
}

// forkLink is a relationship.
type forkLink struct {
	parent, child string
	kind          store.RelationshipType
}

type forkMessage struct {
	n int // grows from message to message of a thread

	id, text string
	silent   bool
	depth    int
}

func (f *forkModel) apply(t *rapid.T, th *forkThread, ops ...store.Op) {
	for _, op := range ops {
		f.did = append(f.did, fmt.Sprintf("%s %T %+v", th.id, op, op))
	}
	if err := f.store.Apply(f.ctx, th.id, nil, ops...); err != nil {
		t.Fatalf("%s\n%v", strings.Join(f.did, "\n"), err)
	}
}

func (f *forkModel) any(t *rapid.T) *forkThread {
	if len(f.threads) == 0 {
		f.create(t, nil)
	}
	return f.threads[rapid.IntRange(0, len(f.threads)-1).Draw(t, "thread")]
}

// filled returns a thread with messages, nil when there is none, and an index of one of its messages.
func (f *forkModel) filled(t *rapid.T) (*forkThread, int) {
	th := f.any(t)
	if len(th.messages) == 0 {
		return nil, 0
	}
	return th, rapid.IntRange(0, len(th.messages)-1).Draw(t, "index")
}

// filledTo is filled, but the message is the newest one half of the time.
func (f *forkModel) filledTo(t *rapid.T) (*forkThread, int) {
	th, i := f.filled(t)
	if th != nil && rapid.Bool().Draw(t, "newest") {
		i = len(th.messages) - 1
	}
	return th, i
}

func (f *forkModel) create(t *rapid.T, messages []forkMessage, ops ...store.Op) {
	f.made++
	th := &forkThread{id: fmt.Sprintf("fork-%d-%d", f.round, f.made), messages: slices.Clone(messages)}
	f.did = append(f.did, fmt.Sprintf("%s create %+v", th.id, ops))
	if _, _, err := f.store.CreateThread(f.ctx, store.Thread{ID: th.id, Namespace: "n", Agent: "a"}, ops...); err != nil {
		t.Fatal(err)
	}
	f.threads = append(f.threads, th)
}

func (f *forkModel) appendTo(t *rapid.T, th *forkThread, n int) {
	var ops []store.Op
	for range n {
		f.made++
		m := forkMessage{n: f.made, id: fmt.Sprint("m", f.made), text: fmt.Sprint("text ", f.made),
			silent: rapid.IntRange(0, 3).Draw(t, "silent") == 0, depth: max(rapid.IntRange(-3, 2).Draw(t, "depth"), 0)}
		msg := message(m.text)
		msg.ID, msg.Silent, msg.Depth = m.id, m.silent, m.depth
		ops = append(ops, &store.AppendMessage{Message: msg})
		th.messages = append(th.messages, m)
	}
	f.apply(t, th, ops...)
}

func (f *forkModel) append(t *rapid.T) { f.appendTo(t, f.any(t), 1) }
func (f *forkModel) burst(t *rapid.T) {
	f.appendTo(t, f.any(t), rapid.IntRange(2, 40).Draw(t, "n"))
}

func (f *forkModel) update(t *rapid.T) {
	th, i := f.filled(t)
	if th == nil {
		return
	}
	f.made++
	text, silent := fmt.Sprint("edited ", f.made), rapid.Bool().Draw(t, "silent")
	th.messages[i].text, th.messages[i].silent = text, silent
	f.apply(t, th, &store.UpdateMessage{ID: th.messages[i].id, Content: &text, Silent: &silent})
}

func (f *forkModel) delete(t *rapid.T) {
	th, i := f.filled(t)
	if th == nil {
		return
	}
	op := &store.DeleteMessage{ID: th.messages[i].id}
	f.apply(t, th, op)
	if !op.Deleted {
		t.Fatalf("message %s of %s was not there", op.ID, th.id)
	}
	th.messages = slices.Delete(th.messages, i, i+1)
	again := &store.DeleteMessage{ID: op.ID}
	if f.apply(t, th, again); again.Deleted {
		t.Fatalf("message %s of %s was deleted twice", op.ID, th.id)
	}
}

func (f *forkModel) fork(t *rapid.T) {
	th, i := f.filledTo(t)
	if th == nil || len(f.threads) > 8 {
		return
	}
	op := &store.Fork{Origin: th.id, Index: int64(i)}
	if rapid.Bool().Draw(t, "by id") {
		op = &store.Fork{Origin: th.id, MessageID: th.messages[i].id}
	}
	f.create(t, th.messages[:i+1], op)
	f.links[forkLink{th.id, f.threads[len(f.threads)-1].id, store.RelationFork}] = th.messages[i].n
	if op.Index != int64(i) || op.Messages != int64(i+1) {
		t.Fatalf("forked at %d with %d messages, not at %d", op.Index, op.Messages, i)
	}
}

func (f *forkModel) truncate(t *rapid.T) {
	th, i := f.filledTo(t)
	if th == nil {
		return
	}
	if rapid.IntRange(0, 7).Draw(t, "all of it") == 0 {
		i = -1
	}
	op := &store.Truncate{Index: int64(i)}
	f.apply(t, th, op)
	if op.Removed != int64(len(th.messages)-i-1) {
		t.Fatalf("removed %d, not %d", op.Removed, len(th.messages)-i-1)
	}
	th.messages = slices.Clone(th.messages[:i+1])
	f.cutLinks(th)
}

// cutLinks removes the relationships that were made past the newest message of a thread.
func (f *forkModel) cutLinks(th *forkThread) {
	last := 0
	if n := len(th.messages); n > 0 {
		last = th.messages[n-1].n
	}
	maps.DeleteFunc(f.links, func(l forkLink, n int) bool { return l.parent == th.id && n > last })
}

func (f *forkModel) purge(t *rapid.T) {
	if len(f.threads) == 0 {
		return
	}
	i := rapid.IntRange(0, len(f.threads)-1).Draw(t, "thread")
	id := f.threads[i].id
	if _, err := f.store.PurgeThread(f.ctx, id); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(f.links, func(l forkLink, _ int) bool { return l.parent == id || l.child == id })
	f.threads = slices.Delete(f.threads, i, i+1)
}

func (f *forkModel) sweep(t *rapid.T) {
	if _, _, err := f.store.SweepRemnants(f.ctx, 0, 1000); err != nil {
		t.Fatal(err)
	}
}

func (f *forkModel) destroy(t *rapid.T) {
	th := f.any(t)
	f.apply(t, th, &store.Destroy{Reason: store.DestroyedExplicit})
	th.messages = nil
	f.cutLinks(th)
}

func (f *forkModel) relate(t *rapid.T) {
	th, peer := f.any(t), f.any(t)
	if th == peer {
		return
	}
	parent, child, role := th, peer, store.RelationParent
	if rapid.Bool().Draw(t, "child") {
		parent, child, role = peer, th, store.RelationChild
	}
	i, at := rapid.IntRange(-1, len(parent.messages)-1).Draw(t, "index"), 0
	if i >= 0 {
		at = parent.messages[i].n
	}
	f.apply(t, th, &store.PutRelationship{R: store.Relationship{ThreadID: peer.id, Type: store.RelationMention, Role: role, MessageIndex: int64(i)}})
	l := forkLink{parent.id, child.id, store.RelationMention}
	if _, made := f.links[l]; !made {
		f.links[l] = at
	}
}

// checkRelationships checks that there are the relationships of the model, and that both ends of each agree.
func (f *forkModel) checkRelationships(t *rapid.T) {
	type link struct {
		thread, peer string
		kind         store.RelationshipType
		role         string
		index, at    int64
	}
	ends := make([][]store.Relationship, len(f.threads))
	var reads errgroup.Group
	for i, th := range f.threads {
		reads.Go(func() (err error) {
			ends[i], _, err = f.store.Relationships(f.ctx, th.id, 1000, 0)
			return err
		})
	}
	if err := reads.Wait(); err != nil {
		t.Fatal(err)
	}
	links := map[link]bool{}
	for i, th := range f.threads {
		for _, r := range ends[i] {
			links[link{th.id, r.ThreadID, r.Type, r.Role, r.MessageIndex, r.CreatedAt}] = true
		}
	}
	have := map[forkLink]bool{}
	for l := range links {
		other := l
		other.thread, other.peer, other.role = l.peer, l.thread, store.RelationParent
		if l.role == store.RelationParent {
			other.role = store.RelationChild
			have[forkLink{l.thread, l.peer, l.kind}] = true
		}
		if !links[other] {
			t.Fatalf("%s\n%+v has no other end", strings.Join(f.did, "\n"), l)
		}
	}
	if want := slices.Collect(maps.Keys(f.links)); len(have) != len(want) || slices.ContainsFunc(want, func(l forkLink) bool { return !have[l] }) {
		t.Fatalf("%s\nthere are %v, want %v", strings.Join(f.did, "\n"), slices.Collect(maps.Keys(have)), want)
	}
}

// check compares every thread with the model: all of it, a random page, and one message by its id. What is drawn is drawn first, because draws
// have an order. The reads have none, and run at the same time: on PostgreSQL they wait for the network most of the time.
func (f *forkModel) check(t *rapid.T) {
	f.checkRelationships(t)
	f.checkBytes(t)
	var reads errgroup.Group
	reads.SetLimit(8)
	for _, th := range f.threads {
		some := store.MessageQuery{
			Order: rapid.SampledFrom([]string{"", "asc", "desc"}).Draw(t, "order"), Limit: rapid.IntRange(1, 6).Draw(t, "limit"),
			Offset:        rapid.IntRange(0, len(th.messages)+2).Draw(t, "offset"),
			IncludeSilent: rapid.Bool().Draw(t, "includeSilent"), MaxDepth: rapid.IntRange(0, 2).Draw(t, "maxDepth"),
		}
		reads.Go(func() error {
			info, err := f.store.Thread(f.ctx, th.id)
			if err == nil && info.Messages != int64(len(th.messages)) {
				err = fmt.Errorf("%s has %d messages, not %d", th.id, info.Messages, len(th.messages))
			}
			return err
		})
		reads.Go(func() error {
			return f.compare(th, store.MessageQuery{Order: "asc", Limit: 1000, IncludeSilent: true, AllDepths: true})
		})
		reads.Go(func() error { return f.compare(th, some) })
		if len(th.messages) == 0 {
			continue
		}
		one := rapid.SampledFrom(th.messages).Draw(t, "one")
		reads.Go(func() error { return f.checkOne(th, one) })
	}
	if err := reads.Wait(); err != nil {
		t.Fatalf("%s\n%v", strings.Join(f.did, "\n"), err)
	}
}

// checkBytes compares the sum that the store keeps with the messages.
func (f *forkModel) checkBytes(t *rapid.T) {
	counted, stored, err := f.sums(f.ctx, "n")
	if err != nil || counted != stored {
		t.Fatalf("%s\n%d bytes of messages are counted, and there are %d, %v", strings.Join(f.did, "\n"), counted, stored, err)
	}
}

// checkOne looks for a message by its id, and for one that does not exist.
func (f *forkModel) checkOne(th *forkThread, one forkMessage) error {
	m, err := f.store.Message(f.ctx, th.id, one.id)
	if err != nil || *m.Content != one.text {
		return fmt.Errorf("message %s of %s is %v, %w", one.id, th.id, m, err)
	}
	if at, err := f.store.MessageIndex(f.ctx, th.id, one.id); err != nil || th.messages[at] != one {
		return fmt.Errorf("message %s of %s is at %d, %w", one.id, th.id, at, err)
	}
	if _, err := f.store.Message(f.ctx, th.id, "none"); !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("a message of %s that does not exist: %w", th.id, err)
	}
	return nil
}

func (f *forkModel) compare(th *forkThread, q store.MessageQuery) error {
	page, err := f.store.Messages(f.ctx, th.id, q)
	if err != nil {
		return fmt.Errorf("%+v of %s: %w", q, th.id, err)
	}
	want := []forkMessage{}
	for _, m := range th.messages {
		m.n = 0 // the store has no such number
		if (!m.silent || q.IncludeSilent) && (m.depth <= q.MaxDepth || q.AllDepths) {
			want = append(want, m)
		}
	}
	total := int64(len(want))
	if q.Order != "asc" {
		slices.Reverse(want)
	}
	want = want[min(q.Offset, len(want)):]
	want = want[:min(q.Limit, len(want))]
	if q.Order == "" {
		slices.Reverse(want)
	}
	got := []forkMessage{}
	for _, m := range page.Messages {
		got = append(got, forkMessage{id: m.ID, text: *m.Content, silent: m.Silent, depth: m.Depth})
	}
	if !slices.Equal(got, want) || page.Total != total {
		return fmt.Errorf("%+v of %s gives\n%v of %d, want\n%v of %d", q, th.id, got, page.Total, want, total)
	}
	return nil
}
