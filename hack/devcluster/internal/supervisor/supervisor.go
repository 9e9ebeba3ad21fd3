// Package supervisor is the long-running process of a cluster: it runs the control plane itself and, if there is a
// node, is the parent of the node's first process.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/skein-dev/skein/hack/devcluster/internal/addons"
	"github.com/skein-dev/skein/hack/devcluster/internal/flock"
	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
	"github.com/skein-dev/skein/hack/devcluster/internal/node"
	"github.com/skein-dev/skein/hack/devcluster/internal/pki"
	"github.com/skein-dev/skein/hack/devcluster/internal/ready"
)

// ControlPlane is a running control plane.
type ControlPlane interface {
	Failed() <-chan error
	Stop() error
}

// StartControlPlane starts a control plane and returns its ports. It is a parameter, so that this package does not
// import Kubernetes.
type StartControlPlane func(ctx context.Context, d layout.Dir, cfg layout.Config, progress func(string)) (ControlPlane, layout.State, error)

// Lines that the supervisor writes to up: text for people, or one of these.
const (
	ReadyLine    = "@ready"
	FailedPrefix = "@failed "
)

// Run starts the cluster that up configured in d, keeps it running until ctx ends or a part of it fails, and stops
// it. It writes progress to out, one line each, and closes out when the cluster is ready or has failed.
func Run(ctx context.Context, d layout.Dir, start StartControlPlane, out io.WriteCloser) error {
	lockCtx, cancel := context.WithTimeout(ctx, 2*time.Second)
	lock, err := flock.Wait(lockCtx, d.SupervisorLock(), nil)
	cancel()
	if err != nil {
		return fmt.Errorf("another supervisor runs in %s: %w", d, err)
	}
	defer lock.Unlock()
	s := &supervisor{dir: d, start: start, out: out, state: layout.State{SupervisorPID: os.Getpid()}}
	err = s.run(ctx)
	if err != nil {
		fmt.Fprintln(s.out, FailedPrefix+err.Error())
		s.state.Failure = err.Error()
	}
	s.out.Close()
	s.state.Ready = false
	return errors.Join(err, s.stop(), d.WriteState(s.state))
}

type supervisor struct {
	dir   layout.Dir
	cfg   layout.Config
	start StartControlPlane
	out   io.WriteCloser
	state layout.State

	controlPlane ControlPlane
	node         *node.Node
}

func (s *supervisor) progress(words string) { fmt.Fprintln(s.out, words) }

func (s *supervisor) run(ctx context.Context) (err error) {
	if s.cfg, err = s.dir.ReadConfig(); err != nil {
		return err
	}
	// The link to the node comes first: creating it claims the address ranges, and the API server listens on it.
	if err := node.Claim(&s.cfg); err != nil {
		return err
	}
	if err := s.dir.WriteConfig(s.cfg); err != nil {
		return err
	}
	names := pki.Names{NodeName: s.cfg.NodeName()}
	names.APIServer = append(names.APIServer, s.cfg.APIServiceIP())
	if s.cfg.Node {
		names.APIServer = append(names.APIServer, s.cfg.HostIP())
		names.Kubelet = append(names.Kubelet, s.cfg.NodeIP())
	}
	if err := pki.Write(pki.Dir(s.dir.PKI()), names); err != nil {
		return err
	}
	if s.cfg.Node {
		// The container runtime of the node starts at the same time as the control plane.
		if s.node, err = node.Start(s.dir, s.cfg, s.progress); err != nil {
			return fmt.Errorf("starting the node: %w", err)
		}
		s.state.NodeInitPID = s.node.PID()
	}
	if err := s.dir.WriteState(s.state); err != nil {
		return err
	}
	cp, ports, err := s.start(ctx, s.dir, s.cfg, s.progress)
	if err != nil {
		return err
	}
	s.controlPlane = cp
	s.state.APIPort, s.state.EtcdPort = ports.APIPort, ports.EtcdPort
	s.state.ManagerPort, s.state.SchedulerPort = ports.ManagerPort, ports.SchedulerPort
	if err := s.dir.WriteState(s.state); err != nil {
		return err
	}
	usable := make(chan error, 1)
	startCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { usable <- s.makeUsable(startCtx) }()
	var nodeEnded <-chan error
	if s.node != nil {
		nodeEnded = s.node.Ended()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-cp.Failed():
			return err
		case err := <-nodeEnded:
			return fmt.Errorf("the node ended: %w", err)
		case err := <-usable:
			if err != nil {
				return err
			}
			s.state.Ready = true
			if err := s.dir.WriteState(s.state); err != nil {
				return err
			}
			s.progress(ReadyLine)
			s.out.Close()
			s.out = nopCloser{io.Discard}
		}
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// makeUsable returns when pods can be created: the default ServiceAccount exists and, with a node, the node is Ready
// and cluster DNS answers on its Service address.
func (s *supervisor) makeUsable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	rc, err := clientcmd.BuildConfigFromFlags("", s.dir.Kubeconfig())
	if err != nil {
		return err
	}
	rc.UserAgent = "devcluster"
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	if s.node != nil {
		if err := addons.Install(ctx, client, s.cfg); err != nil {
			return err
		}
		if err := s.node.APIReady(); err != nil {
			return err
		}
		if err := ready.Node(ctx, client, s.cfg.NodeName()); err != nil {
			return err
		}
		s.progress("the node is ready")
	}
	if err := ready.Exists(ctx, "the default ServiceAccount", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	if s.node != nil {
		return s.node.WaitUsable(ctx)
	}
	return nil
}

// stop ends the node before the control plane, so that nothing on it waits for an API server that is gone.
func (s *supervisor) stop() error {
	var errs []error
	if s.node != nil {
		errs = append(errs, s.node.Stop())
	}
	if s.controlPlane != nil {
		errs = append(errs, s.controlPlane.Stop())
	}
	return errors.Join(errs...)
}
