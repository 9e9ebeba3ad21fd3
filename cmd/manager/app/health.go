package app

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/skein-dev/skein/internal/apiserver"
)

// addHealth serves /healthz, which says that the process answers, and /readyz, which says that it can work: caches
// are filled, and the store can be read and written.
func (o *Options) addHealth(mgr ctrl.Manager, lead *leading, data *data, api *apiserver.Server, d *draining) error {
	ready := &readiness{mgr: mgr}
	ready.started = func() {
		if o.Started == nil {
			return
		}
		var a Addresses
		if api != nil {
			a.RuntimeAPI, a.CABundle = api.Addr(), api.CABundle()
		}
		o.Started(a)
	}
	err := errors.Join(
		o.addOneReplica(mgr, lead),
		mgr.Add(ready),
		mgr.AddHealthzCheck("ping", healthz.Ping),
	)
	for name, check := range readyChecks(ready, data, d) {
		err = errors.Join(err, mgr.AddReadyzCheck(name, check))
	}
	return err
}

// readyChecks are the checks of /readyz, by their names.
func readyChecks(ready *readiness, data *data, d *draining) map[string]healthz.Checker {
	return map[string]healthz.Checker{
		"caches":   ready.check,
		"draining": d.check,
		"store": func(r *http.Request) error {
			ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
			defer cancel()
			return data.store.Ping(ctx)
		},
	}
}

// readiness is ready once the caches are filled. controller-runtime starts it after them.
type readiness struct {
	mgr     ctrl.Manager
	started func()
	filled  atomic.Bool
}

// Start implements manager.Runnable.
func (r *readiness) Start(ctx context.Context) error {
	if !r.mgr.GetCache().WaitForCacheSync(ctx) {
		return nil // ctx ended
	}
	r.filled.Store(true)
	r.started()
	<-ctx.Done()
	return nil
}

// NeedLeaderElection returns false: every replica can be ready.
func (r *readiness) NeedLeaderElection() bool { return false }

func (r *readiness) check(*http.Request) error {
	if !r.filled.Load() {
		return errors.New("the caches are being filled")
	}
	return nil
}
