//go:build linux && (amd64 || arm64)

package supervisor

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/pki"
)

const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
	caFile   = "ca.crt"
)

// certificates are the files of a folder. They are read again when they have changed, because a Secret's volume is
// updated under a running pod. mu guards what was read.
type certificates struct {
	dir string

	mu     sync.Mutex
	config *tls.Config
	stamp  [3]stamp
}

// stamp distinguishes two states of a file. Two states within one tick of the kernel's clock have the same
// modification time, but they are two files when written as a Secret's volume is.
type stamp struct {
	size  int64
	mod   time.Time
	inode uint64
}

func loadCertificates(dir string) (*certificates, error) {
	c := &certificates{dir: dir}
	return c, c.refresh()
}

// serverConfig returns a tls.Config that checks the files at each handshake.
func (c *certificates) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if err := c.refresh(); err != nil {
				// The files are being changed, so use the previous ones.
				logf("reading the certificates again: %v", err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.config, nil
		},
	}
}

func (c *certificates) refresh() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var stamps [3]stamp
	for i, name := range []string{certFile, keyFile, caFile} {
		info, err := os.Stat(filepath.Join(c.dir, name))
		if err != nil {
			return err
		}
		stamps[i] = stamp{size: info.Size(), mod: info.ModTime()}
		if sys, ok := info.Sys().(*syscall.Stat_t); ok {
			stamps[i].inode = sys.Ino
		}
	}
	if c.config != nil && stamps == c.stamp {
		return nil
	}
	var content [3][]byte
	for i, name := range []string{certFile, keyFile, caFile} {
		var err error
		if content[i], err = os.ReadFile(filepath.Join(c.dir, name)); err != nil {
			return err
		}
	}
	config, err := pki.ServerConfig(content[2], pki.Pair{Cert: content[0], Key: content[1]})
	if err != nil {
		return err
	}
	config.NextProtos = []string{"h2"}
	c.config, c.stamp = config, stamps
	return nil
}
