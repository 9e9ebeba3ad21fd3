package scopes

import (
	"cmp"
	"slices"

	"github.com/skein-dev/skein/internal/store"
)

// change is a write that is not stored yet.
type change struct {
	verb   store.StateVerb
	key    string
	value  any
	max    int
	held   *held
	number int  // in the order of the writes
	saving bool // the current save includes it
}

// changes are the writes that are not stored yet, by key. A write makes earlier ones of its key superfluous, but those that are being
// saved stay, because they apply again if the save fails.
type changes struct {
	of     map[string][]*change // of each key, in order
	clears []*change
	count  int
	last   int // the number of the last one
}

// add adds a write.
func (l *changes) add(c change) {
	switch c.verb {
	case store.StateClear:
		for key := range l.of {
			l.remove(key, isNew)
		}
		l.clears = l.without(l.clears, isNew)
	case store.StateSet, store.StateDelete:
		l.remove(c.key, isNew)
	}
	l.last++
	l.count++
	c.number = l.last
	c.held.keep()
	if c.verb == store.StateClear {
		l.clears = append(l.clears, &c)
		return
	}
	if l.of == nil {
		l.of = map[string][]*change{}
	}
	l.of[c.key] = append(l.of[c.key], &c)
}

func isNew(c *change) bool   { return !c.saving }
func isSaved(c *change) bool { return c.saving }
func isAny(*change) bool     { return true }

// remove removes writes of a key.
func (l *changes) remove(key string, which func(*change) bool) {
	left := l.without(l.of[key], which)
	if len(left) == 0 {
		delete(l.of, key)
		return
	}
	l.of[key] = left
}

// removeAll removes writes of all keys.
func (l *changes) removeAll(which func(*change) bool) {
	for key := range l.of {
		l.remove(key, which)
	}
	l.clears = l.without(l.clears, which)
}

func (l *changes) without(list []*change, which func(*change) bool) []*change {
	return slices.DeleteFunc(list, func(c *change) bool {
		if !which(c) {
			return false
		}
		c.held.drop()
		l.count--
		return true
	})
}

// all returns the writes in order.
func (l *changes) all() []*change {
	list := slices.Clone(l.clears)
	for _, of := range l.of {
		list = append(list, of...)
	}
	slices.SortFunc(list, func(a, b *change) int { return cmp.Compare(a.number, b.number) })
	return list
}

// mark sets of all writes whether the current save includes them.
func (l *changes) mark(saving bool) {
	for _, c := range l.all() {
		c.saving = saving
	}
}

// latest returns the last write of a key, unless everything was cleared after it.
func (l *changes) latest(key string) *change {
	of := l.of[key]
	if len(of) == 0 || len(l.clears) > 0 && l.clears[len(l.clears)-1].number > of[len(of)-1].number {
		return nil
	}
	return of[len(of)-1]
}
