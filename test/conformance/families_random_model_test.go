package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of PostgreSQL
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	_ "modernc.org/sqlite" // the driver of SQLite
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// trees is what clients have done to the threads of a namespace, as far as answers told them.
type trees struct {
	ns       string
	clients  []*runtimeclient.Client // one after the other is asked
	ops      []operation
	most     int                                                                  // threads that there may be about
	patience time.Duration                                                        // how long a request is repeated, and the end is waited for
	bulk     int                                                                  // how often a file repeats its text
	before   func(ctx context.Context)                                            // what is done before each look at the end
	more     func(ctx context.Context, p *problems, all map[string]*looked) error // what else is looked at then
	asked    atomic.Int64
	words    atomic.Int64
	crowded  atomic.Bool  // there are as many threads as there may be
	peak     atomic.Int64 // the most threads that there were at once

	mu      sync.Mutex
	threads map[string]*tree // by id
	done    map[string]int   // by operation and outcome
}

// operation is what clients do to a thread, and how often in relation to the others.
type operation struct {
	weight int
	do     func(*trees, context.Context, *rand.Rand, *tree)
}

// client returns one of the clients.
func (w *trees) client() *runtimeclient.Client {
	return w.clients[w.asked.Add(1)%int64(len(w.clients))]
}

// tree is one of the threads.
type tree struct {
	id, name   string
	kept       bool // it was made by a request that was answered, and has no parent
	deleted    bool // its deletion was requested
	orphaned   bool // with --cascade=orphan
	ended      bool // it was terminated before it was deleted
	terminated bool
	asked      bool // its termination was requested
	said       map[string]*words
	begins     []string // what it was forked with
	cut        int      // truncations that began
	cutting    int      // truncations that have not been answered
	effects    []string
	files      []string
}

// living reports whether neither the end of a thread nor the removal of its messages was requested.
func (t *tree) living() bool { return !t.deleted && !t.terminated && !t.ended && t.cut == 0 }

// words are a message that a client sent once.
type words struct {
	queued     bool // it is not read any more when its thread is terminated
	must, mayn bool // it must be there; it must not
}

func (w *trees) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// text returns a text that no other call has returned.
func (w *trees) text() string { return fmt.Sprintf("m%d", w.words.Add(1)) }

func (w *trees) tree(id, name string) (t *tree) {
	w.locked(func() {
		if t = w.threads[id]; t == nil {
			t = &tree{id: id, name: name, said: map[string]*words{}}
			w.threads[id] = t
		}
	})
	return t
}

func (w *trees) keep(t *tree) { w.locked(func() { t.kept = true }) }

// begins notes what a fork began with, unless it was truncated already.
func (w *trees) begins(t *tree, texts []string) {
	w.locked(func() {
		if t.cut == 0 {
			t.begins = texts
		}
	})
}

func (w *trees) count(what string, err error) {
	w.locked(func() {
		if err != nil {
			what += " refused"
			if w.done[what] == 0 {
				GinkgoWriter.Printf("trees: %s: %v\n", what, err)
			}
		}
		w.done[what]++
	})
}

// sends notes a message that send sends. What a truncation may have removed need not be there.
func (w *trees) sends(t *tree, text string, queued bool, send func() (carriedOut, certain bool)) {
	m := &words{queued: queued}
	var cut, cutting int
	w.locked(func() { t.said[text], cut, cutting = m, t.cut, t.cutting })
	ok, certain := send()
	w.locked(func() { m.must, m.mayn = ok && cutting == 0 && t.cut == cut, !ok && certain })
}

// cuts notes a truncation, which keeps the messages with these texts.
func (w *trees) cuts(t *tree, kept []string, truncate func() (carriedOut, certain bool)) {
	w.locked(func() { t.cut++; t.cutting++ })
	ok, certain := truncate()
	w.locked(func() {
		t.cutting--
		if !ok && certain {
			return
		}
		for text, m := range t.said {
			m.must = m.must && slices.Contains(kept, "user: "+text)
		}
		t.begins = t.begins[:min(len(t.begins), len(kept))]
	})
}

