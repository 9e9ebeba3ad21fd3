package pki

import (
	"bytes"
	"crypto/tls"
	"sync"
)

// ClientConfigs caches the parsed certificates and keys for ClientConfig, because checking a key takes about as long
// as a large part of a handshake. It holds those of the last call. Its zero value is ready for use, and it is safe
// for concurrent use.
type ClientConfigs struct {
	mu     sync.Mutex
	ca     []byte
	client Pair
	config *tls.Config // without a server name; callers get copies
}

// Get does the same as ClientConfig. The caller may change the result.
func (c *ClientConfigs) Get(ca []byte, client Pair, serverName string) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.config == nil || !bytes.Equal(c.ca, ca) || !bytes.Equal(c.client.Cert, client.Cert) || !bytes.Equal(c.client.Key, client.Key) {
		config, err := ClientConfig(ca, client, "")
		if err != nil {
			return nil, err
		}
		c.ca, c.client = bytes.Clone(ca), Pair{Cert: bytes.Clone(client.Cert), Key: bytes.Clone(client.Key)}
		c.config = config
	}
	config := c.config.Clone()
	config.ServerName = serverName
	return config, nil
}
