package membudget

import "context"

// Reserve draws n bytes from the account of ctx for a value whose size is not known yet. Call adjust with the size once the value is in
// memory. adjust draws what is missing, even if the budget has no room for it, because the memory is in use already. It returns what was too much.
func Reserve(ctx context.Context, n int64) (adjust func(size int64), err error) {
	a := From(ctx)
	if err := a.Draw(ctx, n); err != nil {
		return nil, err
	}
	return func(size int64) {
		if size > n {
			a.take(size - n)
			return
		}
		a.Return(n - size)
	}, nil
}

// take draws n bytes that are in use already.
func (a *Account) take(n int64) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.held += n
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.budget.grant(a.namespace, n)
}
