package observe

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
)

// observed is a thread with a watcher. Only its goroutine reads the store. mu guards what follows it; the hub's lock is
// taken before it, never after.
type observed struct {
	hub     *Hub
	id      string
	stop    context.CancelFunc
	account *membudget.Account
	wake    chan struct{}
	charged int64 // drawn for the value; only the goroutine that reads uses it

	mu      sync.Mutex
	value   *Value             // nil until it was read
	encoded map[string]*shared // the value for each choice of parts
	watches map[*Watch]bool
}

// join adds a watch. If all parts that the watch wants are known, it gets the present value at once; otherwise join wakes the reader, which
// reads them.
func (o *observed) join(w *Watch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watches[w] = true
	if o.value != nil && o.value.has(w.parts) {
		o.give(w)
		return
	}
	o.wakeReader()
}

// leave removes a watch and reports whether it was the last.
func (o *observed) leave(w *Watch) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.watches, w)
	return len(o.watches) == 0
}

// wakeReader has the reader look at the thread again.
func (o *observed) wakeReader() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run reads the thread after notifications: at once when the last read was long enough ago, else when it is. So there is a
// patch on the leading and on the trailing edge of many changes.
func (o *observed) run(ctx context.Context) {
	defer o.hub.Subscribe(o.id, func(store.Notification) { o.wakeReader() })()
	clock := o.hub.Clock
	last := clock.Now().Add(-Interval)
	for {
		recheck := clock.NewTimer(o.hub.Recheck)
		select {
		case <-ctx.Done():
			recheck.Stop()
			return
		case <-o.wake:
		case <-recheck.C():
		}
		recheck.Stop()
		if rest := Interval - clock.Since(last); rest > 0 && !sleep(ctx, clock, rest) {
			return
		}
		select { // notifications until here are part of this read
		case <-o.wake:
		default:
		}
		if err := o.refresh(ctx); err != nil {
			if ctx.Err() == nil {
				o.end(err)
			}
			return
		}
		last = clock.Now()
	}
}

// refresh reads the thread and tells the watches what has changed.
func (o *observed) refresh(ctx context.Context) error {
	before, parts := o.wantedParts()
	work, done := membudget.Part(ctx)
	defer done()
	var adjust func(size int64)
	err := o.drawOrEvict(func() (err error) {
		adjust, err = membudget.Reserve(work, readBytes)
		return err
	})
	if err != nil {
		return err
	}
	now, err := o.hub.Read(work, o.id, parts, before)
	if err != nil {
		return err
	}
	if now != before {
		size := now.bytes()
		adjust(size) // what it was made of, until it is compared with the value before
		// As it is, and encoded for those who begin to watch.
		if err := o.drawOrEvict(func() error { return o.charge(ctx, 2*size) }); err != nil {
			return err
		}
	}
	var changes map[string][][]byte
	if before != nil && now != before {
		if changes, err = difference(before, now); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if now != o.value {
		o.value, o.encoded = now, nil
	}
	patches := map[string]*shared{}
	for _, w := range o.slowestFirst() {
		switch {
		case !now.has(w.parts): // it came while the thread was being read: it gets a value after the next read
			w.begun = false
			o.wakeReader()
		case !w.begun:
			o.give(w)
		case len(changes) > 0:
			key := strings.Join(w.parts, ",")
			if _, ok := patches[key]; !ok {
				patches[key] = o.share(true, patch(now.Version, w.parts, changes))
			}
			if patches[key].JSON != nil {
				w.add(patches[key])
			}
		}
	}
	return nil
}

// drawOrEvict calls draw. While the namespace has no memory for it, drawOrEvict ends the watch for which most waits and tries again.
func (o *observed) drawOrEvict(draw func() error) error {
	for {
		err := draw()
		var busy *membudget.BusyError
		if !errors.As(err, &busy) || !o.endSlowest(err) {
			return err
		}
	}
}

// endSlowest ends the watch for which most waits, and drops that. It reports whether there was one.
func (o *observed) endSlowest(err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.slowestFirst()
	if len(all) == 0 || all[0].waitingBytes() == 0 {
		return false
	}
	all[0].end(err)
	all[0].mu.Lock()
	defer all[0].mu.Unlock()
	all[0].dropWaiting()
	return true
}

// slowestFirst returns the watches by the bytes that wait for them, the most first: when there is no memory for more, those end that take
// most of it. The caller holds mu.
func (o *observed) slowestFirst() []*Watch {
	waiting := map[*Watch]int{}
	for w := range o.watches {
		waiting[w] = w.waitingBytes()
	}
	return slices.SortedFunc(maps.Keys(waiting), func(a, b *Watch) int { return cmp.Compare(waiting[b], waiting[a]) })
}

// charge draws what the value takes from now on, instead of what the value before took.
func (o *observed) charge(ctx context.Context, size int64) error {
	if err := o.account.Draw(ctx, size-o.charged); err != nil {
		return err
	}
	o.account.Return(o.charged - size)
	o.charged = size
	return nil
}

// wantedParts returns the present value and the parts that watchers want, sorted.
func (o *observed) wantedParts() (value *Value, parts []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for w := range o.watches {
		parts = append(parts, w.parts...)
	}
	slices.Sort(parts)
	return o.value, slices.Compact(parts)
}

// give gives a watch the present value.
func (o *observed) give(w *Watch) {
	key := strings.Join(w.parts, ",")
	if o.encoded == nil {
		o.encoded = map[string]*shared{}
	}
	if o.encoded[key] == nil {
		o.encoded[key] = o.share(false, o.value.encode(w.parts))
	}
	w.begun = true
	w.add(o.encoded[key])
}

// share returns an update that watchers can wait for.
func (o *observed) share(patch bool, json []byte) *shared {
	return &shared{Update: Update{Patch: patch, JSON: json}, account: o.account}
}

// end ends all watches.
func (o *observed) end(err error) {
	o.hub.forget(o)
	o.mu.Lock()
	defer o.mu.Unlock()
	for w := range o.watches {
		w.end(err)
	}
	o.value, o.encoded = nil, nil
	o.account.Return(o.charged) // what still waits stays drawn until the last watcher leaves
	o.charged = 0
}

// patch encodes the changes of some parts, or returns nil when they have none.
func patch(version int64, parts []string, changes map[string][][]byte) []byte {
	var ops [][]byte
	for _, p := range parts {
		ops = append(ops, changes[p]...)
	}
	if len(ops) == 0 {
		return nil
	}
	return encodePatch(version, ops)
}
