package membudget

import (
	"context"
	"errors"
	"sync"
)

// Account is what one piece of work has drawn, such as a request, a call of a tool, or a run. Closing it returns everything. It is
// safe for concurrent use. A nil Account has no limit.
type Account struct {
	budget    *Budget
	namespace string

	mu     sync.Mutex
	held   int64
	ahead  int64 // the part of held that later draws use first
	closed bool
}

// ErrClosed means that work goes on after its account was closed. No caller waits for its result.
var ErrClosed = errors.New("the work that this memory was for has ended")

// Open returns an account for work of a namespace. Close must be called.
func (b *Budget) Open(namespace string) *Account {
	if b == nil {
		return nil
	}
	return &Account{budget: b, namespace: namespace}
}

// Open returns another account of the same namespace, for a part of the work that ends before all of it.
func (a *Account) Open() *Account {
	if a == nil {
		return nil
	}
	return a.budget.Open(a.namespace)
}

// Draw takes n bytes. It waits while there is no room, and returns a *BusyError when that takes too long and a *TooLargeError when it
// would never end.
func (a *Account) Draw(ctx context.Context, n int64) error { return a.draw(ctx, n, true) }

// TryDraw is Draw that does not wait.
func (a *Account) TryDraw(n int64) error { return a.draw(context.Background(), n, false) }

func (a *Account) draw(ctx context.Context, n int64, wait bool) error {
	if a == nil || n <= 0 {
		return nil
	}
	a.mu.Lock()
	ahead := min(a.ahead, n)
	a.ahead -= ahead
	a.mu.Unlock()
	if n -= ahead; n == 0 {
		return nil
	}
	err := a.budget.draw(ctx, a.namespace, n, wait)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err != nil:
		a.ahead = min(a.ahead+ahead, a.held)
		return err
	case a.closed:
		a.budget.put(a.namespace, n)
		return ErrClosed
	}
	a.held += n
	return nil
}

// DrawAhead is Draw for memory that is needed in several steps. Later draws of the account use the n bytes first, and do not wait
// for them. So work never waits for the rest of what it needs while it holds a part of it.
func (a *Account) DrawAhead(ctx context.Context, n int64) error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	ahead := a.ahead
	a.ahead = 0 // it is for others
	a.mu.Unlock()
	err := a.Draw(ctx, n)
	if err == nil {
		ahead += n
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ahead = min(a.ahead+ahead, a.held)
	return err
}

// Return gives n bytes back before the account is closed.
func (a *Account) Return(n int64) {
	if a == nil || n <= 0 {
		return
	}
	a.mu.Lock()
	n = min(n, a.held)
	a.held -= n
	a.ahead = min(a.ahead, a.held)
	a.mu.Unlock()
	a.budget.put(a.namespace, n)
}

// MoveTo makes everything that the account has drawn belong to another account of the same budget and namespace, and returns how much
// that is. It returns 0 when the other account is closed: then the memory is returned to the budget.
func (a *Account) MoveTo(to *Account) int64 {
	if a == nil || to == nil {
		return 0
	}
	a.mu.Lock()
	n := a.held
	a.held, a.ahead = 0, 0
	a.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.closed {
		to.budget.put(to.namespace, n)
		return 0
	}
	to.held += n
	return n
}

// Drawn returns how many bytes the account has drawn.
func (a *Account) Drawn() int64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held
}

// Close returns everything. What is drawn afterwards is refused. Further calls do nothing.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	n := a.held
	a.held, a.ahead, a.closed = 0, 0, true
	a.mu.Unlock()
	a.budget.put(a.namespace, n)
}

type key struct{}

// With returns a context in which From finds the account.
func With(ctx context.Context, a *Account) context.Context { return context.WithValue(ctx, key{}, a) }

// From returns the account of the work that ctx belongs to. It returns nil, which is without limit, where there is none.
func From(ctx context.Context) *Account {
	a, _ := ctx.Value(key{}).(*Account)
	return a
}

// Part opens an account for a part of the work that ctx belongs to, and returns a context with it. done closes it.
func Part(ctx context.Context) (part context.Context, done func()) {
	a := From(ctx).Open()
	if a == nil {
		return ctx, func() {}
	}
	return With(ctx, a), a.Close
}

// Begin opens an account for work of a namespace, and returns a context with it. done closes it.
func (b *Budget) Begin(ctx context.Context, namespace string) (work context.Context, done func()) {
	a := b.Open(namespace)
	if a == nil {
		return ctx, func() {}
	}
	return With(ctx, a), a.Close
}
