// Package pki creates a cluster's certificates and kubeconfigs. They are created for each start and live as long as
// the run directory.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Names of certificates.
const (
	CA                = "ca"
	FrontProxyCA      = "front-proxy-ca"
	EtcdCA            = "etcd-ca"
	APIServer         = "apiserver"
	KubeletClient     = "apiserver-kubelet-client"
	FrontProxyClient  = "front-proxy-client"
	Etcd              = "etcd"
	EtcdClient        = "etcd-client"
	ControllerManager = "controller-manager"
	Scheduler         = "scheduler"
	Kubelet           = "kubelet"
	KubeProxy         = "kube-proxy"
	Admin             = "admin"
	NetworkPolicy     = "network-policy"
	// ServiceAccounts is the key that signs tokens. It has no certificate.
	ServiceAccounts = "service-accounts"
)

// Dir is the folder of the certificates.
type Dir string

// Cert returns the path of a certificate, Key that of its key, and Kubeconfig that of the kubeconfig that uses both.
func (d Dir) Cert(name string) string       { return filepath.Join(string(d), name+".crt") }
func (d Dir) Key(name string) string        { return filepath.Join(string(d), name+".key") }
func (d Dir) Kubeconfig(name string) string { return filepath.Join(string(d), name+".kubeconfig") }

// Names are the addresses and names in server certificates.
type Names struct {
	NodeName string
	// APIServer are the addresses of the API server, Kubelet those of the node. Loopback is always included.
	APIServer, Kubelet []netip.Addr
}

type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

type spec struct {
	name    string
	ca      *pair
	subject pkix.Name
	dns     []string
	ips     []netip.Addr
}

// Write creates every certificate.
func Write(d Dir, n Names) error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	cas := map[string]*pair{}
	for _, name := range []string{CA, FrontProxyCA, EtcdCA} {
		p, err := d.issue(spec{name: name, subject: pkix.Name{CommonName: "devcluster-" + name}})
		if err != nil {
			return err
		}
		cas[name] = p
	}
	ca, front, etcd := cas[CA], cas[FrontProxyCA], cas[EtcdCA]
	local := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
	group := func(cn string, o ...string) pkix.Name { return pkix.Name{CommonName: cn, Organization: o} }
	for _, s := range []spec{
		{APIServer, ca, group("kube-apiserver"), []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"}, append(n.APIServer, local...)},
		{KubeletClient, ca, group("kube-apiserver-kubelet-client", "system:masters"), nil, nil},
		{FrontProxyClient, front, group("front-proxy-client"), nil, nil},
		{Etcd, etcd, group("etcd"), []string{"localhost"}, local},
		{EtcdClient, etcd, group("kube-apiserver"), nil, nil},
		{ControllerManager, ca, group("system:kube-controller-manager"), []string{"localhost"}, local},
		{Scheduler, ca, group("system:kube-scheduler"), []string{"localhost"}, local},
		{Kubelet, ca, group("system:node:"+n.NodeName, "system:nodes"), []string{n.NodeName, "localhost"}, append(n.Kubelet, local...)},
		{KubeProxy, ca, group("system:kube-proxy"), nil, nil},
		{NetworkPolicy, ca, group("devcluster:network-policy"), nil, nil},
		{Admin, ca, group("devcluster-admin", "system:masters"), nil, nil},
	} {
		if _, err := d.issue(s); err != nil {
			return err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return writeKey(d.Key(ServiceAccounts), key)
}

// issue creates one certificate. Without a ca it is an authority itself.
func (d Dir) issue(s spec) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: s.subject, DNSNames: s.dns,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, a := range s.ips {
		t.IPAddresses = append(t.IPAddresses, net.IP(a.AsSlice()))
	}
	signer := s.ca
	if signer == nil {
		t.IsCA, t.BasicConstraintsValid, t.ExtKeyUsage = true, true, nil
		t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
		signer = &pair{t, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, signer.cert, &key.PublicKey, signer.key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", s.name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(d.Cert(s.name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return nil, err
	}
	return &pair{cert, key}, writeKey(d.Key(s.name), key)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// WriteKubeconfig writes a kubeconfig to path that authenticates with the certificate name, with everything embedded.
func (d Dir) WriteKubeconfig(path, name, server, cluster string) error {
	ca, err := os.ReadFile(d.Cert(CA))
	if err != nil {
		return err
	}
	cert, err := os.ReadFile(d.Cert(name))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(d.Key(name))
	if err != nil {
		return err
	}
	c := clientcmdapi.NewConfig()
	c.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	c.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	c.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: name}
	c.CurrentContext = cluster
	return clientcmd.WriteToFile(*c, path)
}

// ClientTLS returns the client configuration for connecting to the API server with the certificate name.
func (d Dir) ClientTLS(name string) (*tls.Config, error) {
	ca, err := os.ReadFile(d.Cert(CA))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	cert, err := tls.LoadX509KeyPair(d.Cert(name), d.Key(name))
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}, nil
}
