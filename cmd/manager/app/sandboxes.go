package app

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/internal/controller"
	"github.com/skein-dev/skein/internal/kube/sandboxca"
	"github.com/skein-dev/skein/internal/kube/sandboxes"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/sandbox"
	sandboxclient "github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/pki"
	"github.com/skein-dev/skein/internal/sandbox/process"
)

// codeRunner holds what runs the code of threads.
type codeRunner struct {
	port  sandboxes.Port
	pools controller.Pools
	close func() error
}

// openSandboxes prepares pods or local processes, as the flags say.
func (o *Options) openSandboxes(ctx context.Context, cfg *rest.Config, mgr ctrl.Manager) (*codeRunner, error) {
	if o.Sandbox == SandboxProcess {
		return o.processSandboxes(mgr.GetClient())
	}
	return o.podSandboxes(ctx, cfg, mgr)
}

func (o *Options) processSandboxes(c client.Client) (*codeRunner, error) {
	if o.inCluster() {
		o.Logger.Info("code of threads runs as processes of the manager's own pod, as --sandbox=process asks; sandbox pods are the safer choice in a cluster")
	}
	pool, err := process.New(process.Options{Deno: o.SandboxDeno, Log: logWriter{o.Logger.WithName("sandbox")}})
	if err != nil {
		return nil, fmt.Errorf("--sandbox=process: %w", err)
	}
	port := sandboxes.NewProcesses(pool, c)
	return &codeRunner{port: port, pools: controller.Pools{ProcessMode: true}, close: port.Close}, nil
}

func (o *Options) podSandboxes(ctx context.Context, cfg *rest.Config, mgr ctrl.Manager) (*codeRunner, error) {
	live, err := client.New(cfg, client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return nil, err
	}
	authority := sandboxca.New(live, o.Namespace, clock.RealClock{}, sandboxca.DefaultTerms())
	if err := authority.Load(ctx); err != nil {
		return nil, err
	}
	settings := sandboxpod.Settings{Image: o.SandboxImage, V8Image: o.SandboxV8Image, ImagePullPolicy: corev1.PullPolicy(o.SandboxImagePullPolicy), ProfilePort: o.SandboxPprofPort}
	configs := &pki.ClientConfigs{}
	connections := sandboxclient.NewConnections(authority.Client, configs)
	port := sandboxes.NewPods(sandboxes.PodsOptions{
		Client:      mgr.GetClient(),
		Dial:        dialer(authority, configs, connections),
		Connections: connections,
		Settings:    settings,
		Clock:       ownclock.Clock{},
		Logger:      o.Logger.WithName("sandboxes"),
	})
	if err := port.Watch(ctx, mgr.GetCache()); err != nil {
		return nil, err
	}
	pools := controller.Pools{Settings: settings, Authority: authority, Account: o.account}
	if o.inCluster() {
		pools.ManagerNamespace = o.Namespace
	}
	return &codeRunner{port: port, pools: pools, close: port.Close}, nil
}

// dialer returns a Dial that connects to sandbox pods with certificates of the authority.
func dialer(authority *sandboxca.Authority, configs *pki.ClientConfigs, connections *sandboxclient.Connections) sandboxes.Dial {
	return func(ctx context.Context, e sandboxes.Endpoint) (sandbox.Sandbox, error) {
		c, err := sandboxclient.Dial(sandboxclient.Options{
			Address: e.Address, ServerName: e.ServerName, Credentials: authority.Client, Configs: configs,
			Connections: connections, ConnectionName: e.ConnectionName, ThreadID: e.ThreadID, MaxWallTime: e.MaxWallTime, DialTimeout: e.DialTimeout, Answered: e.Answered,
		})
		if err != nil {
			return nil, err
		}
		if err := c.Connect(ctx); err != nil {
			_ = c.Close()
			return nil, err
		}
		return c, nil
	}
}
