//go:build linux && (amd64 || arm64)

package js

import (
	"math"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
)

// timer is a setTimeout or setInterval of definition code.
type timer struct {
	f      qjs.Value
	args   []qjs.Value
	timer  *time.Timer
	due    time.Time
	repeat time.Duration // 0 means once
	// pending says that the timer has an event that is still to come, or waits for the engine's goroutine. It never has two.
	pending bool
}

// Limits of a timer's time. A repetition at zero would keep the engine busy forever.
const (
	minInterval = time.Millisecond
	maxTimeout  = 24 * time.Hour
)

// setTimer implements sys.setTimer(f, ms, repeat, args).
func (i *isolate) setTimer(a []qjs.Value) (qjs.Value, bool) {
	if !i.vm.IsFunction(a[0]) {
		return i.vm.ThrowError("TypeError", "a timer takes a function")
	}
	if len(i.timers) >= maxTimers {
		return i.vm.ThrowError("RangeError", "too many timers are waiting: at most 1000")
	}
	ms, _ := qjs.ToNumber(a[1])
	if math.IsNaN(ms) {
		ms = 0 // as in browsers
	}
	d := maxTimeout
	if ms <= float64(maxTimeout/time.Millisecond) {
		d = time.Duration(max(ms, 0) * float64(time.Millisecond))
	}
	t := &timer{f: i.vm.Dup(a[0])}
	if qjs.ToBool(a[2]) {
		d = max(d, minInterval)
		t.repeat = d
	}
	t.args = i.elements(a[3])
	i.lastTimer++
	id := i.lastTimer
	i.timers[id] = t
	i.arm(id, t, d)
	return qjs.Int(id), true
}

// arm makes the timer due after d. A timer that has an event keeps that one: it fires the timer that is due first, or waits for this one.
func (i *isolate) arm(id int32, t *timer, d time.Duration) {
	t.due = time.Now().Add(d)
	if !t.pending {
		i.send(id, t, d)
	}
}

// send makes the event of a timer that has none.
func (i *isolate) send(id int32, t *timer, d time.Duration) {
	t.pending = true
	t.timer = i.after(i.events, d, func() error { return i.fire(id) })
}

// first returns the timer that is due first. On a busy machine several may be due, and their events come in any
// order.
func (i *isolate) first(id int32) int32 {
	for other, t := range i.timers {
		if c := t.due.Compare(i.timers[id].due); c < 0 || c == 0 && other < id {
			id = other
		}
	}
	return id
}

// clearTimer implements sys.clearTimer(id).
func (i *isolate) clearTimer(a []qjs.Value) (qjs.Value, bool) {
	if n, ok := qjs.ToNumber(a[0]); ok {
		i.endTimer(int32(n))
	}
	return qjs.Undefined, true
}

func (i *isolate) endTimer(id int32) {
	t, ok := i.timers[id]
	if !ok {
		return
	}
	delete(i.timers, id)
	t.timer.Stop()
	i.vm.Free(t.f)
	i.freeAll(t.args)
}

// fire handles the event of a timer.
func (i *isolate) fire(id int32) error {
	t, ok := i.timers[id]
	if !ok {
		return nil
	}
	t.pending = false
	if wait := time.Until(t.due); wait > 0 { // it was fired, and started again, during another timer's turn
		i.send(id, t, wait)
		return nil
	}
	if first := i.first(id); first != id {
		i.send(id, t, 0) // for its own turn
		id, t = first, i.timers[first]
	}
	// The function may clear its own timer.
	f := i.vm.Dup(t.f)
	defer i.vm.Free(f)
	args := make([]qjs.Value, len(t.args))
	for k, a := range t.args {
		args[k] = i.vm.Dup(a)
	}
	defer i.freeAll(args)
	if t.repeat == 0 {
		i.endTimer(id)
	}
	v, ok := i.vm.Call(f, qjs.Undefined, args...)
	if !ok {
		v = i.vm.Exception()
		i.console.write("error", "uncaught in a timer: "+i.vm.Inspect(v))
	}
	i.vm.Free(v)
	if _, still := i.timers[id]; still {
		i.arm(id, t, t.repeat)
	}
	return nil
}

func (i *isolate) freeAll(values []qjs.Value) {
	for _, v := range values {
		i.vm.Free(v)
	}
}
