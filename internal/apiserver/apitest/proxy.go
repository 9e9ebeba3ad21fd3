package apitest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// proxyName is the identity of the API server toward aggregated servers.
const proxyName = "front-proxy-client"

// proxyIdentity names the files of the front proxy's authority and client certificate.
type proxyIdentity struct{ ca, cert, key string }

func newProxyIdentity(dir string) (*proxyIdentity, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "front-proxy-ca"}, caKey)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: proxyName}, NotBefore: ca.NotBefore, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, key.Public(), caKey)
	if err != nil {
		return nil, err
	}
	p := &proxyIdentity{ca: filepath.Join(dir, "proxy-ca.crt"), cert: filepath.Join(dir, "proxy.crt"), key: filepath.Join(dir, "proxy.key")}
	for file, cert := range map[string]*x509.Certificate{p.ca: ca, p.cert: {Raw: der}} {
		data, err := certutil.EncodeCertificates(cert)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return nil, err
		}
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	return p, os.WriteFile(p.key, data, 0o600)
}
