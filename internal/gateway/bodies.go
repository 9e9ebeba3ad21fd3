package gateway

import (
	"io"
	"sync/atomic"

	"github.com/skein-dev/skein/internal/membudget"
)

// maxGatewayBodies bounds the bodies of one gateway that are in memory at once, so that a flood at one leaves room for the others of its
// namespace. What all of them take is drawn from the memory of the namespace.
const maxGatewayBodies = 16 << 20

// budget is a number of bytes that may be in memory.
type budget struct{ left atomic.Int64 }

func newBudget(n int64) *budget {
	b := &budget{}
	b.left.Store(n)
	return b
}

func (b *budget) take(n int64) bool {
	if b.left.Add(-n) >= 0 {
		return true
	}
	b.left.Add(n)
	return false
}

// metered reads a body, and counts what has been read until release. A client that sends slowly holds no more than it has
// sent.
type metered struct {
	io.Reader
	own    *budget
	taken  int64
	memory *membudget.Account // what the body and what is read from it take; nil is without limit
}

// Read implements io.Reader. It fails with errBodies when there is no room.
func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if !m.own.take(int64(n)) {
		return 0, errBodies
	}
	m.taken += int64(n)
	return n, err
}

// release says that the body is needed no more. It may be called twice.
func (m *metered) release() {
	if m == nil {
		return
	}
	m.own.left.Add(m.taken)
	m.taken = 0
	m.memory.Close()
}
