package netpol

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// Enforcer keeps the table up to date.
type Enforcer struct {
	podCIDR   netip.Prefix
	sandboxes *sandboxes
	dirty     chan struct{}
	last      string
}

// New returns an enforcer for pods with addresses in podCIDR in the container runtime at socket.
func New(podCIDR netip.Prefix, socket string) (*Enforcer, error) {
	e := &Enforcer{podCIDR: podCIDR, dirty: make(chan struct{}, 1)}
	var err error
	e.sandboxes, err = newSandboxes(socket, e.mark)
	return e, err
}

func (e *Enforcer) mark() {
	select {
	case e.dirty <- struct{}{}:
	default:
	}
}

// Lock installs the table for a state without pods, which blocks the pods' whole range.
func (e *Enforcer) Lock(ctx context.Context) error {
	return e.apply(ctx, State{PodCIDR: e.podCIDR})
}

// Run follows pods, namespaces and policies until ctx ends. It leaves the last table in place.
func (e *Enforcer) Run(ctx context.Context, kubeconfig string) error {
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	rc.UserAgent = "devcluster-network-policy"
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	f := informers.NewSharedInformerFactory(client, 0)
	pods, nss, policies := f.Core().V1().Pods(), f.Core().V1().Namespaces(), f.Networking().V1().NetworkPolicies()
	h := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { e.mark() }, UpdateFunc: func(any, any) { e.mark() }, DeleteFunc: func(any) { e.mark() },
	}
	for _, i := range []cache.SharedIndexInformer{pods.Informer(), nss.Informer(), policies.Informer()} {
		if _, err := i.AddEventHandler(h); err != nil {
			return err
		}
	}
	f.Start(ctx.Done())
	defer f.Shutdown()
	for t, ok := range f.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("network policies: %s were not listed: %w", t, context.Cause(ctx))
		}
	}
	go e.sandboxes.follow(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.dirty:
		}
		s := State{PodCIDR: e.podCIDR, Namespaces: map[string]map[string]string{}}
		for _, sb := range e.sandboxes.list() {
			p, err := pods.Lister().Pods(sb.namespace).Get(sb.name)
			if err == nil && string(p.UID) == sb.uid {
				s.Pods = append(s.Pods, Pod{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, IP: sb.ip, Ports: ports(p)})
			}
		}
		list, err := nss.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		for _, n := range list {
			s.Namespaces[n.Name] = n.Labels
		}
		if s.Policies, err = policies.Lister().List(labels.Everything()); err != nil {
			return err
		}
		if err := e.apply(ctx, s); err != nil && ctx.Err() == nil {
			// The table stays as it is, so that new pods stay blocked.
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func ports(p *corev1.Pod) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, c := range p.Spec.Containers {
		out = append(out, c.Ports...)
	}
	return out
}

func (e *Enforcer) apply(ctx context.Context, s State) error {
	script := Render(s)
	if script == e.last {
		return nil
	}
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("network policies: nft: %w: %s", err, bytes.TrimSpace(out))
	}
	e.last = script
	return nil
}
