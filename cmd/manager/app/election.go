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
	// renewDeadline is how long the leader tries to renew its lease before it gives up. It is controller-runtime's own default.
	renewDeadline = 10 * time.Second
)

// election is how this replica stands for election.
type election struct {
	lease *resourcelock.LeaseLock
	lock  resourcelock.Interface
}

// newElection returns nil where there is nothing to say that controller-runtime does not do by itself: without leader election, and
// on PostgreSQL, where replicas that live share the data.
func (o *Options) newElection(cfg *rest.Config) (*election, error) {
	if o.Store != StoreSQLite || !o.LeaderElect {
		return nil, nil
	}
	former, err := leader.Register(sqlstore.LockFile(o.DataDir), o.Identity)
	if err != nil {
		o.Logger.Error(err, "This replica waits for the lease of the one before it, if that was killed, and so may the next one")
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

// configure makes a manager with these options stand for election so.
func (e *election) configure(options *ctrl.Options) {
	if e != nil {
		options.LeaderElectionResourceLockInterface = e.lock
	}
}

// record has Events written of elections.
func (e *election) record(mgr ctrl.Manager) {
	if e != nil {
		e.lease.LockConfig.EventRecorder = mgr.GetEventRecorderFor(e.lease.Identity()) //nolint:staticcheck // client-go's election takes this kind
	}
}
