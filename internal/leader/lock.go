package leader

import (
	"context"
	"slices"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock is a lock of client-go's leader election that ignores holders which are gone.
type lock struct {
	resourcelock.Interface
	former []string
}

// FreeOf returns l as a lock that counts as free while one of the former processes holds it.
//
// The election takes a free lock with a conditional update of what it has read, and adds one to the transitions, as
// with a lock that its holder released. So nothing is lost when another process takes it first, and no other process
// finds it free in between. No clocks are compared.
func FreeOf(former []string, l resourcelock.Interface) resourcelock.Interface {
	return &lock{Interface: l, former: former}
}

// Get implements resourcelock.Interface. It hides a former process as the holder.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && slices.Contains(l.former, record.HolderIdentity) {
		record.HolderIdentity = ""
	}
	return record, raw, err
}
