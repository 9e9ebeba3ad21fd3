package metrics

import "sync"

// other is the name of everything that has no series of its own.
const other = "(other)"

// names decides which names have series of their own: the first so many. It is safe for concurrent use.
type names struct {
	most int

	mu    sync.RWMutex
	known map[[2]string]bool
}

func newNames(most int) *names { return &names{most: most, known: map[[2]string]bool{}} }

// of returns the label of a name.
func (n *names) of(name string) string {
	_, label := n.pair("", name)
	return label
}

// pair returns the labels of a name in a namespace.
func (n *names) pair(namespace, name string) (string, string) {
	key := [2]string{namespace, name}
	n.mu.RLock()
	has := n.known[key]
	n.mu.RUnlock()
	if has {
		return namespace, name
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.known[key] && len(n.known) >= n.most {
		return other, other
	}
	n.known[key] = true
	return namespace, name
}
