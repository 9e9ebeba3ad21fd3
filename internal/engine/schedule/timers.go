package schedule

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
)

// timerBatch is how many runs one read of the store returns.
const timerBatch = 1000

// Timers queues the threads of parked runs when what they wait for is due. The times are in the store; a Timers knows only when to
// look next. Each replica looks at the times until which it has parked runs itself. It also looks once in each interval, and then
// finds the runs that lost replicas have parked. It is safe for concurrent use.
type Timers struct {
	store    store.Store
	clock    clock.WithTicker
	interval time.Duration
	add      func(threadID string)
	log      logr.Logger
	earlier  chan struct{}

	mu   sync.Mutex
	next int64 // when to look, in microseconds since 1970
}

// NewTimers returns timers that call add with the ids of threads that are due.
func NewTimers(s store.Store, clk clock.WithTicker, interval time.Duration, add func(threadID string), log logr.Logger) *Timers {
	return &Timers{store: s, clock: clk, interval: interval, add: add, log: log, earlier: make(chan struct{}, 1)}
}

// Expect has Run look at a time, in microseconds since 1970, unless it looks earlier anyway. 0 is never.
func (t *Timers) Expect(at int64) {
	if at == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at < t.next {
		t.next = at
		select {
		case t.earlier <- struct{}{}:
		default:
		}
	}
}

// Run looks for due runs until ctx ends.
func (t *Timers) Run(ctx context.Context) {
	for ctx.Err() == nil {
		// Expect handles runs that are parked from here on. look finds those that were parked before.
		t.mu.Lock()
		t.next = t.clock.Now().Add(t.interval).UnixMicro()
		t.mu.Unlock()
		if err := t.look(ctx); err != nil && ctx.Err() == nil {
			t.log.Error(err, "cannot look for runs that are due; the next look is in a second")
			t.Expect(t.clock.Now().Add(time.Second).UnixMicro())
		}
		for again := false; !again && ctx.Err() == nil; {
			t.mu.Lock()
			wait := time.Duration(t.next-t.clock.Now().UnixMicro()) * time.Microsecond
			t.mu.Unlock()
			timer := t.clock.NewTimer(max(wait, 0))
			select {
			case <-ctx.Done():
			case <-t.earlier:
			case <-timer.C():
				again = true
			}
			timer.Stop()
		}
	}
}

// look queues the threads that are due, and finds out when the next one is.
func (t *Timers) look(ctx context.Context) error {
	for offset := 0; ; offset += timerBatch {
		page, err := t.store.Wakes(ctx, timerBatch, offset)
		if err != nil {
			return err
		}
		for _, due := range page {
			if due.At > t.clock.Now().UnixMicro() {
				t.Expect(due.At)
				return nil
			}
			t.add(due.ThreadID)
		}
		if len(page) < timerBatch {
			return nil
		}
		// Those that begin meanwhile move others into the pages that were read.
		t.Expect(t.clock.Now().Add(t.interval / 3).UnixMicro())
	}
}
