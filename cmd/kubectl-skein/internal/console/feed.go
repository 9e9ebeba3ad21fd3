package console

import (
	"fmt"
	"reflect"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// maxItems is how many rows and deletions a message has.
const maxItems = 1000

// message is one message of a live list.
type message struct {
	Kind    string   `json:"kind"`
	Reset   bool     `json:"reset,omitempty"`
	Items   []any    `json:"items,omitempty"`
	Deleted []string `json:"deleted,omitempty"`
	Synced  bool     `json:"synced,omitempty"`
	Error   *problem `json:"error,omitempty"`
}

// problem says why a list is not up to date.
type problem struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// withdrawn is true when the viewer may not read the list.
	withdrawn bool
}

// feed holds the rows of one kind, and tells views which of them have changed. It takes no part of the memory of a slow view: a view has
// only the keys of rows that it has not sent. mu guards all fields, those of the views too.
type feed struct {
	kind string
	// decorate returns a row as it is sent; nil sends rows as they are. It is called with mu held.
	decorate func(row any) any

	mu     sync.Mutex
	rows   map[string]any // by namespace/name
	synced bool           // the first list is complete
	failed *problem       // why the rows are not up to date
	views  map[*view]bool
}

// view is what one connection still has to send of a feed.
type view struct {
	feed *feed
	wake chan<- struct{} // has room for one element

	reset, synced, failed bool
	changed               map[string]bool
	settled               bool // the first list is sent
}

func newFeed(kind string, decorate func(any) any) *feed {
	return &feed{kind: kind, decorate: decorate, rows: map[string]any{}, views: map[*view]bool{}}
}

// view returns a view that has to send everything. leave ends it.
func (f *feed) view(wake chan<- struct{}) *view {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := &view{feed: f, wake: wake}
	v.restart()
	f.views[v] = true
	return v
}

func (v *view) leave() {
	v.feed.mu.Lock()
	defer v.feed.mu.Unlock()
	delete(v.feed.views, v)
}

// restart makes a view send all rows.
func (v *view) restart() {
	v.reset, v.synced, v.failed, v.settled = true, v.feed.synced, v.feed.failed != nil, false
	v.changed = make(map[string]bool, len(v.feed.rows))
	for key := range v.feed.rows {
		v.changed[key] = true
	}
	v.notify()
}

func (v *view) notify() {
	select {
	case v.wake <- struct{}{}:
	default: // it is awake already
	}
}

// next returns what is to be sent next, or nil. settled is true for changes after the first list.
func (v *view) next() (m *message, settled bool) {
	f := v.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	m = &message{Kind: f.kind}
	switch {
	case v.reset:
		v.reset, m.Reset = false, true
	case len(v.changed) > 0:
		v.take(m)
	case v.synced:
		v.synced, v.settled, m.Synced = false, true, true
		return m, false
	case v.failed:
		if v.failed = false; f.failed == nil {
			return nil, false
		}
		m.Error = f.failed
	default:
		return nil, false
	}
	return m, v.settled
}

// take moves changes into a message.
func (v *view) take(m *message) {
	f := v.feed
	n := min(len(v.changed), maxItems)
	m.Items = make([]any, 0, n)
	for key := range v.changed {
		row, there := f.rows[key]
		switch {
		case !there:
			m.Deleted = append(m.Deleted, key)
		case f.decorate != nil:
			m.Items = append(m.Items, f.decorate(row))
		default:
			m.Items = append(m.Items, row)
		}
		delete(v.changed, key)
		if n--; n == 0 {
			break
		}
	}
	v.failed = v.failed || f.failed != nil // a page takes rows as the end of an error
}

// touched makes all views send a row; mu is held.
func (f *feed) touched(key string) {
	for v := range f.views {
		v.changed[key] = true
		v.notify()
	}
}

// Add implements cache.ReflectorStore.
func (f *feed) Add(o any) error {
	i, ok := o.(*item)
	if !ok {
		return fmt.Errorf("%T is no item of a list", o)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if key := i.key(); !reflect.DeepEqual(f.rows[key], i.row) {
		f.rows[key] = i.row
		f.touched(key)
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (f *feed) Update(o any) error { return f.Add(o) }

// Delete implements cache.ReflectorStore.
func (f *feed) Delete(o any) error {
	i, ok := o.(*item)
	if !ok {
		return fmt.Errorf("%T is no item of a list", o)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if key := i.key(); f.rows[key] != nil {
		delete(f.rows, key)
		f.touched(key)
	}
	return nil
}

// Replace implements cache.ReflectorStore. It begins the list anew for all views: the reflector lists again when it may have missed changes.
func (f *feed) Replace(all []any, _ string) error {
	rows := make(map[string]any, len(all))
	for _, o := range all {
		i, ok := o.(*item)
		if !ok {
			return fmt.Errorf("%T is no item of a list", o)
		}
		rows[i.key()] = i.row
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows, f.synced, f.failed = rows, true, nil
	for v := range f.views {
		v.restart()
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (f *feed) Resync() error { return nil }

var _ cache.ReflectorStore = (*feed)(nil)

// fail tells views why the rows are not up to date.
func (f *feed) fail(p *problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil && *f.failed == *p {
		return
	}
	f.failed = p
	if p.withdrawn && len(f.rows) > 0 {
		f.rows, f.synced = map[string]any{}, false // the viewer may not see them any more
		for v := range f.views {
			v.restart()
		}
	}
	for v := range f.views {
		v.failed = true
		v.notify()
	}
}

// recovered tells views that the rows are up to date again, without a new list.
func (f *feed) recovered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		return
	}
	f.failed = nil
	for v := range f.views {
		v.failed, v.synced = false, f.synced
		v.notify()
	}
}
