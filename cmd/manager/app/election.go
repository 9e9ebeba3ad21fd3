package app

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/skein-dev/skein/internal/leader"
	"github.com/skein-dev/skein/internal/store/sqlstore"
)

const (
	leaderElectionID = "manager.skein.dev"
	// leaseDuration is how long others wait for a leader that does not renew its lease. renewDeadline is how long the
	// leader tries to renew it before it gives up, and retryPeriod the pause between attempts. They are
	// controller-runtime's own defaults.
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// election configures how this replica takes part in the leader election.
type election struct {
	lease *resourcelock.LeaseLock
	lock  resourcelock.Interface
}

// newElection returns nil without leader election.
func (o *Options) newElection(cfg *rest.Config) (*election, error) {
	if !o.LeaderElect {
		return nil, nil
	}
	cfg = rest.AddUserAgent(cfg, "leader-election")
	// One request that hangs must not cost the lease.
	cfg.Timeout = renewDeadline / 2
	leases, err := coordinationv1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("stand for election: %w", err)
	}
	lease := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: leaderElectionID},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
	}
	if o.Store != StoreSQLite {
		return &election{lease: lease, lock: lease}, nil
	}
	// On SQLite the owner of a data folder may take the lease of the folder's former owner at once.
	former, err := leader.Register(sqlstore.LockFile(o.DataDir), o.Identity)
	if err != nil {
		o.Logger.Error(err, "Cannot register for the election: if the previous replica was killed, this one waits until its lease expires, and so may the next one")
	}
	return &election{lease: lease, lock: leader.FreeOf(former, lease)}, nil
}

// recordEvents makes the election record an Event whenever a replica becomes the leader. It does nothing without an election.
func (e *election) recordEvents(mgr ctrl.Manager) {
	if e != nil {
		e.lease.LockConfig.EventRecorder = mgr.GetEventRecorderFor(e.lease.Identity()) //nolint:staticcheck // client-go's election takes this kind
	}
}
