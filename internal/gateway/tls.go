package gateway

import (
	"bytes"
	"crypto/tls"
	"log"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// Certificate returns how to serve with the certificate in a file, and what reads it again when the files change, which is a
// Runnable of a manager. While new files cannot be used, the last certificate that could is served.
func Certificate(certFile, keyFile string) (*tls.Config, *certwatcher.CertWatcher, error) {
	w, err := certwatcher.New(certFile, keyFile)
	if err != nil {
		return nil, nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: w.GetCertificate}, w, nil
}

// serverLog returns the log of the HTTP server. It leaves out failed handshakes: any stranger can make as many as they like.
func serverLog(l logr.Logger) *log.Logger { return log.New(quiet{l}, "", 0) }

// quiet is a writer for the log of an HTTP server. It drops the lines about failed handshakes.
type quiet struct{ log logr.Logger }

// Write implements io.Writer.
func (q quiet) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(p, []byte("http: TLS handshake error")) {
		q.log.Info("The HTTP server of the gateway reports", "message", string(bytes.TrimSpace(p)))
	}
	return len(p), nil
}
