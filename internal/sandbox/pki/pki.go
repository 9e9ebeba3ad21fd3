// Package pki issues the certificates with which a manager and its sandboxes authenticate each other: one CA for each
// pool (or process), a server certificate for the sandboxes and a client certificate for the manager. Everything is
// PEM, ready for a Secret.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"k8s.io/utils/clock"
)

// ServerName returns the name of the sandboxes of a pool in certificates.
func ServerName(pool, namespace string) string {
	return fmt.Sprintf("sandbox.%s.%s.skein.dev", pool, namespace)
}

// Pair is a certificate and its key, as PEM.
type Pair struct {
	Cert []byte
	Key  []byte
}

// backdate allows for clocks that differ.
const backdate = 5 * time.Minute

// NewCA returns a new CA.
func NewCA(c clock.PassiveClock, name string, lifetime time.Duration) (Pair, error) {
	t := template(c, name, lifetime)
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
	t.KeyUsage = x509.KeyUsageCertSign
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	return sign(t, t, key, key)
}

// IssueServer issues a certificate with which a supervisor serves under a name. It is not valid for clients.
func IssueServer(c clock.PassiveClock, ca Pair, name string, lifetime time.Duration) (Pair, error) {
	t := template(c, name, lifetime)
	t.DNSNames = []string{name}
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return issue(ca, t)
}

// IssueClient issues a certificate with which a manager dials. It is not valid for servers.
func IssueClient(c clock.PassiveClock, ca Pair, name string, lifetime time.Duration) (Pair, error) {
	t := template(c, name, lifetime)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return issue(ca, t)
}

func template(c clock.PassiveClock, name string, lifetime time.Duration) *x509.Certificate {
	now := c.Now()
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: now.Add(-backdate),
		NotAfter:  now.Add(lifetime),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
}

func issue(ca Pair, t *x509.Certificate) (Pair, error) {
	parent, err := tls.X509KeyPair(ca.Cert, ca.Key)
	if err != nil {
		return Pair{}, fmt.Errorf("the CA is not usable: %w", err)
	}
	signer, ok := parent.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return Pair{}, errors.New("the CA's key is not ECDSA")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	return sign(t, parent.Leaf, key, signer)
}

func sign(t, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (Pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Pair{}, err
	}
	t.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, signer)
	if err != nil {
		return Pair{}, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}),
	}, nil
}

// ErrExpired is wrapped by the error of Check for a certificate that is due for renewal.
var ErrExpired = errors.New("certificate expires")

// Check returns an error unless a pair is complete, was issued by ca, and is valid for at least remaining.
func Check(c clock.PassiveClock, ca []byte, p Pair, remaining time.Duration) error {
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return err
	}
	roots, err := Pool(ca)
	if err != nil {
		return err
	}
	if until := pair.Leaf.NotAfter; c.Now().Add(remaining).After(until) {
		return fmt.Errorf("%w at %s", ErrExpired, until.Format(time.RFC3339))
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: c.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// NotAfter returns when the first certificate of a PEM text expires.
func NotAfter(cert []byte) (time.Time, error) {
	block, _ := pem.Decode(cert)
	if block == nil {
		return time.Time{}, errors.New("no certificate in the PEM text")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, err
	}
	return c.NotAfter, nil
}

// Good collects the certificates in PEM texts that have not expired, each once and in the given order, and returns
// when the first of them expires. It skips everything that is not a certificate.
func Good(c clock.PassiveClock, texts ...[]byte) (bundle []byte, earliest time.Time) {
	seen := map[string]bool{}
	for _, rest := range texts {
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil || !c.Now().Before(cert.NotAfter) || seen[string(block.Bytes)] {
				continue
			}
			seen[string(block.Bytes)] = true
			bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes})...)
			if earliest.IsZero() || cert.NotAfter.Before(earliest) {
				earliest = cert.NotAfter
			}
		}
	}
	return bundle, earliest
}

// Pool returns a pool of the PEM certificates.
func Pool(ca []byte) (*x509.CertPool, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("no CA certificate in the PEM text")
	}
	return roots, nil
}

// ClientConfig returns the configuration with which a manager dials the sandboxes named serverName.
func ClientConfig(ca []byte, client Pair, serverName string) (*tls.Config, error) {
	roots, err := Pool(ca)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(client.Cert, client.Key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: serverName, MinVersion: tls.VersionTLS13}, nil
}

// ServerConfig returns the configuration with which a supervisor serves managers whose certificates ca issued.
func ServerConfig(ca []byte, server Pair) (*tls.Config, error) {
	roots, err := Pool(ca)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(server.Cert, server.Key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}, nil
}
