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

// certificates are the files of a folder, read again when they have changed: a Secret's volume is renewed
// under a running pod.
type certificates struct {
	dir string

	mu     sync.Mutex
	config *tls.Config
	stamp  [3]stamp
}

// stamp tells one state of a file from the next. Two that come within one tick of the kernel's clock have one time of
// change, but are two files where they were put in place as a Secret's volume does it.
type stamp struct {
	size  int64
	mod   time.Time
	inode uint64
}

func loadCertificates(dir string) (*certificates, error) {
	c := &certificates{dir: dir}
	return c, c.refresh()
}

// serverConfig is a tls.Config that looks at the files at each handshake.
func (c *certificates) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if err := c.refresh(); err != nil {
				// Files in the middle of a change: the ones before still serve.
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
