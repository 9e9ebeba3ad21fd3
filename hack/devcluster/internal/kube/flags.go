package kube

import (
	"fmt"
	"os"

	"github.com/skein-dev/skein/hack/devcluster/internal/pki"
)

// auditPolicy records who called what, without bodies: enough to count writes by user agent, without secrets.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

func (c *ControlPlane) apiServerFlags() ([]string, error) {
	p, cfg := c.pki, c.cfg
	advertise, reconciler := "127.0.0.1", "none" // an Endpoints object cannot name a loopback address
	if cfg.Node {
		advertise, reconciler = cfg.HostIP().String(), "lease"
	}
	f := []string{
		fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", c.Ports.EtcdPort),
		"--etcd-cafile=" + p.Cert(pki.EtcdCA), "--etcd-certfile=" + p.Cert(pki.EtcdClient), "--etcd-keyfile=" + p.Key(pki.EtcdClient),
		fmt.Sprintf("--secure-port=%d", c.Ports.APIPort), // the listener is ours; this is for the default of --external-hostname
		"--advertise-address=" + advertise,
		"--endpoint-reconciler-type=" + reconciler,
		"--service-cluster-ip-range=" + cfg.ServiceCIDR.String(),
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + p.Cert(pki.CA),
		"--tls-cert-file=" + p.Cert(pki.APIServer), "--tls-private-key-file=" + p.Key(pki.APIServer),
		"--kubelet-client-certificate=" + p.Cert(pki.KubeletClient), "--kubelet-client-key=" + p.Key(pki.KubeletClient),
		"--kubelet-certificate-authority=" + p.Cert(pki.CA),
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + p.Key(pki.ServiceAccounts), "--service-account-signing-key-file=" + p.Key(pki.ServiceAccounts),
		// The aggregation layer tells an aggregated API server on whose behalf a request comes. With a node, requests
		// go to endpoints and not to Service addresses, because kube-proxy does not run where the API server does.
		// Without a node, an aggregated server can only be a process of this machine. It is reached by name, as a
		// Service of type ExternalName, because endpoints cannot be loopback addresses.
		"--requestheader-client-ca-file=" + p.Cert(pki.FrontProxyCA), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + p.Cert(pki.FrontProxyClient), "--proxy-client-key-file=" + p.Key(pki.FrontProxyClient),
		fmt.Sprintf("--enable-aggregator-routing=%t", cfg.Node),
		"--shutdown-delay-duration=0s",
	}
	if cfg.Audit {
		if err := os.WriteFile(c.dir.AuditPolicy(), []byte(auditPolicy), 0o600); err != nil {
			return nil, err
		}
		f = append(f, "--audit-policy-file="+c.dir.AuditPolicy(), "--audit-log-path="+c.dir.AuditLog(), "--audit-log-format=json")
	}
	return f, nil
}

func (c *ControlPlane) controllerManagerFlags() []string {
	p := c.pki
	return append(c.clientFlags(pki.ControllerManager, c.Ports.ManagerPort),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+p.Key(pki.ServiceAccounts), "--root-ca-file="+p.Cert(pki.CA),
		"--cluster-signing-cert-file="+p.Cert(pki.CA), "--cluster-signing-key-file="+p.Key(pki.CA),
		"--allocate-node-cidrs=true", "--cluster-cidr="+c.cfg.PodCIDR.String(), "--service-cluster-ip-range="+c.cfg.ServiceCIDR.String(),
		fmt.Sprintf("--node-cidr-mask-size=%d", c.cfg.PodCIDR.Bits()), // the one node gets the whole range
	)
}

func (c *ControlPlane) schedulerFlags() []string {
	return c.clientFlags(pki.Scheduler, c.Ports.SchedulerPort)
}

// clientFlags returns the flags that the controller manager and the scheduler share.
func (c *ControlPlane) clientFlags(name string, port int) []string {
	k := c.pki.Kubeconfig(name)
	return []string{
		"--kubeconfig=" + k, "--authentication-kubeconfig=" + k, "--authorization-kubeconfig=" + k,
		fmt.Sprintf("--secure-port=%d", port), "--tls-cert-file=" + c.pki.Cert(name), "--tls-private-key-file=" + c.pki.Key(name),
		"--leader-elect=false",
		"--kube-api-qps=1000", "--kube-api-burst=1000", // with the defaults the start would wait for seconds
	}
}

// kubeconfigs writes the kubeconfig of each client of this API server: over loopback on the host, over the link from
// the node.
func (c *ControlPlane) kubeconfigs() error {
	at := func(host string) string { return fmt.Sprintf("https://%s:%d", host, c.Ports.APIPort) }
	write := func(path, name, server string) error {
		return c.pki.WriteKubeconfig(path, name, server, "devcluster-"+c.cfg.Name)
	}
	for _, n := range []string{pki.ControllerManager, pki.Scheduler} {
		if err := write(c.pki.Kubeconfig(n), n, at("127.0.0.1")); err != nil {
			return err
		}
	}
	if c.cfg.Node {
		for _, n := range []string{pki.Kubelet, pki.KubeProxy, pki.NetworkPolicy} {
			if err := write(c.pki.Kubeconfig(n), n, at(c.cfg.HostIP().String())); err != nil {
				return err
			}
		}
	}
	return write(c.dir.Kubeconfig(), pki.Admin, at("127.0.0.1"))
}
