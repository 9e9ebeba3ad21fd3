package objects

import (
	"context"
	"errors"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespaces reads the UIDs of namespaces from the API server. Callers that ask for the same namespace at the same time share a read. A
// caller gets only what was read after it asked, so the answer is as good as that of a read of its own.
type Namespaces struct {
	live client.Reader

	mu sync.Mutex
	// under has the reads that have begun, and next those that begin when they end, by the name of the namespace.
	under, next map[string]*namespaceRead
}

// namespaceRead is one read that callers share. uid and err are valid once done is closed.
type namespaceRead struct {
	done chan struct{}
	uid  string
	err  error
}

// errNotRead is the result of a read whose caller did not return.
var errNotRead = errors.New("the namespace was not read")

// NewNamespaces returns a Namespaces. live reads from the API server, because a cache may still have an earlier namespace of the same name.
func NewNamespaces(live client.Reader) *Namespaces {
	return &Namespaces{live: live, under: map[string]*namespaceRead{}, next: map[string]*namespaceRead{}}
}

// UID returns the UID of a namespace; "" when it does not exist.
func (n *Namespaces) UID(ctx context.Context, name string) (string, error) {
	n.mu.Lock()
	if shared := n.next[name]; shared != nil {
		n.mu.Unlock()
		return n.await(ctx, name, shared)
	}
	under, own := n.under[name], &namespaceRead{done: make(chan struct{}), err: errNotRead}
	n.next[name] = own
	n.mu.Unlock()
	defer n.end(name, own)
	if under != nil {
		select {
		case <-under.done:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	n.begin(name, own)
	own.uid, own.err = NamespaceUID(ctx, n.live, name)
	return own.uid, own.err
}

// await returns the result of another caller's read, or reads the namespace itself if that one failed: its context may have ended.
func (n *Namespaces) await(ctx context.Context, name string, shared *namespaceRead) (string, error) {
	select {
	case <-shared.done:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if shared.err != nil {
		return NamespaceUID(ctx, n.live, name)
	}
	return shared.uid, nil
}

// begin makes later callers wait for the read after this one.
func (n *Namespaces) begin(name string, own *namespaceRead) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.next, name)
	n.under[name] = own
}

func (n *Namespaces) end(name string, own *namespaceRead) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, reads := range []map[string]*namespaceRead{n.under, n.next} {
		if reads[name] == own {
			delete(reads, name)
		}
	}
	close(own.done)
}
