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
	// renewDeadline is how long the leader tries to renew its lease before it gives up. It is controller-runtime's
	// own default.
	renewDeadline = 10 * time.Second
)

// election configures how this replica takes part in the leader election.
type election struct {
	lease *resourcelock.LeaseLock
	lock  resourcelock.Interface
}

// newElection returns nil where controller-runtime's defaults suffice: without leader election, and on PostgreSQL,
// where replicas run at the same time and share the data.
func (o *Options) newElection(cfg *rest.Config) (*election, error) {
	if o.Store != StoreSQLite || !o.LeaderElect {
		return nil, nil
	}
	former, err := leader.Register(sqlstore.LockFile(o.DataDir), o.Identity)
	if err != nil {
		o.Logger.Error(err, "Cannot register for the election: if the previous replica was killed, this one waits until its lease expires, and so may the next one")
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
	return &election{lease: lease, lock: leader.After(former, lease)}, nil
}

// configure sets the options of a manager for this election.
func (e *election) configure(options *ctrl.Options) {
	if e != nil {
		options.LeaderElectionResourceLockInterface = e.lock
	}
}

// record makes elections record Events.
func (e *election) record(mgr ctrl.Manager) {
	if e != nil {
		e.lease.LockConfig.EventRecorder = mgr.GetEventRecorderFor(e.lease.Identity()) //nolint:staticcheck // client-go's election takes this kind
	}
}
