//go:build !linux

package sqldb

import "syscall"

// limitSilence does nothing: only Linux has a limit for one connection.
func limitSilence(syscall.RawConn) error { return nil }