// final reports whether an answer to a request says what became of it. Otherwise the request may have been carried out or not.
func final(err error) bool {
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsGone(err), apierrors.IsAlreadyExists(err):
		return true
	case apierrors.IsConflict(err):
		return !strings.Contains(err.Error(), "Idempotency-Key is in progress")
	}
	return apierrors.IsForbidden(err) || strings.Contains(err.Error(), "queue is full") || strings.Contains(err.Error(), "is not set up yet")
}

// until repeats a request until its answer is final. It reports whether it was carried out, and whether that is certain: what is
// refused at last may have been carried out by a request whose answer was lost.
func (w *trees) until(ctx context.Context, what string, request func(context.Context) error) (carriedOut, certain bool) {
	GinkgoHelper()
	var err error
	tries := 0
	answers := map[string]int{} // what the tries came to, and how often
	Eventually(ctx, func() error {
		tries++
		one, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		err = request(one)
		if final(err) {
			return nil
		}
		answers[fmt.Sprintf("%T %.300v", err, err)]++
		return err
	}).WithTimeout(w.patience).WithPolling(200*time.Millisecond).Should(Succeed(), func() string { return fmt.Sprintf("%s: %d tries: %v", what, tries, answers) })
	w.count(what, err)
	return err == nil, err == nil || tries == 1
}

// choices gives the threads that an operation may be about.
func (w *trees) choices(ctx context.Context) (out []*tree) {
	GinkgoHelper()
	var l skeinv1.ThreadList
	Expect(cluster.Client.List(ctx, &l, client.InNamespace(w.ns))).To(Succeed())
	for _, o := range l.Items {
		if stored := meta.IsStatusConditionTrue(o.Status.Conditions, skeinv1.ConditionReady) || o.Status.TerminatedAt != 0; stored && o.DeletionTimestamp.IsZero() {
			t, planting := w.tree(o.Status.ThreadID, o.Name), false
			if strings.HasPrefix(o.Name, rootPrefix) { // no operation chooses a root before its maker has written to it
				w.locked(func() { planting = !t.kept })
			}
			if !planting {
				out = append(out, t)
			}
		}
	}
	n := int64(len(out))
	w.crowded.Store(n >= int64(w.most))
	for most := w.peak.Load(); n > most && !w.peak.CompareAndSwap(most, n); most = w.peak.Load() {
	}
	return out
}

// heard gives the messages of a thread up to one that a random one of them is, all of which are as they will stay.
func (w *trees) heard(ctx context.Context, rng *rand.Rand, t *tree) (ms []runtimev1.Message) {
	GinkgoHelper()
	w.until(ctx, "read", func(ctx context.Context) error {
		ms = nil
		for m, err := range w.client().Thread(w.ns, t.id).AllMessages(ctx, runtimeclient.MessageOptions{IncludeSilent: true}) {
			if err != nil {
				return err
			}
			ms = append(ms, m)
		}
		return nil
	})
	for i, m := range ms {
		if m.Status == runtimev1.MessagePending {
			ms = ms[:i]
			break
		}
	}
	if len(ms) == 0 {
		return nil
	}
	return ms[:1+rng.IntN(len(ms))]
}

// looked is a thread as it is in the end.
type looked struct {
	object   *skeinv1.Thread
	record   *runtimev1.ThreadRecord
	said     []runtimev1.Message
	related  []runtimev1.Relationship
	children map[string]runtimev1.Child
	effects  []runtimev1.Effect
	runs     []runtimev1.Run
	waiting  int
}

// endedWithParent reports whether a thread ended because its parent was terminated, so that what was due may not have been done.
func (l *looked) endedWithParent() bool {
	return l.record.Terminated != nil && l.record.TerminatedReason == skeinv1.ReasonParentTerminated
}

// cutOff reports whether a run ended because the parent of its thread was terminated.
func (l *looked) cutOff(run string) bool {
	return l.endedWithParent() && slices.ContainsFunc(l.runs, func(r runtimev1.Run) bool { return r.ID == run && r.Status == runtimev1.RunTerminated })
}

