package kube

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
	"github.com/skein-dev/skein/hack/devcluster/internal/pki"
)

// startEtcd runs a single etcd on a free loopback port. Only holders of the API server's certificate can use it.
func startEtcd(ctx context.Context, d layout.Dir) (e *embed.Etcd, port int, err error) {
	for range 5 {
		e, port, err = tryEtcd(d)
		if !errors.Is(err, syscall.EADDRINUSE) {
			break // otherwise another process took the port before etcd could use it
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("etcd: %w", err)
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, port, nil
	case err = <-e.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(30 * time.Second):
		err = errors.New("not ready after 30 s")
	}
	e.Close()
	return nil, 0, fmt.Errorf("etcd: %w", err)
}

func tryEtcd(d layout.Dir) (*embed.Etcd, int, error) {
	port, err := freePort()
	if err != nil {
		return nil, 0, err
	}
	peer, err := freePort()
	if err != nil {
		return nil, 0, err
	}
	p := pki.Dir(d.PKI())
	c := embed.NewConfig()
	c.Dir = d.Etcd()
	c.LogLevel = "error"
	c.UnsafeNoFsync = true // the cluster does not outlive its processes
	c.TickMs, c.ElectionMs = 10, 100
	c.EnableGRPCGateway = false
	at := func(port int) []url.URL {
		return []url.URL{{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", port)}}
	}
	c.ListenClientUrls, c.AdvertiseClientUrls = at(port), at(port)
	c.ListenPeerUrls, c.AdvertisePeerUrls = at(peer), at(peer)
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	tls := transport.TLSInfo{CertFile: p.Cert(pki.Etcd), KeyFile: p.Key(pki.Etcd), TrustedCAFile: p.Cert(pki.EtcdCA), ClientCertAuth: true}
	c.ClientTLSInfo, c.PeerTLSInfo = tls, tls
	e, err := embed.StartEtcd(c)
	return e, port, err
}
