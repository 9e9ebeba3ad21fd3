package sqldb

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// limitSilence makes a connection fail when what was sent is not received for silentFor.
func limitSilence(c syscall.RawConn) (err error) {
	failed := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, silentFor)
	})
	return errors.Join(failed, err)
}