func (w *trees) look(ctx context.Context, o *skeinv1.Thread) (l *looked, err error) {
	l = &looked{object: o, children: map[string]runtimev1.Child{}}
	t := w.client().Thread(w.ns, o.Status.ThreadID)
	if l.record, err = t.Get(ctx); err != nil {
		return nil, err
	}
	for m, err := range t.AllMessages(ctx, runtimeclient.MessageOptions{IncludeSilent: true}) {
		if err != nil {
			return nil, err
		}
		l.said = append(l.said, m)
	}
	for c, err := range t.AllChildren(ctx) {
		if err != nil {
			return nil, err
		}
		l.children[c.Reference] = c
	}
	rs, err := t.Relationships(ctx, runtimeclient.Page{Limit: 1000})
	if err != nil {
		return nil, err
	}
	es, err := t.Effects(ctx, "", runtimeclient.Page{Limit: 1000})
	if err != nil {
		return nil, err
	}
	runs, err := t.Runs(ctx, runtimeclient.Page{Limit: 1000})
	if err != nil {
		return nil, err
	}
	queue, err := t.Queued(ctx, runtimeclient.Page{})
	if err != nil {
		return nil, err
	}
	l.related, l.effects, l.runs, l.waiting = rs.Relationships, es.Effects, runs.Runs, len(queue.Messages)
	return l, nil
}

// lookAtAll looks at the threads with these UIDs, and returns them by id.
func (w *trees) lookAtAll(ctx context.Context, objects []skeinv1.Thread, uids map[string]bool) (map[string]*looked, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	found := make([]*looked, len(objects))
	for i := range objects {
		if o := &objects[i]; uids[string(o.UID)] {
			group.Go(func() (err error) {
				if found[i], err = w.look(ctx, o); err != nil {
					return fmt.Errorf("thread %s: %w", o.Name, err)
				}
				return nil
			})
		}
	}
	err := group.Wait()
	all := map[string]*looked{}
	for i, l := range found {
		if l != nil {
			all[objects[i].Status.ThreadID] = l
		}
	}
	return all, err
}

// outlive matches the tables whose rows outlive threads: what was used and what happened, and what belongs to the database, a namespace
// (with how many children live in it) or the index of texts. What that index has of messages is in message_text and message_text_docsize.
// A sweep notes contents of files that a crash has left in orphan_object, for a day: emptyBucket looks at these.
var outlive = regexp.MustCompile(`^(goose_db_version|cluster|deleted_object|orphan_object|schema_reader|probe|lifecycle|usage_sum|child_(namespace|count|change)|model_.*|kv_service|message_text_(config|data|idx|state)|sqlite_.*)$`)

func rowsOfSQLite(ctx context.Context, file string) []string {
	return rows(ctx, "sqlite", "file:"+file+"?mode=ro", "SELECT name FROM sqlite_master WHERE type = 'table'")
}

func rowsOfPostgres(ctx context.Context, url string) []string {
	return rows(ctx, "pgx", url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
}

// rows counts the rows of each table of a database in which there should be none.
func rows(ctx context.Context, driver, url, tables string) (left []string) {
	GinkgoHelper()
	db, err := sql.Open(driver, url)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(db.Close()).To(Succeed()) }()
	found, err := db.QueryContext(ctx, tables)
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for found.Next() {
		var name string
		Expect(found.Scan(&name)).To(Succeed())
		names = append(names, name)
	}
	Expect(found.Err()).NotTo(HaveOccurred())
	Expect(names).To(ContainElements("thread", "message", "child_task"))
	for _, name := range names {
		var n int
		Expect(db.QueryRowContext(ctx, "SELECT count(*) FROM "+name).Scan(&n)).To(Succeed(), name)
		if n > 0 && !outlive.MatchString(name) {
			left = append(left, fmt.Sprintf("the table %s has %d rows", name, n))
		}
	}
	return left
}
