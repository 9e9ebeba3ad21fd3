package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/logs"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
	"github.com/skein-dev/skein/hack/devcluster/internal/pki"
)

// ControlPlane is etcd, the API server, the controller manager and the scheduler, running in this process.
type ControlPlane struct {
	// Ports are the ports on which they listen.
	Ports layout.State

	dir  layout.Dir
	cfg  layout.Config
	pki  pki.Dir
	etcd *embed.Etcd

	stopControllers, stopAPI func()
	failed                   chan error // gets one error for each component that ended
	controllers, api         sync.WaitGroup
}

// Start starts the control plane and returns once the API server is ready. The certificates must exist already. It
// calls progress with a few words after each stage. A process can call it only once.
func Start(ctx context.Context, d layout.Dir, cfg layout.Config, progress func(string)) (_ *ControlPlane, err error) {
	logs.InitLogs()
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // users need not know that the components use old APIs
	c := &ControlPlane{dir: d, cfg: cfg, pki: pki.Dir(d.PKI()), failed: make(chan error, 3)}
	apiCtx, stopAPI := context.WithCancel(context.Background())
	ctlCtx, stopControllers := context.WithCancel(context.Background())
	c.stopAPI, c.stopControllers = stopAPI, stopControllers
	defer func() {
		if err != nil {
			_ = c.Stop()
		}
	}()

	loopback := netip.MustParseAddr("127.0.0.1")
	addrs := []netip.Addr{loopback}
	if cfg.Node {
		addrs = append(addrs, cfg.HostIP())
	}
	api, err := listen(addrs...)
	if err != nil {
		return nil, err
	}
	manager, err := listen(loopback)
	if err != nil {
		return nil, err
	}
	sched, err := listen(loopback)
	if err != nil {
		return nil, err
	}
	c.Ports = layout.State{APIPort: api.port(), ManagerPort: manager.port(), SchedulerPort: sched.port()}
	if c.etcd, c.Ports.EtcdPort, err = startEtcd(ctx, d); err != nil {
		return nil, err
	}
	progress("etcd is ready")
	if err := c.kubeconfigs(); err != nil {
		return nil, err
	}
	flags, err := c.apiServerFlags()
	if err != nil {
		return nil, err
	}
	c.run(&c.api, "kube-apiserver", func() error { return runAPIServer(apiCtx, api, flags) })
	if err := c.waitReady(ctx); err != nil {
		return nil, err
	}
	progress("the API server is ready")
	if cfg.CRDs != "" {
		if err := c.installCRDs(ctx); err != nil {
			return nil, err
		}
		progress("the custom resources are there")
	}
	c.run(&c.controllers, "kube-controller-manager", func() error { return runControllerManager(ctlCtx, manager, c.controllerManagerFlags()) })
	c.run(&c.controllers, "kube-scheduler", func() error { return runScheduler(ctlCtx, sched, c.schedulerFlags()) })
	return c, nil
}

func (c *ControlPlane) run(group *sync.WaitGroup, name string, f func() error) {
	group.Go(func() {
		err := f()
		if err == nil {
			err = errors.New("ended")
		}
		c.failed <- fmt.Errorf("%s: %w", name, err)
	})
}

// Failed returns a channel that gets an error when a component ends. None should end before Stop.
func (c *ControlPlane) Failed() <-chan error { return c.failed }

// Stop ends the controllers, then the API server, then etcd, because each needs the next. A component that does not
// end in time ends with the process.
func (c *ControlPlane) Stop() error {
	c.stopControllers()
	ok := within(4*time.Second, c.controllers.Wait)
	c.stopAPI()
	if !within(4*time.Second, c.api.Wait) || !ok {
		return errors.New("the control plane did not stop in time")
	}
	if c.etcd != nil {
		c.etcd.Close()
	}
	logs.FlushLogs()
	return nil
}

// within reports whether f returned in time.
func within(d time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// waitReady returns once the API server's /readyz answers 200.
func (c *ControlPlane) waitReady(ctx context.Context) error {
	tls, err := c.pki.ClientTLS(pki.Admin)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{TLSClientConfig: tls}}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeoutCause(ctx, 90*time.Second, errors.New("kube-apiserver: not ready after 90 s"))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-c.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		r, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/readyz", c.Ports.APIPort))
		if err != nil {
			continue
		}
		r.Body.Close()
		if r.StatusCode == http.StatusOK {
			return nil
		}
	}
}
