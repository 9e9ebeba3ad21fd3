package scopes

import (
	"context"

	"github.com/skein-dev/skein/internal/membudget"
)

// held is the memory that is drawn for a value. It is returned when neither a change that is not stored nor a table has the value any
// more. The lock of the scope guards it. A nil held is no memory.
type held struct {
	of    *membudget.Account
	bytes int64
	uses  int
}

// take makes what the account of ctx has drawn belong to an account of a scope. The caller calls drop when it is done.
func take(ctx context.Context, of *membudget.Account) *held {
	return heldBy(of, membudget.From(ctx).MoveTo(of))
}

// heldBy returns memory that an account has drawn already.
func heldBy(of *membudget.Account, bytes int64) *held {
	if bytes == 0 {
		return nil
	}
	return &held{of: of, bytes: bytes, uses: 1}
}

// keep counts one more use, and returns h.
func (h *held) keep() *held {
	if h != nil {
		h.uses++
	}
	return h
}

// drop ends one use.
func (h *held) drop() {
	if h == nil {
		return
	}
	if h.uses--; h.uses == 0 {
		h.of.Return(h.bytes)
	}
}

// kept is the memory of one entry: that of the value that was set, and that of each element that was pushed onto it.
type kept struct {
	set    *held
	pushed []*held
}

// first drops the memory of the first n elements of an array of size elements.
func (k *kept) first(n, size int) {
	n -= size - len(k.pushed) // the value that was set is held until all of its elements are gone
	if n < 0 {
		return
	}
	k.set.drop()
	k.set = nil
	for _, h := range k.pushed[:n] {
		h.drop()
	}
	k.pushed = k.pushed[n:]
}

func (k *kept) drop() {
	if k != nil {
		k.set.drop()
		for _, h := range k.pushed {
			h.drop()
		}
	}
}
